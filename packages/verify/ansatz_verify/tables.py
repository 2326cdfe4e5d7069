"""The words and the notation that the verifier knows, as tables. Spaces separate words; bars separate phrases."""

from __future__ import annotations

from typing import Any

# fmt: off

WORDS: dict[str, Any] = {
    # A unit, and its other spellings.
    "units": {
        "m": "meter meters metre metres", "cm": "centimeter centimeters centimetre centimetres cms",
        "mm": "millimeter millimeters millimetre millimetres", "km": "kilometer kilometers kilometre kilometres kms",
        "in": "inch inches", "ft": "foot feet", "yd": "yard yards", "mi": "mile miles", "g": "gram grams gm gms",
        "kg": "kilogram kilograms kgs kilo kilos", "mg": "milligram milligrams", "lb": "pound pounds lbs",
        "oz": "ounce ounces", "ton": "tons tonne tonnes", "s": "second seconds sec secs",
        "min": "minute minutes mins", "h": "hour hours hr hrs", "day": "days", "week": "weeks wk wks",
        "month": "months", "year": "years yr yrs", "ms": "millisecond milliseconds",
        "L": "l liter liters litre litres", "mL": "ml milliliter milliliters millilitre millilitres",
        "gal": "gallon gallons", "cup": "cups", "pt": "pint pints", "qt": "quart quarts",
        "tbsp": "tablespoon tablespoons", "tsp": "teaspoon teaspoons", "acre": "acres", "hectare": "hectares ha",
        "dollar": "dollars usd bucks buck", "cent": "cents", "euro": "euros eur", "gbp": "sterling", "yen": "jpy",
        "rupee": "rupees inr rs", "yuan": "rmb cny", "deg": "degree degrees", "rad": "radian radians",
        "%": "percent percents percentage pct", "N": "newton newtons", "J": "joule joules", "W": "watt watts",
        "V": "volt volts", "A": "amp amps ampere amperes", "Hz": "hertz", "Pa": "pascal pascals", "ohm": "ohms",
        "byte": "bytes", "bit": "bits", "th": "st nd rd", "C": "celsius", "F": "fahrenheit", "mph": "", "kph": "",
        "kmh": "", "unit": "units u.",
    },
    # A unit, and its base units with their powers and how many of them it is, exactly.
    "conversions": {
        "cm": "m 1/100", "mm": "m 1/1000", "km": "m 1000", "in": "m 254/10000", "ft": "m 3048/10000",
        "yd": "m 9144/10000", "mi": "m 1609344/1000", "g": "kg 1/1000", "mg": "kg 1/1000000", "ton": "kg 1000",
        "lb": "kg 45359237/100000000", "oz": "kg 45359237/1600000000", "min": "s 60", "h": "s 3600", "day": "s 86400",
        "week": "s 604800", "ms": "s 1/1000", "L": "m3 1/1000", "mL": "m3 1/1000000", "N": "kg m s-2 1",
        "J": "kg m2 s-2 1", "W": "kg m2 s-3 1", "Pa": "kg m-1 s-2 1", "Hz": "s-1 1", "cent": "dollar 1/100",
        "month": "year 1/12", "qt": "gal 1/4", "pt": "gal 1/8", "cup": "gal 1/16", "tbsp": "tsp 3",
        "hectare": "m2 10000", "acre": "m2 40468564224/10000000",
    },
    # Counted things of up to four letters; longer words in small letters are counted things by themselves.
    "nouns": (
        "way ways boy boys girl ball card book page car cars dog dogs cat cats time pair pairs set sets side edge face "
        "line root term word game team vote test step tile box bag egg eggs cake cube pen pens trip turn move job jobs "
        "item lap laps cow cows pig pigs bird fish tree coin day days"
    ),
    # Zero to nineteen.
    "small_numbers": (
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen"
    ),
    # Twenty to ninety.
    "tens": "twenty thirty forty fifty sixty seventy eighty ninety",
    # The parts of a whole, from a half to a tenth.
    "fractions": "half third quarter/fourth fifth sixth seventh eighth ninth tenth",
    # Leave open which value is meant.
    "hedges": "or not either neither maybe perhaps wrong incorrect probably possibly isn't likely but",
    # Change the value of a number next to them, as in "24 squared".
    "altering": (
        "minus plus times squared cubed half third thirds quarter double twice triple thrice dozen dozens hundred "
        "thousand million billion trillion millions billions factorial root negative over divided multiplied less "
        "fewer modulo mod power reciprocal below choose recurring repeating tausend millionen mil millones mille "
        "тысяча тысяч тысячи миллион миллиона миллионов раз fois veces mal"
    ),
    # Deny.
    "negations": (
        "no none never nor nothing without except unless false cannot can't isn't aren't nobody 不 非 错 无 没"
    ),
    # Other words of the grammar between values.
    "connectives": (
        "and is are if for all where to the of than by when with which that so no a an be in on at from any some "
        "then else we it this there has have only answer because since therefore true false yes unless except "
        "otherwise"
    ),
    # Behind "for" or "where", say for what a value holds, or what a name in it is.
    "conditions": (
        "all any each every some real positive nonnegative natural rational complex arbitrary integer integers "
        "number numbers constant constants is are a an"
    ),
    # Name the empty set.
    "empty": (
        "empty set | no real roots | no real solution | no real solutions | no roots | no solution | no solution "
        "exists | no solutions | no solutions exist | no such number exists | no such numbers exist | no value | "
        "no values | none | null set | the empty set | there are no solutions | there is no solution | there are "
        "no real solutions | there is no real solution | there are no real roots | no real number | no real "
        "numbers"
    ),
    # Say that there is no value.
    "undefined": "d.n.e | dne | does not exist | doesn't exist | not defined | undefined",
    # Say that there are infinitely many.
    "infinite": (
        "infinite | infinite number of solutions | infinite solutions | infinitely many | infinitely many "
        "solutions"
    ),
    # Name the real numbers.
    "reals": (
        "all real | all real numbers | all reals | any real number | real numbers | the real numbers"
    ),
}

NOTATION: dict[str, Any] = {
    # A character, and what it is read as.
    "characters": {
        "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": "\\times ", "·": "\\cdot ", "⋅": "\\cdot ",
        "∙": "\\cdot ", "÷": "\\div ", "∕": "/", "⁄": "/", "π": "\\pi ", "∞": "\\infty ", "√": "\\sqrt ",
        "∛": "\\sqrt[3]", "°": "^\\circ ", "º": "^\\circ ", "≤": "\\le ", "≥": "\\ge ", "⩽": "\\le ", "⩾": "\\ge ",
        "≠": "\\ne ", "≈": "\\approx ", "∩": "\\cap ", "∈": "\\in ", "∅": "\\emptyset ", "±": "\\pm ", "∓": "\\mp ",
        "ℝ": "\\mathbb{R}", "≡": "\\equiv ", "∪": "\\cup ", "⟨": "\\langle ", "⟩": "\\rangle ", "′": "'", "’": "'",
        "‘": "'", "“": "\"", "”": "\"", "、": ", ", "且": " and ", "和": " and ", "与": " and ", "及": " and ",
        "或": "\\text{ or }", "。": ".", "،": ", ", "٫": ".", "٪": "%", "।": ".", "θ": "\\theta ", "α": "\\alpha ",
        "β": "\\beta ", "γ": "\\gamma ", "φ": "\\phi ", "ϕ": "\\phi ", "λ": "\\lambda ", "μ": "\\mu ",
        "σ": "\\sigma ", "ω": "\\omega ", "Δ": "\\Delta ", "δ": "\\delta ", "ε": "\\epsilon ", "ℤ": "\\mathbb{Z}",
        "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}", "∑": "\\sum ", "∏": "\\prod ", "∫": "\\int ",
        "∂": "\\partial ", "→": "\\to ", "⇒": "\\Rightarrow ", "⊂": "\\subset ", "⊆": "\\subseteq ", "∉": "\\notin ",
        "∠": "\\angle ", "∡": "\\angle ", "△": "\\triangle ", "▵": "\\triangle ", "⌊": "\\lfloor ", "⌋": "\\rfloor ",
        "⌈": "\\lceil ", "⌉": "\\rceil ", "∨": "\\text{ or }", "″": "''", "ℏ": "\\hbar ", "ℓ": "\\ell ",
        "ζ": "\\zeta ", "η": "\\eta ", "ι": "\\iota ", "κ": "\\kappa ", "ν": "\\nu ", "ξ": "\\xi ", "ρ": "\\rho ",
        "τ": "\\tau ", "υ": "\\upsilon ", "χ": "\\chi ", "ψ": "\\psi ", "ϑ": "\\theta ", "ϵ": "\\epsilon ",
        "ς": "\\sigma ", "Γ": "\\Gamma ", "Θ": "\\Theta ", "Λ": "\\Lambda ", "Ξ": "\\Xi ", "Π": "\\Pi ",
        "Σ": "\\Sigma ", "Υ": "\\Upsilon ", "Φ": "\\Phi ", "Ψ": "\\Psi ", "∆": "\\Delta ", "µ": "\\mu ",
        "Ω": "\\Omega ", "℃": "^\\circ\\text{C}", "℉": "^\\circ\\text{F}", "…": "\\ldots ", "⋯": "\\ldots ", "∶": ":",
        "∖": "\\setminus ", "¢": "\\text{ cents}", "∧": "\\text{ and }", "\u00a0": " ", "\u2009": "\\,",
        "\u202f": "\\,", "\u2002": " ", "\u2003": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ",
    },
    # Characters that also exist in a wide form.
    "wide": ",;:()[]{}=<>+-/%!0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    # Numerator and denominator.
    "vulgar_fractions": {
        "½": "1 2", "⅓": "1 3", "⅔": "2 3", "¼": "1 4", "¾": "3 4", "⅕": "1 5", "⅖": "2 5", "⅗": "3 5", "⅘": "4 5",
        "⅙": "1 6", "⅚": "5 6", "⅛": "1 8", "⅜": "3 8", "⅝": "5 8", "⅞": "7 8", "⅐": "1 7", "⅑": "1 9", "⅒": "1 10",
    },
    # Raised characters.
    "superscripts": {
        "⁰": "0", "¹": "1", "²": "2", "³": "3", "⁴": "4", "⁵": "5", "⁶": "6", "⁷": "7", "⁸": "8", "⁹": "9", "⁺": "+",
        "⁻": "-", "⁽": "(", "⁾": ")", "ⁿ": "n", "ⁱ": "i", "ᵏ": "k", "ᵐ": "m", "ᵗ": "t", "ˣ": "x", "ʸ": "y",
    },
    # Lowered characters.
    "subscripts": {
        "₀": "0", "₁": "1", "₂": "2", "₃": "3", "₄": "4", "₅": "5", "₆": "6", "₇": "7", "₈": "8", "₉": "9", "₊": "+",
        "₋": "-", "ₙ": "n", "ᵢ": "i", "ⱼ": "j", "ₖ": "k", "ₘ": "m", "ₜ": "t", "ₓ": "x",
    },
    # A command, and the operator that it is.
    "operators": {
        "cdot": "*", "times": "*", "ast": "*", "div": "/", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=",
        "geq": ">=", "geqslant": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "~", "simeq": "~",
        "sim": "~", "in": "in", "cup": "cup", "cap": "cap", "setminus": "minus", "backslash": "minus", "pm": "pm",
        "mp": "mp", "to": "to", "colon": ":", "vert": "|", "mid": "|", "lvert": "|", "rvert": "|", "prime": "'",
        "circ": "circ", "degree": "deg", "percent": "%", "equiv": "equiv", "implies": "implies",
        "Rightarrow": "implies", "ldots": "dots", "dots": "dots", "cdots": "dots", "wedge": "and", "land": "and",
        "lor": "or", "vee": "or", "bigcup": "cup", "forall": "forall",
    },
    # Commands that open a bracket.
    "openers": {
        "lbrace": "\\{", "langle": "langle", "lfloor": "lfloor", "lceil": "lceil", "lbrack": "[",
    },
    # Commands that close a bracket.
    "closers": {
        "rbrace": "\\}", "rangle": "rangle", "rfloor": "rfloor", "rceil": "rceil", "rbrack": "]",
    },
    # Commands that are names.
    "symbols": {
        "infty": "inf", "pi": "pi", "imath": "i", "jmath": "j", "reals": "reals", "R": "reals", "varnothing": "empty",
        "emptyset": "empty", "exponentialE": "e", "imaginaryI": "i",
    },
    # Words outside \text{} that are names.
    "plain_names": {
        "pi": "pi", "inf": "inf", "Inf": "inf", "infty": "inf", "infinity": "inf", "Infinity": "inf", "oo": "inf",
        "nan": "nan", "NaN": "nan", "NAN": "nan", "emptyset": "empty",
    },
    # Two characters that are one operator.
    "pairs": {
        "**": "^", "<=": "<=", ">=": ">=", "!=": "!=", "==": "=", "=<": "<=", "=>": "implies", "->": "to",
    },
    # Commands whose group is text.
    "text_commands": (
        "text textbf textit textrm textsf texttt textnormal textsc mathrm mathbf mathsf mathit mathtt "
        "operatorname mbox hbox emph bold bm boldsymbol mathcal mathbb mathfrak mathscr underline"
    ),
    # Commands that take room only, and the sign of an angle before its name.
    "ignored": (
        "angle measuredangle quad qquad hspace hfill hskip thinspace medspace thickspace enspace color nonumber break"
    ),
    # Commands with arguments.
    "commands": (
        "frac sqrt binom overline bar hat vec tilde dot widehat sum prod int overrightarrow triangle "
        "ddot"
    ),
    # Functions of their own name.
    "functions": (
        "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth arcsinh arccosh arctanh ln log "
        "lg exp sqrt abs floor ceil max min gcd lcm det arg sgn Re Im cis diag"
    ),
    # Other names of functions.
    "other_functions": {
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arsinh": "arcsinh", "arcosh": "arccosh",
        "artanh": "arctanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "tg": "tan", "ctg": "cot",
        "cosec": "csc", "arctg": "arctan", "sh": "sinh", "ch": "cosh", "ceiling": "ceil", "sign": "sgn",
    },
    # Greek letters.
    "greek": (
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma "
        "tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar"
    ),
    # Functions that a complex number can have as an argument.
    "of_a_number": (
        "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot arcsinh arccosh arctanh"
    ),
    # The names of functions in sympy and mpmath, where they differ.
    "in_sympy": {
        "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsinh": "asinh",
        "arccosh": "acosh", "arctanh": "atanh", "ln": "log", "abs": "Abs", "ceil": "ceiling", "sgn": "sign",
        "max": "Max", "min": "Min", "Re": "re", "Im": "im",
    },
    # What closes each opening bracket.
    "closed_by": {
        "(": [")", "]"], "[": ["]", ")"], "langle": ["rangle"], "lfloor": ["rfloor"], "lceil": ["rceil"],
        "\\{": ["\\}"], "{": ["}"],
    },
    # Commands that only change how something looks.
    "sizing": (
        "left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|normalsize|large"
        "|Large|mathstrut|strut|rm|bf|it|sf|tt|cal"
    ),
}

ANNOUNCEMENTS: dict[str, Any] = {
    # What announces an answer, and what takes it back, by language. A bar separates phrases. Case does not count.
    "cues": {
        "en": "answer: | answer is | answer is: | answer would be | answer = | answer equals | option is | choice is",
        "de": "antwort: | antwort ist | antwort lautet | endergebnis: | ergebnis: | ergebnis ist",
        "es": "respuesta: | respuesta es | respuesta final es | resultado: | resultado es",
        "fr": "réponse: | réponse : | réponse est | réponse finale est | résultat: | résultat est",
        "ja": "答えは | 答え: | 答え： | 答：| 解答: | 解答： | 正解は",
        "ru": "ответ: | ответ — | ответ - | ответ равен | итог:",
        "zh": "答案是 | 答案为 | 答案: | 答案： | 答案就是 | 答: | 答： | 选项是 | 选项为 | 选项 | "
        "故选 | 应选 | 选: | 选：",
    },
    # Before a cue or in its sentence: nothing is announced.
    "hedges": {
        "en": "not | n't | never | wrong | incorrect | maybe | perhaps | possibly | might be | could be "
        "| unless | if | guess | either | cannot",
        "de": "nicht | vielleicht | falsch | möglicherweise", "es": "no | quizás | tal vez | incorrecta | si",
        "fr": "pas | peut-être | fausse | incorrecte | si", "ja": "ではない | ではありません | かもしれ | 間違",
        "ru": "не | возможно | неверный | если", "zh": "不是 | 可能 | 也许 | 错误 | 不对",
    },
    # After these the sentence gives reasons.
    "reasons": ", which | , since | , because | because | since | , as | , so | , 因为",
    # Between a subject and its value.
    "copulas": (
        "is | are | was | were | equals | equal to | be | becomes | has | have | costs | measures | ist | sind | "
        "es | son | est | sont | равен | равна | 是 | 为 | は"
    ),
}
