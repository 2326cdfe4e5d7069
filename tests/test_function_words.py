"""Docstrings of functions begin with a verb, and functions are named by verbs.

`ALLOWED` holds, for each package, how many functions still break one of the three rules. These numbers only fall: a
package that gets better lowers its row. `python tests/test_function_words.py ansatz/rollout` lists what is left there,
and without an argument prints the rows of all packages as they are now.

- fragment: the docstring begins with a question word, a preposition, a conjunction or the name of an error ("What
  needs torch", "Since the start", "ConfigError if ..."). Write "Return what ...", "Tell whether ...", "Raise
  ConfigError if ...".
- noun: it begins with any other word that is not a verb ("The seconds that ...", "x: unbiased"). A property may do
  this, and a component, whose docstring describes it on the pages of options.
- name: the function's name begins with a participle, an adjective or a question word (`landed`, `readable`). A
  property, a validator of pydantic and a component, whose name recipes use, may do this.

A component is a registered function, or the function of a file of the same name (`rewards/process.py`).

A verb that is missing in `VERBS` is added there.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ansatz"


def words(text: str) -> frozenset[str]:
    """Return the words of a text, which are separated by spaces."""
    return frozenset(text.split())


VERBS = words(
    """
    abandon accept accumulate adapt add adjust advance aggregate agree allocate allow answer append apply
    apportion approximate arrange ask assemble assert assign attend average await balance begin bind block
    bound box break bring build calculate call cancel capture cast catch center change check choose classify
    clean clear clip close collapse collect combine compact compare compile complete compute concatenate
    configure confirm connect construct continue convert copy correct count cover create cut deal decide
    declare decode decompress define delay delete deliver dequantize derive describe detect determine die
    differ discard distribute divide do download draw drop dump edit embed emit empty encode end enter
    enumerate escape estimate evaluate examine exclude execute exit expand expect expire explain export extend
    extract fail fall feed fetch fill filter find finish fit fix flatten flush fold follow forbid forget form
    format forward free fuse gather generate get give go grade grant group grow guard guess handle have hide
    hold identify ignore import include increase index infer inherit initialize inject insert inspect install
    interpolate interpret invert issue iterate join judge keep kill know label land launch lay learn lease
    leave let lift limit link list listen load localize locate lock log look lose lower make map mark mask
    match measure merge minimize mix move multiply name negate normalise normalize note notice number observe
    offer open order outlive override overwrite own pack pad pair park parse pass pause perform pick pin place
    plan plot point post predict prefer prefill prepare print probe process produce project prove publish pull
    push put quantize quote raise rank reach read rearrange recall receive recognise recognize recompute
    record reduce refuse register reject release reload remember remove rename render renew renumber reopen
    repeat replace replay report represent request require rescale reserve reset reshape resize resolve
    restart restore restrict resume retire retry return reuse reverse revert rewrite roll rotate round run
    sample save say scale scan scatter score scrape seal search select send separate serve set shard share
    shift shorten show shrink shuffle shut sign signal simplify simulate skip sleep solve sort spawn spell
    split stack start state stop store stream strip submit substitute subtract suggest sum summarise summarize
    supply suspend swap switch synchronize tag take tell terminate test tie time tokenise tokenize track train
    transfer transform translate transpose treat trim truncate try turn undo unload unpack unpark unwrap
    update upload use validate verify visit vote wait wake walk warn watch weight whiten withdraw work wrap
    write yield
    """
)
"""What a docstring begins with."""

NO_SENTENCE = words(
    """
    about after also although and as at because before beside between but by during for from how if in inside
    into like nobody none nothing of off on once only or out outside over per since so than that though to
    under unless until up what when where whether which while who whom whose why with within without
    """
)
"""What a fragment begins with."""

PARTICIPLES = words(
    """
    begun born bound broken brought built chosen done drawn driven fallen felt forbidden found frozen given
    gone grown heard held hidden kept known laid left lost made meant met paid proven rewritten said seen sent
    shown sold sought spent spoken stood stolen stuck sung sunk swept taken taught thought thrown told torn
    undone unknown won worn written
    """
)
"""Irregular ones; the others end in -ed."""

ADJECTIVES = words(
    """
    alike alive bare best better big dead early equal even exact fine full healthy incomplete
    large larger largest late later latest long longer longest missing most near nearest new newer newest odd
    old older oldest other overdue own plain ready same short shorter shortest similar single slow small
    smaller smallest stale usual well whole
    """
)
"""Of these, names are made; others end in -able or -ible."""

NOT_PARTICIPLES = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "table", "variable", "enable"}
NOT_PARTICIPLES |= {"disable"}

KINDS = ("fragment", "noun", "name")

ALLOWED: dict[str, tuple[int, int, int]] = {
    ".": (0, 0, 18),
    "certify": (2, 17, 5),
    "certify/parity": (1, 21, 2),
    "cli": (0, 1, 5),
    "cluster": (0, 0, 9),
    "config": (1, 0, 11),
    "data": (0, 0, 16),
    "data/hygiene": (0, 0, 7),
    "environments": (0, 2, 10),
    "evaluate": (0, 0, 4),
    "loop": (0, 0, 24),
    "loop/stages": (0, 0, 4),
    "models": (1, 0, 20),
    "objectives": (0, 1, 27),
    "objectives/projects": (2, 38, 4),
    "prompts": (0, 0, 1),
    "reward_models": (0, 0, 17),
    "rewards": (6, 9, 20),
    "rollout": (0, 0, 14),
    "rollout/native": (0, 0, 5),
    "rollout/vllm": (0, 0, 4),
    "starter": (0, 1, 0),
    "track": (0, 0, 7),
    "train": (4, 0, 25),
}
"""How many functions of each package break each of the rules. May only fall."""


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions and methods of a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def violations(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (kind, place and text) of each function of a file that breaks a rule."""
    for node in functions(path):
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        is_property = any(decorator.endswith("property") for decorator in decorators)
        is_component = node.name == path.stem or any(re.search(r"\.register\(|generator\(", d) for d in decorators)
        place = f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {node.name}"
        doc = ast.get_docstring(node)
        if doc is not None and (kind := wrong_opening(doc, is_noun=is_property or is_component)):
            yield kind, f"{place}: {doc.splitlines()[0][:90]}"
        validates = any("validator" in decorator or "serializer" in decorator for decorator in decorators)
        if not (is_property or is_component or validates) and not names_an_action(node.name):
            yield "name", place


def wrong_opening(doc: str, *, is_noun: bool) -> str:
    """Return the kind of rule that the beginning of a docstring breaks; empty if it breaks none.

    is_noun: a property or a component, which a noun phrase describes.
    """
    first, _, rest = doc.partition(" ")
    word = first.rstrip(",:;.")
    if word.lower() in NO_SENTENCE or re.fullmatch(r"[A-Z]\w+Error", word):
        return "fragment"
    is_verb = word.isalpha() and word[0].isupper() and word.lower() in VERBS and not first.endswith((":", ","))
    is_amount = rest.startswith(("of ", "per "))  # "Sum of", "Number of", "Score of"
    return "" if is_noun or (is_verb and not is_amount) else "noun"


def names_an_action(name: str) -> bool:
    """Tell whether the first word of a function's name can be a verb."""
    word = name.strip("_").split("_")[0]
    if word in NOT_PARTICIPLES or name.startswith("__"):
        return True
    looks_wrong = word.endswith(("ed", "able", "ible")) or word in PARTICIPLES | ADJECTIVES
    return not looks_wrong and word not in {"how", "what", "whether", "where", "which", "who", "why"}


def package_of(path: Path) -> str:
    """Return the folder of a file within the package, or `.`."""
    return str(path.parent.relative_to(PACKAGE))


def count_by_package() -> dict[str, tuple[int, ...]]:
    """Count the violations in each package, in the order of KINDS."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        counts.setdefault(package_of(path), Counter()).update(kind for kind, _ in violations(path))
    return {package: tuple(count[kind] for kind in KINDS) for package, count in counts.items() if count.total()}


@pytest.mark.parametrize("kind", KINDS)
def test_no_package_has_more_functions_that_break_a_rule_than_it_is_allowed(kind):
    index = KINDS.index(kind)
    more = {
        package: f"{count[index]}, allowed {ALLOWED.get(package, (0, 0, 0))[index]}"
        for package, count in count_by_package().items()
        if count[index] > ALLOWED.get(package, (0, 0, 0))[index]
    }
    assert more == {}, "list them with: python tests/test_function_words.py ansatz/PACKAGE"


def test_no_package_is_allowed_much_more_than_it_needs():
    counts = count_by_package()
    stale = {
        package: (allowed, counts.get(package, (0, 0, 0)))
        for package, allowed in ALLOWED.items()
        if sum(allowed) > sum(counts.get(package, (0, 0, 0))) + 25
    }
    assert stale == {}, "lower the rows in ALLOWED"


@pytest.mark.parametrize(
    ("doc", "is_noun", "kind"),
    [
        ("Return the newest version.", False, ""),
        ("Raise ConfigError if the value is not known.", False, ""),
        ("ConfigError if the value is not known.", False, "fragment"),
        ("What needs torch already when it is imported.", False, "fragment"),
        ("Whether the model is built.", True, "fragment"),
        ("The newest version.", True, ""),
        ("The newest version.", False, "noun"),
        ("Sum of the rewards of a group.", False, "noun"),
        ("Sum the rewards of a group.", False, ""),
        ("x: unbiased, any sign.", False, "noun"),
        ("`5 m` as 5 metres.", False, "noun"),
    ],
)
def test_the_rule_of_docstrings_tells_sentences_from_fragments(doc, is_noun, kind):
    assert wrong_opening(doc, is_noun=is_noun) == kind


@pytest.mark.parametrize(
    ("name", "is_action"),
    [
        ("landed", False),
        ("_finished_soon", False),
        ("readable", False),
        ("why_dropped", False),
        ("written", False),
        ("need_text", True),
        ("is_finished", True),
        ("has_landed", True),
        ("read_rows", True),
        ("__init__", True),
    ],
)
def test_the_rule_of_names_tells_verbs_from_participles(name, is_action):
    assert names_an_action(name) == is_action


if __name__ == "__main__":
    folders = sys.argv[1:]
    if not folders:
        for package, count in sorted(count_by_package().items()):
            print(f'    "{package}": {count},')
    for folder in folders:
        for path in sorted(Path(folder).resolve().rglob("*.py")):
            for kind, text in violations(path):
                print(f"{kind:9}{text}")
