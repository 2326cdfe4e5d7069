"""The words that decide what a sentence states: what makes it state nothing, and how its parts begin and end."""

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
CHAT = re.compile(
    r"(?:I\s+(?:really\s+)?hope|hope\s+(?:this|that|it)|(?:please\s+)?(?:let\s+me\s+know|feel\s+free|don['’]t\s+hesitate|reach\s+out)|(?:if|should)\s+you\s+(?:have|need|want|would|get|are)"
    r"|(?:just\s+)?ask\b|happy\s+(?:to|learning|stud)|glad\s+to|good\s+luck|have\s+(?:a|fun)\b|thanks?\b|thank\s+you|cheers|you['’]re\s+welcome"
    r"|(?:would|do)\s+you\s+(?:like|want|need|have)|does\s+(?:this|that)\s+(?:help|make)|any\s+(?:other\s+|more\s+)?questions|is\s+there\s+anything"
    r"|keep\s+(?:up|practi[cs]ing)|enjoy|best\s+(?:of\s+luck|regards)|that['’]s\s+it|done)\b[^$\d\\]*",
    re.IGNORECASE,
)
"""A sentence of politeness after the answer. One with a number or a formula is not dropped."""
END_MARKS = re.compile(
    r"(?:[\s*]*(?:[∎□■◻◼✓✔☑✅]\ufe0f?|\\(?:blacksquare|qed|square|Box|checkmark)|\$\\(?:blacksquare|square|Box|checkmark)\$|\bQ\.?\s?E\.?\s?D\b\.?))+\s*$"
)
_SO = (
    r"so(?!\s+(?:many|much|that|far|on|called|long|small|large|big|few)\b)|hence|thus|therefore|consequently|accordingly|which\s+means(?:\s+that)?|this\s+means(?:\s+that)?|meaning(?:\s+that)?"
    r"|it\s+follows\s+that|we\s+conclude\s+that|in\s+conclusion|as\s+a\s+(?:result|consequence)|in\s+other\s+words|that\s+is(?=,)|i\.\s?e\.|in\s+(?:total|all|summary)"
    r"|altogether|overall|finally|in\s+the\s+end|to\s+sum(?:marize|\s+up)?|then|and\s+so"
)
CUT = re.compile(
    rf"(?P<so>(?:^|[,;:.–—]\s*|\s-{{1,2}}\s|\s+and\s+)(?:and\s+|but\s+)?(?:{_SO})(?:,?\s+(?:also|again|{_SO}))?(?![A-Za-z]),?\s*"
    r"|\s*(?:⇒|∴|→|⟹|⟶|➡|=>|\\therefore(?![a-z])|\\Rightarrow(?![a-z])|\\implies(?![a-z]))\s*)"
    r"|(?P<label>:\s+|\s(?:—|–|--|-)\s+)|;\s+|,\s+(?=(?:this|that|which)\s)",
    re.IGNORECASE,
)
"""Where a conclusion can begin. so: after a word such as "hence"; label: after a colon or a dash."""
WE = re.compile(
    r"(?:^|(?<=\s))(?:we|I|you|one)\s+(?:(?:now|then|therefore|finally|thus|hence|can|also)\s+)*(?:get|gets|got|obtain|obtains|obtained|find|finds|found|see|sees|conclude|concludes|concluded|deduce|have(?=\s+(?:that\s+)?\x00)|arrive\s+at|arrived\s+at|reach|reached|end\s+up\s+with|are\s+left\s+with)"
    r"(?:\s+that(?!\s+is\b)|:)?\s+",
    re.IGNORECASE,
)
OPENING = re.compile(
    r"(?:(?!(?:according|taking|choosing|guessing|dropping|neglecting|ignoring|assuming|supposing|trying|unlike|despite|except|without|until|before|above|below|besides|depending|rounding)\b)"
    r"(?:[a-z]+ing|by|from|using|since|because|as|with(?!\s+\x00)|after|in|on|at|for(?!\s+\x00)|of|over|under|when(?=[^,]*\sdivided\s+by)|among|between|during|through|clearly|indeed|now|here|actually|surely|obviously|overall|together|again|similarly|likewise|rounded|expressed|written|ignoring|two|three|four|five|six|seven|eight|nine|ten)\b"
    r"[^,]{0,160}|[a-z]+ly),\s+(?!-?\d+\s*(?:,|and\b))",
    re.IGNORECASE,
)
"""What can stand before a clause with a comma: a reason, a place, a time, an adverb."""
REFUSED = word_set("refusing", "refusing_in_clauses") - word_set("not_refusing_in_clauses")
STOPS_BEHIND = word_set("stops_behind")
"""Words behind a value that make it more, less, or something else."""
LABELS = word_set("labels")
"""Words directly before a number that is not a value: prepositions, articles, and what is numbered."""
DENIED_VERBS = re.compile(
    r"(?:add|subtract|multipl|divid|tr[iy]|test|check|consider|choos|chose|pick|guess|substitut|plug|insert|start|begin|began|round|assum|suppos|propos|suggest|stat|mention|quot|ask|expect|want|call|label|denot|us(?:e|ing)|appl|integrat|differentiat|factor(?:s|ed|ing)?$|remov|eras|skip|reject|exclud|discard|eliminat|avoid|miss|lack|forbid|exceed|surpass|bound|divides|need(?:ed)?$|includ|contradict|set|let|put|look|compar|replac|cancel|square[sd]?|doubl|tripl|halv|approximat|estimat|predict|claim|sa(?:y|id|ys)|thinks?|thought|believ|hop|plan|intend|aim|offer|promis|target|limit|restrict|refus|den(?:y|ied|ies)|fail|resembl|approach|tend|converg|precede|follow|satisf|depend|involv|treat|see|saw|writ|wrote|know|knew)",
    re.IGNORECASE,
)
"""Verbs of an operation, of an attempt, or of what others say: no result follows them."""
PLAIN_VERBS = word_set("plain_verbs")
NUMBERED_NOUNS = word_set("numbered_nouns")
RESULT_OF_US = word_set("result_of_us")
LEADS_TO = re.compile(
    r"(?:^|\s)(?:(?:comes?|came|adds?|added|amounts?|amounted|sums?|summed|works?|worked|turns?|boils?|goes|reduces?|reduced|simplif(?:y|ies|ied)|evaluates?|evaluated|leads?|rises?|rose|falls?|fell|drops?|dropped|grows?|grew"
    r"|shrinks?|shrank|factori[sz]es|factors|multipl(?:y|ies)|totals?|collapses|cancels|expands|integrates|differentiates|equal|equivalent|corresponds|rewrites|increases?|increased|decreases?|decreased|equates|narrows|forced|down|up|out|back|counts|condenses|contracts|transforms|translates|rearranges|normali[sz]es|tot)"
    r"(?:\s+(?:up|out|down|back|exactly|precisely|simply))?\s+(?:to(?:\s+be)?|as|into|at|with)|(?:increase[sd]?|decrease[sd]?|rises|rose|grows|grew|falls|fell|drops)\s+by|left\s+with|can\s+be\s+\w+\s+in|ends?\s+up\s+(?:with|at)|(?:\x00+|\w)\s+to\s+be)\s+$",
    re.IGNORECASE,
)
"""Verbs with a preposition after which a result stands."""
MEETS_AT = re.compile(
    r"\s(?:intersects?|meets?|cross(?:es)?|vanish(?:es)?|touch(?:es)?|lies?|occurs?|attained|reached|located)\s(?:[a-z\x00]+\s){0,4}?(?:at|in|on)\s+(?:the\s+points?\s+|points?\s+)?$",
    re.IGNORECASE,
)
TIME_UNITS = frozenset(["s", "min", "h", "day", "week", "month", "year"])
_NOUN = (
    r"height|length|width|depth|distance|area|volume|total|sum|values?|speed|velocity|temperature|pressure|radius|diameter|perimeter|circumference|probability|chance|price|cost|profit|loss"
    r"|mass|weight|age|angle|rate|force|energy|current|voltage|resistance|power|frequency|average|mean|median|mode|ratio|share|percentage|fraction|score|balance|amount|discount|tax|tip|salary|wage|remainder|quotient"
    r"|result|solutions?|answer|density|concentration|acceleration|momentum|charge|period|duration|slope|interest|change|savings|yield|minimum|maximum|capacity|count|degree|rank|dimension|order|measure|magnitude|norm|determinant|trace|limit|roots?"
)
TAKES_SOMEONE = re.compile(r"\b(?:takes|took|costs?|gives|leaves)\s+(?:the|an?|his|her|its|their)\s+\w+\s+$")
QUANTITY_LABEL = re.compile(rf"(?:{_NOUN})\s*$", re.IGNORECASE)
QUANTITY_OF = re.compile(
    rf"(?:is|are|has|have|had|gives?|gave|giving|yields?|get|gets|got|obtain|find|found|makes?|made|leaves?|left|reaches|reached|produces?|at|in|shows?|need|needs|pays|paid|with)\s+(?:an?\s+|the\s+)?(?:\w+\s+)?(?:{_NOUN})\s+of\s+(?:exactly\s+|about\x00)?$"
    rf"|(?:has|have|with)\s+(?:an?\s+)?(?:\w+\s+)?(?:{_NOUN})\s+$|(?:is|are)\s+given\s+by\s+$",
    re.IGNORECASE,
)
APPOSED = re.compile(
    r"(?:^|\s)(?:is|are|has|have|gives?|yields?|get|gets|obtain|find|leaves?|takes|reads|becomes|in|leads?\s+to|reduces\s+to|equals|comes\s+to|forms?|produces?|shows?|meet\s+at|intersect\s+at|intersect\s+in)\s+(?:an?|the|only)\s+(?:(?!(?:wrong|false|first|other)\b)\w+\s+){0,2}"
    r"(?!(?:form|point|line|circle)s?\s+\x00+\s)(?:value|values|number|set|interval|vector|point|points|coordinates?|function|equation|expression|solution|solutions|result|ratio|remainder|formula|matrix|polynomial|pair|pairs|roots?|sum|product|total|limit|form|line|numbers|triple|term|derivative|antiderivative|integral|coordinates|inverse|factor(?:isation|ization)|representation|quotient|parametrization)\s+$",
    re.IGNORECASE,
)
"""The value stands in apposition to a noun that a verb of result governs: "has the solution x = 2"."""
EXACTLY_FOR = re.compile(
    r"(?:exactly|precisely|if\s+and\s+only|iff)\s*(?:when|for|if|on|in)?\s+(?:all\s+)?$", re.IGNORECASE
)
ADVERBS = re.compile(
    r"(?:(?<=\s)|^)(?:exactly|precisely|simply|just|therefore|thus|hence|then|indeed|clearly|always|still|now|also|together|again|altogether|in\s+total|overall|a\s+total\s+of|in\s+all|a\s+full|a\s+whole|both|only|(?<=s\s)(?:him|her|them|us|me|you))\s+$",
    re.IGNORECASE,
)
HARMLESS_INSIDE = re.compile(
    r"(?<=the\s)last(?=\s(?:digits?|day|two|three)\s)|(?<=(?:est|ast|mum)\s)possible(?=\s)|\bafter\s+(?:trying|checking|testing|considering)\s+(?:all|every|each|both)\b|['’]s\s+(?:first|second|third)\s+(?:law|theorem|rule|principle|derivative)|\s(?:at|for|of|with)\s+[^\s,]+\s(?:\w+\s)?each(?=\s)|^after\s(?=\w)|\bif\s+and\s+only\s+if\b"
    r"|\bbetween\s+\S+(?:\s[a-z]+){0,2}?\s+and\s+\S+(?:\s[a-z]+){0,2}?(?=\s(?:is|are|lies|equals)\s)|\b(?:double|half)[\s-](?:angle|life)|(?<=the\s)equation(?=\s\x00)|\bcan\sbe\s[a-z]+(?=\sin\s)|^just\s+(?:before|after)(?=\s)"
    r"|\b(?:exactly|precisely)\s+(?:when|if|where)\b",
    re.IGNORECASE,
)
"""Words that mean something harmless in these places."""
IN_REASONS = word_set("in_reasons")
"""Words that a reason before a colon may have."""
LISTED_NOUNS = word_set("listed_nouns")
PAST = frozenset({"was", "were", "had"})
"""A sentence with one of these can tell how things were, unless it draws a conclusion."""
ARRIVES_AT = re.compile(
    r"\b(?:is|be|(?:ends?|ended|arrives?|lands?|returns?|finish(?:es)?|clos(?:es?)|gets\s+(?:home|there|back)|meets?|done|over|ready)\s+at)\s+$"
)
NAME = re.compile(r"[A-Za-z](?:_\{?\w\}?)?|[A-Za-z][a-z]+(?:\s(?:of\s|the\s)*[A-Za-z][a-z]+){0,3}")
"""What an equation in plain text can name."""
CURRENT = re.compile(
    r"\bcurrent\s+(?:value|total|sum|count|number|score|best|guess|estimate|answer|result)", re.IGNORECASE
)
WEEKDAY = re.compile(
    r"\b(?:is|be|comes|(?:falls|lands|fall|was\s+born|(?:it|that)\s+is)\s+on)\s+(?:an?\s+)?((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)$"
)
PLACE = re.compile(
    r"\b(?:lies|is|falls|lands|ends\s+up|located|sits)\s+(?:in|on)\s+(?:the\s+)?((?:[a-z]+\s){0,2}[a-z]+)$"
)
PLACED = re.compile(
    r"\bis\s+(?:indeed\s+)?((?:the\s+)?(?:first|second|third|fourth)\s+(?:player|quadrant|team|child|candidate))$"
)
PREDICATE = re.compile(
    r"(?:the|this|our|that)\s+(?:[a-z]+\s){0,3}(?:series|integral|sequence|sum|product)\s+([a-z]{3,12}[^s]s(?:\s[a-z]+ly)?)$",
    re.IGNORECASE,
)
WINS = re.compile(r"(?:the\s+)?(?:[A-Z]?[a-z]+\s){1,3}(?:wins|loses|won|survives|lies|cheats)", re.IGNORECASE)
NOT_BEFORE = LABELS | {"is", "are"}
