"""The words that decide whether the last clause of a sentence states a value: see `last_clause`."""

from __future__ import annotations

import re

from ansatz.rewards.math_answer.sentence_words import REFUSING
from ansatz.rewards.math_answer.words import words_of_text

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
    rf"(?P<so>(?:^|[,;:.–—]\s*|\s-{{1,2}}\s|\s+and\s+)(?:and\s+|but\s+)?(?:{_SO})(?:\s+(?:also|finally|again|altogether|in\s+total))?(?![A-Za-z]),?\s*"
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
REFUSED = (
    REFUSING - words_of_text("given next as out were was when known show shows shown had recall current after")
) | words_of_text(
    """
    planned planning hoped hoping intend intends intended aim aims aimed different differs differ bounded
    valid supposed allegedly longer shorter taller wider older younger bigger smaller larger greater higher
    lower heavier
    lighter faster slower later wanting budget target goal forbidden unattainable prevents avoid avoids avoided denies
    refutes refute disproves neither forget ignore disregard placeholder bet bets unclear ambiguous
    undecided depends depending depend unproven conjecture conjectured rumoured said-to needn't assumption assumptions
    equation equations cases unknowns methods constraints conditions variables
    """
)
STOPS_BEHIND = words_of_text(
    """
    is are be do does did will short early percent too times squared cubed dozen hundred thousand million times
    and with per over against than then remaining unless nor into equations unknowns methods variables conditions
    constraints parts terms divides makes plus minus divided multiplied mod modulo choose short off beyond apart cases
    steps if further extra below above past ahead behind factorial ways-of works fits satisfies solves has have
    because since as each every apiece
    """
)
"""Words behind a value that make it more, less, or something else."""
LABELS = words_of_text(
    """
    for after by with of in on at from to under within before than per until since over against among between step case
    lemma theorem equation equations problem question part figure page pages chapter exercise section line
    lines item the these
    those all other first last remaining another only each every both any out into onto during about around through
    without and or room row column day week year month grade level round times point no not a an my your his
    her its their our
    option number numbers player team group box bag door house car machine worker person train stage phase
    attempt try trial
    node vertex edge level index digit bit table example remark note hint rule method formula approach axiom corollary
    proposition claim property condition constraint case class type version model test problem's line's prime primes
    """
)
"""Words directly before a number that is not a value: prepositions, articles, and what is numbered."""
DENIED_VERBS = re.compile(
    r"(?:add|subtract|multipl|divid|tr[iy]|test|check|consider|choos|chose|pick|guess|substitut|plug|insert|start|begin|began|round|assum|suppos|propos|suggest|stat|mention|quot|ask|expect|want|call|label|denot|us(?:e|ing)|appl|integrat|differentiat|factor(?:s|ed|ing)?$|remov|eras|skip|reject|exclud|discard|eliminat|avoid|miss|lack|forbid|exceed|surpass|bound|divides|need(?:ed)?$|includ|contradict|set|let|put|look|compar|replac|cancel|square[sd]?|doubl|tripl|halv|approximat|estimat|predict|claim|sa(?:y|id|ys)|thinks?|thought|believ|hop|plan|intend|aim|offer|promis|target|limit|restrict|refus|den(?:y|ied|ies)|fail|resembl|approach|tend|converg|precede|follow|satisf|depend|involv|treat|see|saw|writ|wrote|know|knew)",
    re.IGNORECASE,
)
"""Verbs of an operation, of an attempt, or of what others say: no result follows them."""
PLAIN_VERBS = words_of_text(
    """
    have has had get gets got need needs make makes made pay pays paid spend spent cost costs earn earned owe
    owes owed take takes took eat ate drink drank run
    ran drive drove drives sell sold buy bought grow grew go went fall fell win won lose lost give gave find
    found keep kept
    leave left hold held read reads ride rode write wrote fly flew swim swam travel cover walk weigh measure
    collect gain save
    receive remain remains be is are was were equals equal become becomes became contain score produce require
    bake fit own cost share
    lived solved baked live lives last lasts store comprise total totals sum holds yields yield reaches reach
    reached hits meets ends
    """
)
NUMBERED_NOUNS = words_of_text(
    """
    minus plus times versus primes terms steps cases parts pages lines items days weeks years months hours minutes
    seconds this thus
    """
)
RESULT_OF_US = words_of_text(
    """
    get got obtain obtained find found need needs pay paid spend spent reach reached conclude deduce deduced
    derive derived compute computed
    calculate calculated save saved earn earned count counted owe own owned sold bought buy ate baked made make
    receive received left end collected
    """
)
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
TIME_UNITS = words_of_text("s min h day week month year")
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
MONTHS = re.compile(r"jan(?:uary)?|feb|march|april|may|june|july|aug|sept|oct|nov|dec", re.IGNORECASE)
HARMLESS_INSIDE = re.compile(
    r"(?<=the\s)last(?=\s(?:digits?|day|two|three)\s)|(?<=(?:est|ast|mum)\s)possible(?=\s)|\bafter\s+(?:trying|checking|testing|considering)\s+(?:all|every|each|both)\b|['’]s\s+(?:first|second|third)\s+(?:law|theorem|rule|principle|derivative)|\s(?:at|for|of|with)\s+[^\s,]+\s(?:\w+\s)?each(?=\s)|^after\s(?=\w)|\bif\s+and\s+only\s+if\b"
    r"|\bbetween\s+\S+(?:\s[a-z]+){0,2}?\s+and\s+\S+(?:\s[a-z]+){0,2}?(?=\s(?:is|are|lies|equals)\s)|\b(?:double|half)[\s-](?:angle|life)|(?<=the\s)equation(?=\s\x00)|\bcan\sbe\s[a-z]+(?=\sin\s)|^just\s+(?:before|after)(?=\s)"
    r"|\b(?:exactly|precisely)\s+(?:when|if|where)\b",
    re.IGNORECASE,
)
"""Words that mean something harmless in these places."""
IN_REASONS = words_of_text(
    """
    half twice double triple theorem another other others each every all some any several few many between or as either
    since because previous
    """
)
"""Words that a reason before a colon may have."""
LISTED_NOUNS = words_of_text("numbers primes prime values roots solutions digits factors divisors points sides")
PAST = words_of_text("was were had")
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
