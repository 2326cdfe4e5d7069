"""The words that decide what a sentence states: what makes it state nothing, and how its parts begin and end."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.phrases import phrases_of
from ansatz.rewards.math_answer.words import word_set

PHRASE = phrases_of("sentences")
WORD = re.compile(r"(?<![\\\w])[A-Za-z]+(?:['’-][A-Za-z]+)*(?!\w)")
REFUSING = word_set("refusing")
"""A clause with one of these words is not read, unless the word belongs to a phrase that is read as a whole."""
HYPOTHETICAL = word_set("hypothetical")
"""Words that make what follows from their clause no statement either."""
RUNS_ON = HYPOTHETICAL | word_set("runs_on")
NUMBER_LIST = re.compile(r"-?\d+(?:\.\d+)?(?:,\s-?\d+(?:\.\d+)?){1,20}(?:,?\s(?:and|or)\s-?\d+(?:\.\d+)?)?")
NO_SUBJECT = word_set("no_subject")
DESCRIBED = HYPOTHETICAL | word_set("described")
NOUN_STOPS = word_set("noun_stops")
REFUSED = word_set("refusing", "refusing_in_clauses") - word_set("not_refusing_in_clauses")
STOPS_BEHIND = word_set("stops_behind")
"""Words behind a value that make it more, less, or something else."""
LABELS = word_set("labels")
"""Words directly before a number that is not a value: prepositions, articles, and what is numbered."""
PLAIN_VERBS = word_set("plain_verbs")
NUMBERED_NOUNS = word_set("numbered_nouns")
RESULT_OF_US = word_set("result_of_us")
TIME_UNITS = frozenset(["s", "min", "h", "day", "week", "month", "year"])
IN_REASONS = word_set("in_reasons")
"""Words that a reason before a colon may have."""
LISTED_NOUNS = word_set("listed_nouns")
PAST = frozenset({"was", "were", "had"})
"""A sentence with one of these can tell how things were, unless it draws a conclusion."""
NAME = re.compile(r"[A-Za-z](?:_\{?\w\}?)?|[A-Za-z][a-z]+(?:\s(?:of\s|the\s)*[A-Za-z][a-z]+){0,3}")
"""What an equation in plain text can name."""
NOT_BEFORE = LABELS | {"is", "are"}
