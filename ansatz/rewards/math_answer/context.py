"""The words around an answer in a box or a tag, which can still say that it is not one.

"not \\boxed{8}", "\\boxed{7} or \\boxed{8}", "\\boxed{8} is wrong" and "\\boxed{8}. Wait, no." do not state 8. Only the
words directly around the mark and the sentences after it are read, so the steps before it can say what they like.
Every scan is linear in the length of the text.
"""

from __future__ import annotations

import re

from ansatz.rewards.math_answer import languages
from ansatz.rewards.math_answer.words import unit_name, word_set

MAX_LINK = 60  # characters between two marks that can belong together
_NEAR = 70  # characters before a mark that can deny it
_FAR = 120  # characters after it
_SENTENCE_BEFORE = 300  # characters before it that its sentence can take
_SHORT_REST = 12  # characters after it that say nothing
_REMARKS = 8_000  # characters after it that can take it back

_LABEL = r"[A-Za-z](?:_\{?\w{1,3}\}?)?\s{0,3}="
_EITHER = rf"{languages.OR}|alternatively|otherwise|or\s+else|vs|versus|to|through|nor|noch|ni|né"
_LINK = re.compile(
    rf"(?:[\s,;:/|&$*.()~，、；。।،–—-]|\\[\[\](),;:! ]|\\q?quad|\\\\|\\(?:text|mathrm|textbf|mathbf|mbox)\s?\{{|\}}"
    rf"|\\(?:lor|vee|land|wedge)|(?<![A-Za-z\\])(?:{_EITHER}|of|{languages.AND}|either|also|as\s+well\s+as|maybe|perhaps"
    rf"|possibly|vielleicht|peut-être|quizás|forse|talvez|{_LABEL}))*",
    re.IGNORECASE,
)
_DOUBT = re.compile(r"\b(?:maybe|perhaps|possibly|vielleicht|peut-être|quizás|forse|talvez)\b", re.IGNORECASE)
_CHOICE = re.compile(rf"(?<![A-Za-z\\])(?:{_EITHER}|of)(?![A-Za-z])|\\lor|\\vee|/|\|", re.IGNORECASE)

_SPACED = str.maketrans(dict.fromkeys('$*_()[]{},;:.!?\\"`~&=\n', " "))
_DENIALS = word_set("denials")
"""Words that, directly before an answer, deny it, doubt it, or make it a bound."""
_ALTERING = word_set("altering_before")
_SUSPICIOUS = word_set("denials", "suspicious")
_GLUE = word_set("glue")
"""Words between a denial and the answer that it denies: "it is not true that the answer is"."""
_TOKEN = re.compile(r"\\[A-Za-z]+|[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[^\w\s]")
_WORD_LIKE = re.compile(r"[^\W\d_]{2,}(?:['’-][^\W\d_]+)*|[aAI]")
_ENDS = frozenset(",.;!?:") | frozenset(languages.CLAUSE_ENDS)
_NEVER_BEFORE = re.compile(
    r"(?:\brul(?:es?|ed|ing)\s+out|\b(?:different|distinct|differs?)\s+from|\bother\s+than"
    r"|\b(?:one|a|another|some)\s+(?:possible|plausible|potential)\s+\w+\s+\w+|\banything\s+but|\b(?:mistake|error|wrong|incorrect|false|tempting|impossible|misleading)\s+to\s+(?:\w+\s+){1,4}|\beither|\b(?:maybe|perhaps|possibly|probably)\s*,|\bat\s+(?:least|most))\W*$",
    re.IGNORECASE,
)
_FORMULA_BEFORE = re.compile(
    r"(?:(?P<spaced>[-+*/\d]\s{1,4})|[-+/^\d]\{?|\\(?:cdot|times|div|pm|mp|pi|sqrt|frac|dfrac|tfrac)\s?\{?"
    r"|(?:[<>≤≥≠]|\\(?:le|leq|ge|geq|ne|neq|lt|gt|not|leqslant|geqslant|ll|gg))=?[\s$*(\[{&~\\]*)$"
)
"""An operator or a relation directly before a mark. A dash or a number with a space can also belong to a sentence."""
_ITEM = r"(?:\$[^$\n]{1,60}\$|\\\((?:[^\\\n]|\\[a-z]){1,60}\\\)|(?<![\w.])[-+]?\d[\d.,/]*%?|(?<![\w\\])[A-J](?!\w))"
_VALUE_BEFORE = re.compile(
    rf"({_ITEM})\s*,?\s*(?:(?<!\w)(?:{_EITHER})(?:\s+(?:even|maybe|perhaps|possibly|also))?\s*(?:[$*(]|\\[(\[])*(?:{_LABEL})?"
    rf"|(?<!\w)(?:{languages.AND})\s*(?:[$*(]|\\[(\[])*)\s*$|(?:^|\bis|\bare|\bbe|:)\s*({_ITEM})\s*,\s*(?:[$*(]|\\[(\[])*$",
    re.IGNORECASE,
)
_JOINS = frozenset(f"{_EITHER}|{languages.AND}".split("|"))
_TAG = re.compile(r"<[/|]?[a-z_]+\|?>[\s$*]*$")
_REFUSED = re.compile(languages.REFUSED, re.IGNORECASE)
_CLAUSE_END = re.compile(rf"[.!?;:,\n)](?=\s|$)|[{languages.CLAUSE_ENDS}]")

_NOTHING = re.compile(
    r"(?:[\s$*})\].!`\"]|\\[\]),;:! ]|\\?%|\\end\{[a-z]+\*?\}|\\blacksquare|</?answer>)*(?:$|<[|｜]|</s>)"
)
_OPENING_MARKS = " \n$*([{\\"
_CLOSING_MARKS = " \n$.*!)]}\\"
_CLOSED = re.compile(r"(?:[\s$*}`\"]|\\[\]),;:! ]|\\q?quad|~|\\?%)*")
_GOES_ON = re.compile(
    r"\s?(?:\\[,;:! ]\s?)*(?:[-+/*]\s?(?:\d|\\(?![)\]])|\()|[-+/][a-z](?![a-z])|\*[a-z](?![a-z])"
    r"|[\^_](?!\\circ|\{\s?\\circ|\\text|\{?\\?(?:text\{)?(?:th|st|nd|rd))"
    r"|\\(?:cdot|times|div|pm|mp|pi|sqrt|frac|le|leq|ge|geq|lt|gt|ne|neq|ll|gg)(?![A-Za-z])|[a-z](?=\s?(?:\$|\\\)|\\\])))"
)
_RELATION = re.compile(r"[<>≤≥≠]|\\(?:le|leq|ge|geq|lt|gt|ne|neq|ll|gg|not)(?![A-Za-z])")
_CONTRADICTED = re.compile(
    r"[\s,;.$)*}!]{0,8}(?:but|however|yet|although|though|whereas|while)\b,?[^.!?\n]{0,60}?\b(?:contradict\w*|disagree\w*|differ\w*|instead|otherwise"
    r"|(?:I|we)\s+(?:actually\s+|only\s+)?(?:find|found|get|got|obtain|obtained|compute|computed)"
    r"|(?:computation|calculation|result|work|answer)\s+(?:is|gives|shows|yields|says))\b",
    re.IGNORECASE,
)
"""The writer's own result against the one that a mark only reports."""
_EQUAL_TO = re.compile(r"=\s*([^$\n=]{1,200}?)(?=\s{0,9}(?:$|\$|\n|\\\)|\\\]|[,;.](?:\s|$)|\\\\|\\end|\}))")
_ALTERNATIVE = re.compile(
    rf"[,;(—–-]{{0,3}}\s*(?:\\(?:text|mathrm)\s?\{{\s*)?(?:(?<!\w)(?:{_EITHER})(?!\w)|(?:或者?|または|もしくは|또는|या)|/|\||\\lor|\\vee)[\s}},:]{{0,8}}"
    rf"(?:(?:maybe|perhaps|possibly|even|else|vielleicht|peut-être|quizás|forse|talvez)\s+)?(?:(?:is|was|could|should|might|would)\s+(?:it|that|this)\s+(?:be\s+)?|it\s+(?:is|was|could\s+be|might\s+be)\s+)?(?:[$*(\s]|\\[(\[]){{0,8}}(?:{_LABEL}\s*)?"
    r"([-+]?\s?[\d\\√](?:[^.;!?\n$]|\.(?=\d)){0,80}|[A-J](?!\w))",
    re.IGNORECASE,
)
_ADDED = re.compile(
    rf"\s*(?:[,;，、]|(?<!\w)(?:{languages.AND})(?!\w))\s*(?:and\s+)?(?:[$*(]|\\\()*([-+]?\d[\d./]*)(?:[$*)]|\\\))*\s*"
    rf"(?=$|[.;!?\n,。，、]|(?:{languages.AND}|{languages.OR}|are)(?!\w))",
    re.IGNORECASE,
)
_BOUND_AFTER = re.compile(
    r"(?:or\s+(?:more|less|fewer|greater|higher|lower|so|thereabouts|another|neither)|(?:more|less|fewer|greater)\s+than"
    r"|at\s+(?:most|least)|out\s+of|(?:minus|plus|squared|cubed|dozens?|hundreds?|thousands?|millions?|billions?)"
    r"|times\s+[\d$\\])(?!\w)",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"[,;(—–-]*\s*(?:since|because|as|for|given|after|when|by|so|hence|thus|and\s+hence)\b", re.IGNORECASE
)
_ASIDE = re.compile(r"[,(]?\s*(?:which|that|this|it|and\s+it|and\s+this)\b", re.IGNORECASE)
_DENIED_AFTER = re.compile(
    r"\b(?:not|cannot|never|neither|wrong|incorrect|false|mistake|mistaken|rejected|excluded|discarded|impossible|invalid"
    r"|extraneous|fails?|ruled\s+out|eliminated|unlikely|doubtful|maybe|perhaps|possibly|probably|might|could|may|guess"
    r"|unsure|too\s+(?:small|large|big|high|low|many|few)|one\s+of\s+the\s+possible|otherwise)\b|n['’]t\b"
    r"(?!\s+(?:\$|\\\(|\d|(?-i:[A-J])\b))|^\s*(?:is|was|serves\s+as|gives|only|as)\s+(?:\w+\s+){0,3}(?:bound|estimate|approximation|candidate|guess|counterexample)\b"
    r"|^\s*(?:bounds|(?:over|under)(?:estimat|shoot|count|stat)\w*)\b|\bno\s+(?:\w+\s+)?(?:root|solution|answer|option|zero)\b|\bdoes\s+not\b",
    re.IGNORECASE,
)
_CONTRAST = re.compile(
    r"\b(?:not|rather\s+than|instead\s+of|never|unlike)\s+(?:\$|\\\(|\\boxed|[-\d]|(?-i:[A-J])\b)", re.IGNORECASE
)
_NOT_THAT_ONE = re.compile(
    r"\s*,\s*(?:(?:and|et|und|y|e|en|i|и|ve)\s+)?(?:not|nicht|non\s+pas|pas|no|non|não|niet|nie|не)\s+"
    r"(?:[$*]*\\?\(?-?\d[^\s,;]*?(?:\s[a-z]{1,12})?|(?P<word>(?!(?:sure|certain|possible|allowed|verified|checked|prove[nd]|exact|final|yet|really|necessarily|correct|right|true"
    r"|valid|the|an?|it|this|that|so|if|for|in|to|at|by|all|any|quite|only)\b)[a-z]{3,20}))[$*)]*(?:[.!,;]|\\\)|\s*$)",
    re.IGNORECASE,
)
"""Another value that is denied after a comma: "\\boxed{12}, not 24". A word only counts against a word."""
_NEVER_IN_SENTENCE = re.compile(
    r"\b(?:by\s+no\s+means|in\s+no\s+(?:way|case)|under\s+no\s+circumstances?|on\s+no\s+account|at\s+no\s+(?:point|time)|no\s+way)\b",
    re.IGNORECASE,
)
_BY_CASES = re.compile(
    r"\b(?:if|when|unless)\b[^.!?]*\\f?boxed[^.!?]*\b(?:if|when|unless|otherwise|else)\b[^.!?]*$", re.IGNORECASE
)
"""Another box on another condition: "If the order matters, \\boxed{20}; if not, \\boxed{10}"."""
_DENIED_THAT = re.compile(
    r"(?<!not )(?<!n't )(?<!never )(?:(?:\b(?:not|never|hardly)|n['’]t)\s+(?:\w+\s+){0,2}?"
    r"(?:true|correct|right|case|so|possible|valid)"
    r"|\b(?:false|untrue|incorrect|wrong|impossible|absurd|unlikely|doubt(?:s|ed|ful)?|contrary\s+to"
    r"|an?\s+(?:\w+\s+)?(?:myth|mistake|fallacy|misconception|error|lie)"
    r"|(?:refut|disprov|disput)(?:e[sd]?|ing)|reject(?:s|ed|ing)?|deny|denies|denied|denying))\s+"
    r"(?:(?:the|an?|any|this|our|his|her|their)\s+(?:\w+\s+){0,2}?)?"
    r"(?:(?:claim|statement|hypothesis|idea|assertion|assumption|guess|belief|conjecture|suggestion|notion|answer)\s+)?"
    r"that\b(?:[^.,;:!?]|\.(?=\d))*$",
    re.IGNORECASE,
)
"""What denies a clause with "that" up to the mark: "It is false that the order is \\boxed{12}"."""
_NOTHING_ELSE = re.compile(
    r"(?:\b(?:better|worse)\s+than|\banything\s+(?:other\s+than|but|else\s+than|different\s+from|except)|\b(?:nothing|none|no)\s+(?:other\s+than|but|else\s+than))[\s$*(\\]*$",
    re.IGNORECASE,
)
_IMPOSSIBLE = re.compile(r"\b(?:not|cannot|never|impossible|nothing|none|no)\b|n['’]t\b", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\s*(?:let\s+us\s+|let['’]s\s+|we\s+|now\s+|first\s+|,)*(?:assum|suppos|imagin|pretend)", re.IGNORECASE
)
_OTHERS = re.compile(
    r"\s*(?:who(?:so)?ever|any(?:one|body)\s+who|those\s+who|(?:many|most|some)\s+(?:people|students|solvers|readers|would)"
    r"|a\s+common\s+(?:mistake|error|wrong))\b",
    re.IGNORECASE,
)
_REFUTED = re.compile(r"\b(?:absurd|contradict\w*|impossible|cannot|can['’]t|nonsense|false)\b", re.IGNORECASE)
_MISCOUNTED = re.compile(
    r"[^.!?\n]{0,60}?[,;—–-]\s*(?:but|however|yet|though|although|except\s+that)\b[^.!?\n]{0,160}?\b(?:mistak\w*|twice|wrong\w*|forg[eo]t\w*|overlook\w*|overcount\w*|miscount\w*|dropped|missed|missing"
    r"|omitted|error|slip|subtract|(?:so|hence|thus|therefore|making|leaving)\s[^.!?\n]{0,60}?\d)",
    re.IGNORECASE,
)
_NOT_IT = re.compile(
    r"\b(?:wrong|incorrect|false|mistake|mistaken|rejected|excluded|discarded|impossible|invalid|extraneous|ruled\s+out)\b"
    r"|(?:\bnot|n['’]t|\bcannot|\bnever)\s+(?:\w+\s+){0,3}(?:answer|correct|right|valid|possible|true|solution|allowed)\b",
    re.IGNORECASE,
)
_IT = (
    r"(?:this|that|it|which|above|box|boxed(?:\s+(?:answer|value))?|answer|result|value|solution|number|"
    r"(?P<value>[-+]?[\d./]{0,20}\d)\$?)"
)
_TAKEN_BACK = re.compile(
    rf"(?:^|[.!?;:…\n,(—–-]|[{languages.CLAUSE_ENDS}])[\s$*)_\"'¿¡]{{0,6}}(?:(?:but|oh|hm+|ah|so)[,\s]{{1,3}}){{0,2}}"
    r"(?:(?:wait|nope|actually(?!,?\s+(?:we|I|you|one|this|it)\s+(?:could|can)\s+(?:also\s+|even\s+|have\s+)?(?:also\s+)?(?:be\s+)?(?:seen|see|recogni[sz]\w+|notice\w*|used?|solved?|done|do|found|shown|show|skipped|avoided|applied|apply|written|proved?n?|derived?|simplif\w+)\b(?!\s+(?:to\s+be\s+)?[-$\\\d]))|hmm+|sorry|oops|correction|scratch\s+that|on\s+second\s+thoughts?|never\s?mind|nvm"
    r"|strike\s+that|hold\s+on|my\s+mistake|my\s+bad|(?:please\s+)?(?:ignore|disregard|forget)\s+(?:that|this|the|my|it)"
    rf"|no(?=\s*(?:$|[,.!;:—–-]|\d|\$|\\|that|this|it|wait|sorry)))\b|no$|{languages.RETRACTED})"
    rf"|(?<!\bif\s)\b{_IT}\s+(?:is|was|were|seems|looks|must\s+be|might\s+be|may\s+be|could\s+be)\s+(?:\w+\s+)?"
    r"(?:wrong|incorrect|false|mistaken|a\s+mistake|an\s+error|invalid|extraneous|impossible)\b"
    rf"|(?<!\bif\s)\b{_IT.replace('value>', 'denied>')}\s*"
    r"(?:(?:is|was|can|could|does|do|would)(?:\s+not|n['’]t|not)|cannot|can['’]t)\s+(?:be\s+)?(?:\w+\s+){0,2}"
    r"(?:right|correct|answer|work|valid|possible|true|solution)\b"
    r"|\bI\s+(?:have\s+)?(?:made\s+(?:a|an|some)|was\s+wrong|am\s+wrong|meant|mis\w+|take\s+(?:it|that)\s+back)\b"
    r"|\b(?:should|must|ought\s+to)\s+(?:actually\s+)?(?:be|have\s+been)\s+(?:[$\\(*]*\s?)[-+]?\d"
    r"|\b(?:could|might|may)\s+(?:also\s+)?be\s+(?:[$\\(*]*\s?)[-+]?\d|\bis\s+also\s+(?:possible|an?\s+(?:possible\s+)?answer)"
    r"|\b(?:not\s+(?:(?:so|at\s+all|really|entirely|fully|quite|totally|too)\s+)?(?:sure|certain|confident|convinced)|unsure"
    r"|uncertain|unconvinced|(?:do\s+not|don['’]t)\s+(?:know|think\s+so|believe\s+(?:it|that|so)\b(?!\s+\w))|no\s+idea"
    r"|(?<!no )(?<!without )doubt\s+(?:it|that|this)|not\s+really(?=\s*[.!,;]|\s*$)"
    r"|just\s+(?:a\s+guess|guessing)|(?:a|my)\s+guess|I\s+guess(?:ed)?)\b"
    r"|\b(?:it|that|this)\s+(?:seems|looks|sounds|feels)\s+(?:\w+\s+)?(?:off|odd|strange|suspicious|fishy|too\s+\w+)\b"
    r"|\b(?:that|this|it)\s+can(?:not|['’]t|\s+not)\s+be(?=\s*[.!,;]|\s*$)",
    re.IGNORECASE,
)
_CONFIRMED = re.compile(
    r"(?:hmm+|wait|hold\s+on|actually)?[,.!…\s]{0,6}let\s+(?:me|us)\s+(?:just\s+)?(?:verify|check|re-?check|double-?\s?check|confirm|test)"
    r"\b[^?]{0,200}?(?:(?:yes|ok|okay|good|great)[,!.\s]+(?:(?:that|this|it)(?:['’]s|\s+is)\s+)?(?:correct|right)"
    r"|(?:it|that|this|which)\s+(?:all\s+)?(?:checks\s+out|works|matches|holds|is\s+(?:correct|right|consistent)))\s*[.!]?\s*$",
    re.IGNORECASE,
)
"""A check of an answer that confirms it at the end of the text."""
_OTHER_RESULT = re.compile(
    r"\b(?:not|no|wrong|incorrect|instead|should|answer|mistake|error|but|doesn['’]t|isn['’]t)\b|\b(?:is|be|it['’]s|get|gives|find)\s+[-$\\\d]|[.,]\s+[-$]?\d+\$?\s*[.,]",
    re.IGNORECASE,
)
_SENTENCE = re.compile(rf"[.!?\n{languages.CLAUSE_ENDS}]|$")
_TELLING = languages.ASCII_RETRACTIONS | word_set("telling")
"""Every retraction in plain letters contains one of these words: a fast check for an ASCII text."""
_WRONG = re.compile(languages.WRONG, re.IGNORECASE)
_OTHER_NAME = re.compile(rf",?\s*(?<!\w)(?:{languages.OR})\s+[^\W\d_]{{2,}}", re.IGNORECASE)
_UNIT = re.compile(
    r"(?:[\s$~]|\\[,;:! )\]])*(?:\\(?:text|mathrm|mbox|textrm)\s?\{\s*)?"
    r"((?:(?:square|cubic)\s)?[A-Za-z]{2,12}(?:\sper\s[A-Za-z]{1,12})?)\s?\}?(?:\^?\{?([23²³])\}?)?"
    r"(?=[\s$.,;!?)*\]}]|\\[)\],;]|$)(?!\s?(?:per|/|\*|of|squared|cubed|and|[A-Za-z]+\s?/))"
)
_RAISED = str.maketrans("²³", "23")
_NO_UNITS = frozenset({"%", "deg", "th", "unit", "in"})


def refused(clause: str) -> bool:
    """Whether a clause denies, doubts or bounds something in a language other than English."""
    if clause.isascii() and languages.ASCII_WORDS.isdisjoint(clause.lower().translate(_SPACED).split()):
        return False
    return _REFUSED.search(clause) is not None


def separator(gap: str) -> str | None:
    """What joins two marked answers into a list: " or ", ", ", or None if more than that stands between them."""
    if len(gap) > MAX_LINK or not _LINK.fullmatch(gap) or _DOUBT.search(gap):
        return None
    return " or " if _CHOICE.search(gap) else ", "


def read_before(text: str, start: int) -> tuple[bool, tuple[str, str] | None]:
    """Reads the words directly before a mark.

    First: whether they deny it, doubt it, bound it, or make it part of a formula. Second: a value without a mark that
    they list with it, and its separator, as in "7 or \\boxed{8}".
    """
    window = text[max(0, start - _NEAR) : start]
    words = window.lower().translate(_SPACED).split()
    last, plain = words[-3:], window.isascii()
    formula = _FORMULA_BEFORE.search(window[-14:])
    if formula and (formula["spaced"] is None or _in_formula(window)) and not _TAG.search(window):
        return True, None
    listed = None
    if not plain or not _JOINS.isdisjoint(last) or "," in window[-6:]:
        match = _VALUE_BEFORE.search(window)
        value = match and (match[1] or match[2])
        if match and value:
            listed = value, " or " if _CHOICE.search(window, match.start() + len(value)) else ", "
    if not plain or not languages.ASCII_WORDS.isdisjoint(words):
        *_, clause = _CLAUSE_END.split(window.rstrip(_OPENING_MARKS + ",，、،"))
        if _REFUSED.search(clause):
            return True, None
    if plain and _SUSPICIOUS.isdisjoint(words) and _ALTERING.isdisjoint(last):
        return False, listed
    return _denied_by_words(window) or _NEVER_BEFORE.search(window) is not None, listed


def affirmed_or_denied(text: str, start: int, end: int) -> bool | None:
    """Whether the sentence of a mark says that nothing else is possible (True) or denies the mark (False)."""
    line = text[max(0, start - _SENTENCE_BEFORE) : start]
    sentence = line[max(line.rfind(". "), line.rfind("\n"), line.rfind("! ")) + 1 :]
    near = sentence[-40:]
    if (
        ("than" in near or "any" in near or "but" in near)
        and _NOTHING_ELSE.search(near)
        and _IMPOSSIBLE.search(sentence)
    ):
        return True
    if _OTHERS.match(sentence):
        return False
    low = sentence.lower()
    if " no " in low and _NEVER_IN_SENTENCE.search(sentence):
        return False
    if " that " in low and _DENIED_THAT.search(sentence):
        return False
    if "boxed" in low and _BY_CASES.search(sentence):
        return False
    if len(text) - end > _SHORT_REST:
        if ("ssum" in low or "uppos" in low or "magin" in low) and _SUPPOSED.match(sentence):
            return False if _REFUTED.search(text, end, end + _REMARKS) else None
        if _MISCOUNTED.match(text, end):
            return False
    return None


def _denied_by_words(window: str) -> bool:
    """Walks back from a mark over words such as "the answer is" to the word that governs them."""
    glued: set[str] = set()
    in_label = False
    for token in reversed(_TOKEN.findall(window.replace("’", "'"))):
        if not _WORD_LIKE.fullmatch(token):
            if token in _ENDS:
                return False
            in_label = in_label or token == "="
            if not in_label and token.isdigit():
                return False
            continue
        word = token.lower()
        if word in _ALTERING:
            return glued <= {"of", "the", "a", "to"}
        if word in _DENIALS:
            return True
        if word not in _GLUE:
            return False
        glued.add(word)
    return False


def _in_formula(window: str) -> bool:
    """Whether the end of a window is inside dollars or math brackets."""
    line = window.rpartition("\n")[2]
    return line.count("$") % 2 == 1 or any(
        window.rfind(left) > window.rfind(right) for left, right in (("\\(", "\\)"), ("\\[", "\\]"))
    )


def nothing_follows(text: str, end: int) -> bool:
    """Whether only closing marks and punctuation follow."""
    return not text[end:].strip(_CLOSING_MARKS) or _NOTHING.match(text, end) is not None


def listed_after(text: str, end: int) -> tuple[str, str] | None:
    """A value that is listed directly after a mark or set equal to it, and its separator: "\\boxed{7} or 8"."""
    place = _end(_CLOSED, text, end)
    equal = _EQUAL_TO.match(text, place)
    if equal:
        return equal[1], " = "
    alternative = _ALTERNATIVE.match(text, place)
    if alternative:
        return alternative[1], " or "
    added = _ADDED.match(text, place)
    return (added[1], ", ") if added else None


def named_after(text: str, end: int) -> bool:
    """Whether another name is offered after a mark whose content is a name: "\\boxed{Leo} or Mia"."""
    return _OTHER_NAME.match(text, _end(_CLOSED, text, end)) is not None


def unit_behind(text: str, end: int) -> str:
    """The unit of measurement that directly follows a mark, as text for the parser; "" if there is none."""
    match = _UNIT.match(text, end)
    if match is None or not all(_is_measure(word) for word in match[1].split()):
        return ""
    power = (match[2] or "").translate(_RAISED)
    return f"\\text{{ {match[1]}}}" + (f"^{power}" if power else "")


def _is_measure(word: str) -> bool:
    name = unit_name(word)
    return word in ("square", "cubic", "per") or (
        name is not None and not name.startswith("#") and name not in _NO_UNITS
    )


def denied_after(text: str, end: int) -> bool:
    """Whether the words directly after a mark deny it, doubt it, bound it, or make it part of a formula."""
    if _GOES_ON.match(text, end):
        return True
    place = _end(_CLOSED, text, end)
    if text.startswith(("?", "？", "؟"), place) or _RELATION.match(text, place) or _BOUND_AFTER.match(text, place):
        return True
    near = text[place : place + _FAR]
    if _CONTRADICTED.match(near):
        return True
    opening = len(near) - len(near.lstrip(" ,;(—–-"))
    if near[:1] in ".!\n。":
        return False
    ending = _CLAUSE_END.search(near, opening)
    clause = near[: ending.start()] if ending else near
    if _REASON.match(clause):
        return False
    other = _NOT_THAT_ONE.match(near) if clause[:1] in ", " else None
    if other and (other["word"] is None or not text[:end].rstrip("}$ ")[-1:].isdigit()):
        return False
    if refused(clause):
        return True
    if _CONTRAST.search(clause):
        clause = clause[: _CONTRAST.search(clause).start()]  # pyright: ignore[reportOptionalMemberAccess]
    return bool((_NOT_IT if _ASIDE.match(clause) else _DENIED_AFTER).search(clause))


def past_contrast(text: str, end: int) -> int:
    """Where the denial of another value directly after a mark ends, as in "\\boxed{12}, no 24"; `end` without one."""
    place = _end(_CLOSED, text, end)
    other = _NOT_THAT_ONE.match(text, place) if text.startswith(",", place) else None
    return other.end() if other and other["word"] is None else end


def taken_back(text: str, end: int, answer: str) -> int | None:
    """How far after a mark the last retraction or doubt ends; None if there is none. "7 is wrong" denies only 7."""
    last: int | None = None
    text = _CONFIRMED.sub(_blank, text[end : end + _REMARKS])
    start = 0
    for match in _SENTENCE.finditer(text):
        stop = match.end()
        sentence = text[start:stop].lower()
        if not sentence.isascii() or not _TELLING.isdisjoint(sentence.translate(_SPACED).split()):
            found = _retraction(text, max(0, start - 1), stop, answer)
            last = found if found is not None else last
        start = stop
    return last


def _blank(match: re.Match[str]) -> str:
    return match[0] if _OTHER_RESULT.search(match[0]) else " " * len(match[0])


def _retraction(text: str, start: int, stop: int, answer: str) -> int | None:
    last: int | None = None
    for match in _TAKEN_BACK.finditer(text, start, stop):
        value = match["value"] or match["denied"]
        if value is None or value == answer:
            last = match.end()
    for match in _WRONG.finditer(text, start, stop):
        last = max(last or 0, match.end())
    return last


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start
