"""The closed lists: units, currencies, count nouns, number words, functions, and phrases that are answers."""

from __future__ import annotations


def words_of_text(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNITS = """
m: meter meters metre metres | cm: centimeter centimeters centimetre centimetres cms | mm: millimeter millimeters
millimetre millimetres | km: kilometer kilometers kilometre kilometres kms | in: inch inches | ft: foot feet | yd:
yard yards | mi: mile miles | g: gram grams gm gms | kg: kilogram kilograms kgs kilo kilos | mg: milligram
milligrams | lb: pound pounds lbs | oz: ounce ounces | ton: tons tonne tonnes | s: second seconds sec secs | min:
minute minutes mins | h: hour hours hr hrs | day: days | week: weeks wk wks | month: months | year: years yr yrs |
ms: millisecond milliseconds | L: l liter liters litre litres | mL: ml milliliter milliliters millilitre millilitres
| gal: gallon gallons | cup: cups | pt: pint pints | qt: quart quarts | tbsp: tablespoon tablespoons | tsp:
teaspoon teaspoons | acre: acres | hectare: hectares ha | dollar: dollars usd bucks buck | cent: cents | euro:
euros eur | gbp: sterling | yen: jpy | rupee: rupees inr rs | yuan: rmb cny | deg: degree degrees | rad: radian
radians | %: percent percents percentage pct | N: newton newtons | J: joule joules | W: watt watts | V: volt volts
| A: amp amps ampere amperes | T: tesla teslas | Wb: weber webers | kHz: kilohertz | MHz: megahertz |
GHz: gigahertz | kPa: kilopascal kilopascals | MPa: megapascal megapascals | GPa: gigapascal gigapascals | keV: |
MeV: | GeV: | TeV: | kN: kilonewton kilonewtons | kV: kilovolt kilovolts | mV: millivolt millivolts | mA: milliamp
milliamps milliampere milliamperes | mW: milliwatt milliwatts | MW: megawatt megawatts | GW: gigawatt gigawatts |
MJ: megajoule megajoules | kcal: kilocalorie kilocalories | mmol: millimole millimoles | um: micrometer micrometers
micrometre micrometres micron microns | us: microsecond microseconds | ug: microgram micrograms | uF: microfarad
microfarads | uC: microcoulomb microcoulombs | uA: microamp microamps | uL: microliter microliters | ns: nanosecond
nanoseconds | nF: nanofarad nanofarads | pF: picofarad picofarads | kohm: kiloohm kiloohms kilohm kilohms | megaohm:
megaohms megohm megohms | coulomb: coulombs | farad: farads | henry: henries henrys | atm: atmosphere atmospheres |
torr: | mmHg: | dB: decibel decibels | amu: | angstrom: angstroms | MB: megabyte megabytes | TB: terabyte terabytes |
kB: KB kilobyte kilobytes | Hz: hertz | Pa: pascal pascals | K: kelvin kelvins | kJ: kilojoule kilojoules | kW:
kilowatt kilowatts | kWh: kilowatthour | mol: mole moles | ohm: ohms | cal: calorie calories | byte: bytes | bit:
bits | decade: decades | century: centuries | th: st nd rd | C: celsius | F: fahrenheit | mph: | kph: | kmh: | eV:
| nm: nanometer nanometers | erg: ergs | AU: | pc: parsec parsecs | rpm: | GB: | unit: units u.
"""
_SINGLE_LETTER_UNITS = frozenset("mgshLNJWVAKCFlT")
_COUNTED = """
way ways person people student students man men woman women boy boys girl girls child children adult adults apple
apples orange oranges ball balls marble marbles coin coins card cards book books page pages car cars dog dogs cat
cats time times number numbers integer integers digit digits pair pairs triple triples set sets subset subsets
element elements member members point points side sides edge edges vertex vertices face faces triangle triangles
square squares circle circles rectangle rectangles line lines diagonal diagonals angle angles region regions
solution solutions root roots value values term terms factor factors divisor divisors multiple multiples prime
primes outcome outcomes combination combinations permutation permutations arrangement arrangements sequence
sequences function functions polynomial polynomials path paths word words letter letters color colors colour
colours game games team teams player players match matches vote votes ticket tickets question questions problem
problems test tests step steps tile tiles box boxes bag bags bottle bottles chair chairs table tables seat seats
row rows column columns house houses tree trees flower flowers animal animals bird birds fish egg eggs cookie
cookies cake cakes piece pieces slice slices block blocks cube cubes stick sticks stone stones candy candies pencil
pencils pen pens shirt shirts shoe shoes toy toys ride rides trip trips round rounds turn turns move moves
handshake handshakes zero zeros zeroes friend friends worker workers job jobs sock socks bike bikes gift gifts
stamp stamps sheet sheets item items object objects orders order bead beads rope ropes lap laps plant plants cow
cows horse horses chicken chickens sheep pizza pizzas sandwich sandwiches cupcake cupcakes donut donuts shell
shells crayon crayons meal meals guest guests passenger passengers customer customers employee employees teacher
teachers lawyer lawyers frog frogs rabbit rabbits pig pigs goat goats duck ducks hen hens bee bees ant ants spider
spiders leg legs hand hands finger fingers chocolate chocolates lollipop lollipops muffin muffins pie pies brownie
brownies bagel bagels call calls message messages song songs movie movies video videos photo photos picture
pictures painting paintings mark marks credit credits token tokens stop stops station stations floor floors room
rooms window windows door doors wheel wheels train trains truck trucks plane planes boat boats ship ships bill
bills quarter quarters dime dimes nickel nickels rose roses seed seeds hat hats jacket jackets ring rings necklace
necklaces bracelet bracelets button buttons nail nails brick bricks tank tanks barrel barrels basket baskets bucket
buckets carton cartons crate crates jar jars can cans packet packets pack packs package packages magazine magazines
newspaper newspapers envelope envelopes chapter chapters lesson lessons exam exams goal goals run runs hit hits
shot shots strike strikes win wins loss losses pound pounds vertexes visit visits visitor visitors tourist tourists
soldier soldiers sailor sailors farmer farmers doctor doctors nurse nurses patient patients voter voters candidate
candidates senator senators chip chips dot dots mile miles inch inches sector sectors arc arcs chord chords lattice
lattices intersection intersections tuple tuples partition partitions coloring colorings grid grids cell cells
pixel pixels bit bits bulb bulbs lamp lamps battery batterys van vans motorcycle motorcycles bicycle bicycles
sticker stickers balloon balloons kite kites doll dolls puzzle puzzles flag flags banner banners poster posters
brush brushes notebook notebooks folder folders paperclip paperclips eraser erasers marker markers ruler rulers
scissors scissorses loaf loaves shelf shelves leaf leaves penny pennies bus buses bush bushes branch branches vase
vases dress dresses pants mice mouse berry berries cherry cherries puppy puppies kitten kittens baby babies city
cities country countries family families factory factories story stories class classes glass glasses lunch lunches
foxes fox watch watches indices index axes axis radii radius
"""
_ENTRIES = [entry.strip().partition(":") for entry in _UNITS.replace("\n", " ").split("|")]
UNIT_OF = {spelling: unit for unit, _, spellings in _ENTRIES for spelling in (unit, *spellings.split())}
_PREFIXES = {
    "m": ("milli", -3), "k": ("kilo", 3), "M": ("mega", 6), "G": ("giga", 9), "u": ("micro", -6), "n": ("nano", -9),
    "p": ("pico", -12),
}  # fmt: skip
_PREFIXED = {
    "N": "newton", "J": "joule", "W": "watt", "V": "volt", "A": "ampere", "T": "tesla", "Pa": "pascal", "Hz": "hertz",
    "C": "coulomb", "F": "farad", "H": "henry", "Wb": "weber", "eV": "electronvolt", "mol": "mole",
}  # fmt: skip
_BASES = {"C": "coulomb", "F": "farad", "H": "henry"}
"""Units whose symbol alone means something else, as in 20 C."""
_WITH_PREFIX: dict[str, tuple[str, int, int]] = {}
for _symbol, _name in _PREFIXED.items():
    for _letter, (_prefix, _power) in _PREFIXES.items():
        _unit = UNIT_OF.get(_letter + _symbol, _letter + _symbol)
        UNIT_OF.update(dict.fromkeys((_unit, f"{_prefix}{_name}", f"{_prefix}{_name}s"), _unit))
        _WITH_PREFIX[_unit] = (_BASES.get(_symbol, _symbol), 10 ** max(_power, 0), 10 ** max(-_power, 0))
NOUNS = frozenset(_COUNTED.split())
LONG_UNITS = frozenset(name for name in UNIT_OF if len(name) > 1) - words_of_text(
    "in pt rs st pc min um us ug ns uA uL uF uC"
)
"""Spellings that are units even without \\text{}; a single letter is a unit only inside it."""

CURRENCIES = {"$": "dollar", "€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee"}
COMPOUND_UNITS = {"mph": (("mi", 1), ("h", -1)), "kph": (("km", 1), ("h", -1)), "kmh": (("km", 1), ("h", -1))}
UNIT_RAISERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
UNIT_GRAMMAR = frozenset({*UNIT_RAISERS, "per"})

TO_BASE: dict[str, tuple[str, int, int]] = {
    "cm": ("m", 1, 100), "mm": ("m", 1, 1000), "km": ("m", 1000, 1), "in": ("m", 254, 10_000),
    "ft": ("m", 3048, 10_000), "yd": ("m", 9144, 10_000), "mi": ("m", 1_609_344, 1000),
    "g": ("kg", 1, 1000), "mg": ("kg", 1, 1_000_000),
    "ton": ("kg", 1000, 1), "lb": ("kg", 45_359_237, 100_000_000), "oz": ("kg", 45_359_237, 1_600_000_000),
    "min": ("s", 60, 1), "h": ("s", 3600, 1), "day": ("s", 86_400, 1), "week": ("s", 604_800, 1), "ms": ("s", 1, 1000),
    "mL": ("L", 1, 1000), "cent": ("dollar", 1, 100), "month": ("year", 1, 12), "kJ": ("J", 1000, 1),
    "kW": ("W", 1000, 1), "qt": ("gal", 1, 4), "pt": ("gal", 1, 8), "cup": ("gal", 1, 16), "tbsp": ("tsp", 3, 1),
    "decade": ("year", 10, 1), "century": ("year", 100, 1), "hectare": ("acre", 2_471_054, 1_000_000),
    "nm": ("m", 1, 10**9), "um": ("m", 1, 10**6), "us": ("s", 1, 10**6), "ns": ("s", 1, 10**9), "ug": ("kg", 1, 10**9),
    "kHz": ("Hz", 1000, 1), "MHz": ("Hz", 10**6, 1), "GHz": ("Hz", 10**9, 1), "kPa": ("Pa", 1000, 1),
    "MPa": ("Pa", 10**6, 1), "GPa": ("Pa", 10**9, 1), "keV": ("eV", 1000, 1), "MeV": ("eV", 10**6, 1),
    "GeV": ("eV", 10**9, 1), "kN": ("N", 1000, 1), "kV": ("V", 1000, 1), "mV": ("V", 1, 1000), "mA": ("A", 1, 1000),
    "mW": ("W", 1, 1000), "MW": ("W", 10**6, 1), "GW": ("W", 10**9, 1), "MJ": ("J", 10**6, 1), "kcal": ("cal", 1000, 1),
    "mmol": ("mol", 1, 1000), "kohm": ("ohm", 1000, 1), "megaohm": ("ohm", 10**6, 1), **_WITH_PREFIX,
}  # fmt: skip
"""unit -> (base unit, numerator, denominator): how many base units it is."""

SCALES = {"hundred": 2, "thousand": 3, "million": 6, "millions": 6, "billion": 9, "billions": 9, "trillion": 12}

_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh coth ln log lg exp sqrt abs floor ceil"
FUNCTIONS = {
    **{name: name for name in (_FUNCTIONS + " max min gcd lcm det arg sgn Re Im cbrt").split()},
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "tg": "tan", "ctg": "cot", "cosec": "csc", "arctg": "arctan",
    "sh": "sinh", "ch": "cosh", "ceiling": "ceil", "sign": "sgn",
}  # fmt: skip
_FOLDED = "factorial factorial2 binomial mod residues sum prod int lim"
KNOWN_FUNCTIONS = frozenset({*FUNCTIONS.values(), *_FOLDED.split()})
"""Functions with a meaning of their own. Any other name of an `Apply` is a function of the problem, such as f or x."""

INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot"}

GREEK = words_of_text(
    """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar
    """
)

_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS: dict[str, int] = {
    **{word: n for n, word in enumerate(_SMALL.split())},
    **{word: 10 * n for n, word in enumerate(_TENS.split(), start=2)},
}

HEDGES = words_of_text(
    """
    or not either neither maybe perhaps wrong incorrect probably possibly isn't likely but
    """
)
ALTERING_WORDS = words_of_text(
    """
    minus plus times squared cubed half third thirds quarter double twice triple thrice dozen dozens hundred thousand
    million billion trillion millions billions factorial root negative over divided multiplied less fewer
    modulo mod power reciprocal below choose recurring repeating
    """
)
"""Words that change the value of a number next to them, as in "24 squared"."""

NEGATIONS = words_of_text("no none never nor nothing without except unless false cannot can't isn't aren't nobody")

CONNECTIVES = HEDGES | words_of_text(
    """
    and is are if for all where to the of than by when with which that so no a an be in on at from any some then
    else we it this there has have only answer because since therefore true false yes unless except otherwise
    """
)

KEPT_WORDS = frozenset(
    {
        word
        for word in CONNECTIVES | NEGATIONS | ALTERING_WORDS | UNIT_GRAMMAR | {*SCALES, *NUMBER_WORDS}
        if len(word) > 2
    }
    | {"or", "to", "no", "if", "of"}
)
"""Words that are never the letters of a product. The other short words are, as in `e^{it}` and `ax + by`."""

EMPTY_PHRASES = frozenset(
    {"no solution", "no solutions", "no real solution", "no real solutions", "empty set", "the empty set", "none"}
    | {"no solution exists", "no solutions exist", "there is no solution", "there are no solutions", "null set"}
    | {"no such numbers exist", "no such number exists", "no roots", "no real roots", "no value", "no values"}
)
UNDEFINED_PHRASES = frozenset({"undefined", "does not exist", "dne", "not defined", "doesn't exist", "d.n.e"})
INFINITE_PHRASES = frozenset(
    {"infinitely many", "infinite solutions", "infinitely many solutions", "infinite number of solutions"}
)
REAL_PHRASES = frozenset(
    {"all real numbers", "all reals", "real numbers", "all real", "the real numbers", "any real number"}
)


def number_from_words(text: str) -> int | None:
    """`forty-two` is 42. None if the text is not a number in words. Up to the trillions."""
    words = text.lower().replace("-", " ").split()
    total, current = 0, 0
    if not words or not any(word in NUMBER_WORDS for word in words):
        return None
    for word in words:
        if word in NUMBER_WORDS:
            current += NUMBER_WORDS[word]
        elif word == "hundred":
            current *= 100
        elif word in SCALES:
            total, current = total + current * 10 ** SCALES[word], 0
        elif word != "and":
            return None
    return total + current


def unit_name(word: str) -> str | None:
    """The canonical unit or noun of a word; None for any other word."""
    for form in (word, word.lower()):
        if form in UNIT_OF:
            return UNIT_OF[form]
    low = word.lower()
    if low in NOUNS:
        return "#" + (low[:-1] if low.endswith("s") and low[:-1] in NOUNS else low)
    return None


def is_single_letter_unit(word: str) -> bool:
    return word in _SINGLE_LETTER_UNITS
