"""The words and phrases that `last_sentence` reads: what makes a sentence state nothing, and how its parts begin."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.words import word_set

WORD = re.compile(r"(?<![\\\w])[A-Za-z]+(?:['’-][A-Za-z]+)*(?!\w)")
REFUSING = word_set("refusing")
"""A clause with one of these words is not read, unless the word belongs to a phrase that is read as a whole."""
HYPOTHETICAL = word_set("hypothetical")
"""Words that make what follows from their clause no statement either."""
RUNS_ON = HYPOTHETICAL | word_set("runs_on")
OTHER_THING = re.compile(
    r"\b(?:first|second|third|fourth|fifth|final-step)\s+(?!of\b)[a-z]|\b(?:the|its|his|her|their|our)\s+(?:first|second|third)\b"
    r"|\bone\s+(?!with\b|that\b|is\b|who\b|whose\b|having\b|third\b|half\b|quarter\b|(?:eigh|fif|six|seven|nin|ten|twelf)th\b)\w|\bat\s+(?:best|worst|most|least|first)\b|\bout\s+of\b|\bup\s+to\b|\bpercent\s+of\b|\bfor\s+now\b|\bat\s+this\s+(?:point|stage)\b|[a-z]['’]s\s+(?:\w+\s+)?(?:answer|result|solution|guess|claim)\b"
    r"|\b(?:have|has|had|need|needs|going|want|wants|about|able|remains?|left)\s+to\s+(?!be\b)[a-z]"
    r"|\b(?:upper|lower)\b|\brunning\s+(?:total|sum|count)\b"
    r"|\b(?:square|cube|reciprocal|negative|power|(?<!common )multiple|double|logarithm)\s+of\b|\bold\s|n['’]t\b|\?",
    re.IGNORECASE,
)
QUANTITY = re.compile(
    r"^(the\s+(?:[a-z]+\s+)?(?:number|probability|sum|product|total|area|volume|length|ratio|mean|average|median|chance|difference"
    r"|remainder|quotient|value|values|maximum|minimum|percentage|fraction|coefficient|digit|solutions?|set|roots|cost|price"
    r"|amount|distance|time|speed|range|domain|powers|divisors|factors|multiples|primes|integers?|numbers?|one|perimeter))"
    r"\s+(of|that|for|with|to|which|less|greater|in|between|below|divisible)\b(.*?)(?=\s(?:is|are|equals)\s)",
    re.IGNORECASE,
)
"""A quantity with its description, in which "at least", "not" or "or" belong to what is counted."""
NUMBER_LIST = re.compile(r"-?\d+(?:\.\d+)?(?:,\s-?\d+(?:\.\d+)?){1,20}(?:,?\s(?:and|or)\s-?\d+(?:\.\d+)?)?")
HARMLESS = re.compile(
    r"\b(the|its|their)\s+only(?:\s+possible)?(?=\s)|\b(the)\s+possible(?=\s+[a-z]+s\b)"
    r"|(?<=\bthe\sanswer)()\s(?:that\s)?we\s(?:want|need|seek)\b|(?<=\bthe\svalue)()\s(?:that\s)?we\s(?:want|need|seek)\b",
    re.IGNORECASE,
)
"""Words that would make a sentence suspicious elsewhere: "the only possible value", "the possible values"."""
NO_SUBJECT = word_set("no_subject")
RELATIVE = re.compile(r"\b(?:that|which|who)\s+(?:is|are|equals?|gives?|yields?)\b", re.IGNORECASE)
DESCRIBED = HYPOTHETICAL | word_set("described")
INDEFINITE = re.compile(
    r"\s*(?:an?(?!\s+(?:\w+\s+)?(?:equation|formula|expression)\s+(?:of|for|is)\b)|one|another|each|every|some|any|either|neither|half|twice|no|for|at|with|under|given|of)\b",
    re.IGNORECASE,
)
SO = re.compile(
    r"(?:^|[,;:]\s+(?:and\s+)?|\s+and\s+)(?:so|hence|thus|therefore|consequently|then|which\s+means(?:\s+that)?|this\s+means(?:\s+that)?"
    r"|it\s+follows\s+that|we\s+conclude\s+that|finally|as\s+a\s+result|in\s+conclusion|in\s+total|altogether|in\s+all"
    r"|overall|together)\b,?\s+",
    re.IGNORECASE,
)
INTRODUCTION = re.compile(
    r"(?:(?!(?:according|taking|choosing|guessing|starting|dropping|neglecting)\b)[a-z]+ing\b|by\b|from\b|using\b|since\b|because\b|as\b"
    r"|with(?:out)?\s[^\d$,=]{2,40}(?=,)|when\s[^,]{1,80}\bdivided\s+by\b|in\s+the\s+end\b|in\s+(?:total|all|conclusion|summary)\b|to\s+summarize\b|clearly\b|indeed\b|finally\b|overall\b|altogether\b)"
    r"(?:[^,$]|\$[^$]*\$|(?<=\d),(?=\d)){0,160},\s+(?!-?\d+\s*(?:,|and\b))",
    re.IGNORECASE,
)
WE = re.compile(
    r"(?:we|I|you|one)\s+(?:now\s+|then\s+|therefore\s+|finally\s+|thus\s+)?(?:get|obtain|find|see|conclude|have(?=\s+(?:that\s+)?[$\\A-Za-z])|deduce"
    r"|arrive\s+at|reach)(?:\s+that|:)?\s+",
    re.IGNORECASE,
)
_TOTAL = r"(?:in\s+total|altogether|in\s+all|overall|in\s+the\s+end|together|as\s+required|as\s+desired|combined)"
TAIL = re.compile(
    rf",?\s+{_TOTAL}$|,?\s+(?:which\s+is\s+)?(?:attained|reached|achieved|obtained|occurring|taken)\s+(?:at|when|for|if)\s+\$[^$]*\$$"
    r"|,?\s+for\s+(?:all|every|any)\s+(?:(?:real|complex|positive|nonzero|non-negative)\s+)?(?:numbers?\s+|values?\s+of\s+)?\$[^$]*\$$"
    r"|,?\s+(?:where\s+|with\s+)?(?:an\s+)?(?:\$[^$]{1,30}\$(?:,?\s+(?:and\s+)?)?){0,3}\s*(?:is|are|being)?\s*(?:an\s+)?"
    r"arbitrary\s+(?:real\s+)?constants?(?:\s+\$[^$]{1,20}\$)?$",
    re.IGNORECASE,
)
INTEGER_TAIL = re.compile(
    r",?\s+(?:(?:where|with|for)\s+)?(?:(?:any|all|every|each|some|an)\s+)?(?:integers?\s+\$(?P<a>[a-z])\$"
    r"|\$(?P<b>[a-z])\$\s+(?:is\s+|being\s+)?(?:an?|any)\s+integer|\$(?P<c>[a-z])\s*\\in\s*\\mathbb\s*\{?\s*Z\s*\}?\$)$"
)
COPULA = re.compile(
    r"(?:^|(?<=[\s$)]))(?:is|are|must\s+be|equals|equal|(?:amounts?|comes?|simplif(?:y|ies)|reduces?|evaluates?|adds?\s+up|comes?\s+out|works?\s+out"
    r"|is\s+equal|are\s+equal|sums?\s+up)\s+to|(?:increase[sd]?|decrease[sd]?|rises|grows|falls|drops)\s+by|totals|becomes|(?:turns?\s+out|works\s+out)\s+to\s+be|(?:is|are)\s+given\s+by|gives?|yields?|measures|costs|weighs)"
    r"(?:\s+(?:exactly|precisely|simply|just|therefore|thus|equal\s+to|then|indeed|clearly|hence|always|the\s+(?:vector|matrix|interval|set"
    r"|number|value|fraction|function|polynomial|point|pair)(?=\s+[$\\\d])))*\s*:?\s+",
    re.IGNORECASE,
)
NOUN_STOPS = word_set("noun_stops")
