"""Choice letters in prose: which one a sentence asserts, and which ones it denies."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.phrases import phrases_of

_PHRASE = phrases_of("letters")

_SEARCHED = 4_000  # characters at the end of a text

_LETTER = re.compile(r"(?<![A-Za-z\\'])\(?([A-HJ])\)?(?![A-Za-z'])")
_ARTICLE = re.compile(r"\s+(?!is\b|was\b|must\b|has\b|can|could|and\b|or\b|it\b|not\b|for\b)[a-z]+")
_LETTER_LIST = re.compile(r"(?<=[A-J]),\s(?=(?:[A-J],\s)*[A-J],?\s(?:and|or)\s\(?[A-J]\b)")
_CLAUSE_END = re.compile(r"[.,;:!?\n]+(?=\s|$)|\s(?:but|so|while|although)\s")
_INNER_REASON = re.compile(r"\s(?:because|since|given that)\s", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?。！？](?=\s)|\n")


def asserted_letter(text: str) -> str | None:
    """Return the one choice letter that a text asserts; None when it asserts none or several.

    "For sure D, it can't be A or B" asserts D: a denial covers the letters after it in its clause, or those before it
    where none follows. Letters in a clause that gives a reason do not count.
    """
    asserted: set[str] = set()
    denied: set[str] = set()
    for clause in _CLAUSE_END.split(_LETTER_LIST.sub(" and ", text[-_SEARCHED:])):
        if _PHRASE["reason"].match(clause):
            continue
        clause = _INNER_REASON.split(clause)[0]
        letters = [
            letter
            for letter in _LETTER.finditer(clause)
            if letter[0] != "A" or not _ARTICLE.match(clause, letter.end())
        ]
        denials = [denial.start() for denial in _PHRASE["denial"].finditer(clause)]
        for letter in letters:
            covered = denials and (letter.start() > denials[0] or letters[-1].start() < denials[-1])
            (denied if covered else asserted).add(letter[1])
    return asserted.pop() if len(asserted) == 1 and not asserted & denied else None


def last_letter(text: str) -> str | None:
    """Return the letter that the last sentence with a choice letter asserts.

    For evaluation only: it pays for guesses.
    """
    for sentence in reversed(_SENTENCE_END.split(text[-_SEARCHED:])):
        if _LETTER.search(sentence):
            return asserted_letter(sentence)
    return None
