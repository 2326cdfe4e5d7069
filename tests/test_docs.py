"""The documentation is current: generated pages, line lengths, links, and the commands that it shows."""

import re
import shlex
import tomllib

import pytest
import torch
from executed_pages import EXECUTED, IN_A_CLONE, MARK, idle_changes, shown_commands
from toy_runs import REPOSITORY

from ansatz.cli.recipe import RecipeCommand, split_overrides
from ansatz.config.load import check, load_recipe, parse_yaml
from ansatz.config.recipe import default_class, recipe_keys
from ansatz.objectives.build import build_objective
from ansatz.objectives.explain import formula
from tools import (
    cli_reference,
    compatibility,
    component_inputs,
    component_reference,
    config_reference,
    option_reference,
    page_words,
    paradigm_reference,
    preset_reference,
)

DOCS = REPOSITORY / "docs"
NOTES = REPOSITORY / "notes"
LOG = sorted((NOTES / "log").glob("*.md"))
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md")), *sorted(set(NOTES.rglob("*.md")) - set(LOG))]
GUIDES = [
    REPOSITORY / "README.md",
    DOCS / "quickstart.md",
    *(NOTES / "design").glob("*.md"),
    *(DOCS / "how-to").glob("*.md"),
]
WIDTH = 100

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("config.md", config_reference),
        ("cli.md", cli_reference),
        ("algorithms.md", preset_reference),
        ("parity_options.md", option_reference),
        ("algorithms.md", paradigm_reference),
    ],
)
def test_generated_pages_are_current(name, reference):
    assert (DOCS / name).read_text(encoding="utf-8") == reference.render(), f"docs/{name} is old; run `make docs`"


def test_the_pages_of_components_are_current_and_the_page_of_keys_leaves_their_settings_to_them():
    pages = component_reference.render_pages()
    assert {name: (DOCS / name).read_text(encoding="utf-8") for name in pages} == pages, "run `make docs`"
    keys = config_reference.render()
    assert len(keys.splitlines()) < 700
    assert all(f"({name}" in keys for name in pages)


def test_the_page_of_keys_begins_with_a_whole_recipe_and_has_every_key():
    text = config_reference.render()
    recipe = re.search(r"^```yaml\n(.*?)^```", text, flags=re.S | re.M)
    assert recipe is not None
    assert check(parse_yaml(recipe[1], where="config.md")).stage_names == ("problems", "model", "rl")
    first, rest = text.split("\n## The run\n")
    assert len(first.splitlines()) < 80
    others = ("data.template.", "evaluate.template.", "reward_model.", "watchdog.rules.")
    keys = {key for key in recipe_keys() if not key.startswith(others)}
    assert [key for key in sorted(keys) if not re.search(rf"(`|^### ){re.escape(key)}\b", rest, flags=re.M)] == []


def test_the_generated_part_of_the_page_of_components_is_current():
    assert component_inputs.PAGE.read_text(encoding="utf-8") == component_inputs.page(), "run `make docs`"


@pages
def test_lines_have_at_most_100_characters(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    long = [(number, line) for number, line in enumerate(lines, 1) if len(line) > WIDTH]
    # Markdown has no heading or row of two lines, and a registered claim, which is the title of its page and in the
    # index of the findings, never changes.
    given = ("# ", "| ") if page.parent.name == "findings" else ("# ",)
    assert [f"line {number}: {len(line)}" for number, line in long if not line.startswith(given)] == []


@pytest.mark.parametrize("page", [*PAGES, *LOG], ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_relative_links_lead_to_files_and_headings(page):
    text = without_code(page.read_text(encoding="utf-8"))
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists() or (heading and heading not in headings(file)):
            broken.append(target)
    assert broken == []


@pages
def test_every_figure_of_a_page_links_to_its_commit_and_processor(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    images = [number for number, line in enumerate(lines) if re.match(r"!\[.*\.svg\)", line)]
    assert [lines[number] for number in images if "origins.md" not in " ".join(lines[number : number + 6])] == []


@pytest.mark.parametrize("page", [*PAGES, REPOSITORY / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_commands_of_a_page_are_executed_by_a_test_or_the_page_says_why_not(page):
    marked = MARK.search(page.read_text(encoding="utf-8")) is not None
    advice = "End the page with <!-- No test executes the commands of this page: REASON. -->, or add it to EXECUTED."
    assert not shown_commands(page) or marked != (page in (*EXECUTED, IN_A_CLONE)), advice


def linked_pages(text, folder):
    """The pages of the documentation that a text in a folder links to, in their order."""
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text))]
    found = [(folder / target).resolve() for target in targets if target.endswith(".md")]
    return [path for path in found if path.is_relative_to(DOCS)]


def menu_of(entry):
    """The pages of a part of the site's menu, in their order."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in menu_of(part)]


def test_the_index_is_the_menu_of_the_site():
    """Findings have an index of their own, which is one entry of the first page."""
    index = (DOCS / "README.md").read_text(encoding="utf-8").partition("\n## All pages\n")[2]
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
    menu = [page for page in menu_of(settings["nav"]) if not re.match(r"findings/(?!README)", page)]
    listed = [str(path.relative_to(DOCS)) for path in linked_pages(index, DOCS)]
    assert ["README.md", *listed] == menu


def test_every_page_can_be_reached_from_the_index():
    reached, waiting = set(), [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += linked_pages(page.read_text(encoding="utf-8"), page.parent)
    assert sorted(set(DOCS.rglob("*.md")) - reached) == []


def test_every_figure_has_a_commit_and_a_processor():
    text = (NOTES / "origins.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| [0-9a-f]{7} \| .+ \|$", text, flags=re.M)
    assert len(rows) > 10
    assert sorted(rows) == sorted(path.name for path in (DOCS / "figures").glob("*.svg"))


def test_the_words_by_hand_are_counted_without_the_parts_of_programs(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A b\n\nc d\n<!-- written by `x` -->\ne f g\n<!-- end -->\nh\n", encoding="utf-8")
    assert page_words.words_by_hand(page) == 6
    page.write_text("# A b\n\nThis page is generated from\nthe code by `make docs`.\n", encoding="utf-8")
    assert page_words.words_by_hand(page) == 0
    counted = dict(page_words.pages())
    assert counted["docs/config.md"] == counted["notes/log/2026-11-20.md"] == 0 < counted["README.md"]
    assert counted.keys() >= page_words.FOR_USERS


READ_BY_USERS = [
    file
    for folder in ("docs", "ansatz", "examples", "deploy")
    for file in sorted((REPOSITORY / folder).rglob("*"))
    if file.suffix in (".md", ".py", ".yaml", ".sh", ".json", ".jsonl", ".svg") or file.name == "Dockerfile"
]


def test_nothing_that_is_installed_or_documented_needs_a_folder_next_to_the_repository():
    outside = re.compile(r"(?<![\w/])\.\./shared\b|\bshared/(data|parity|verifier)\b")
    assert outside.search("ansatz parity ../shared/parity/visible.json")
    assert len(READ_BY_USERS) > 300
    texts = {file: file.read_text(encoding="utf-8") for file in [REPOSITORY / "README.md", *READ_BY_USERS]}
    assert [str(file.relative_to(REPOSITORY)) for file, text in texts.items() if outside.search(text)] == []


def test_the_first_page_compares_the_advantages_that_the_defaults_of_projects_give():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith('| 1 right of 8 in "GRPO"'))
    reward_N, group_N = torch.tensor([1.0] + [0.0] * 7), torch.zeros(8, dtype=torch.long)
    shown = []
    for project in (None, "trl", "verl", "openrlhf", "prime-rl"):
        spec = {"defaults_of": project} if project else {"preset": "grpo"}
        advantage = build_objective(spec, max_response_tokens=64).advantage
        shown.append(f"{advantage.function(reward_N, group_N, **advantage.settings)[0]:.3f}")
    assert [cell.strip() for cell in row.split("|")[2:-1]] == shown


def test_the_page_of_what_was_tried_is_current_and_every_row_names_versions_and_a_command():
    assert (DOCS / "compatibility.md").read_text(encoding="utf-8") == compatibility.render(), "run `make docs`"
    rows = compatibility.read_rows()
    assert len(rows) > 2
    for row in rows:
        assert row["versions"].keys() >= {"python", "torch", "transformers"}
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"])
        assert row["command"].startswith(("python ", "ansatz ", "make "))


def test_commands_in_guides_are_commands_with_their_own_options():
    """Verbs, options and recipe keys exist, and so do the recipes that are named."""
    shown = [line for page in GUIDES for line in commands_of(page.read_text(encoding="utf-8"))]
    assert len(shown) > 10
    assert [(line, fault) for line in shown if (fault := fault_of(line))] == []


def test_a_wrong_command_is_found():
    assert fault_of("ansatz trane recipes/x.yaml") == "unknown verb"
    assert fault_of("ansatz eval runs/x --suit gsm8k") == "unknown option --suit"
    assert fault_of("ansatz train tiny_arithmetic_grpo_cpu --train.rate 1") == "unknown key train.rate"
    assert fault_of("ansatz train recipes/none.yaml") == "no such recipe recipes/none.yaml"
    assert fault_of("make demmo") == "unknown target"
    assert fault_of("python examples/none.py") == "no such file examples/none.py"


def without_code(text):
    """The text without its code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def commands_of(text):
    """The lines of shell blocks that call ansatz, make or python; a line that ends in a backslash goes on."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.S | re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if re.match(r"(\S*/)?(ansatz|make|python) ", line)]


def fault_of(line):
    """What is wrong with a command, empty if nothing is."""
    program, *words = shlex.split(line)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), flags=re.M)
        return "" if words[0] in targets else "unknown target"
    if program.endswith("python"):
        exists = words[0] in ("-m", "-c") or (REPOSITORY / words[0]).is_file()
        return "" if exists else f"no such file {words[0]}"
    verbs = dict(cli_reference.commands())
    for count in (2, 1):
        command = verbs.get(" ".join(["ansatz", *words[:count]]))
        if command is not None:
            return options_fault(command, words[count:])
    return "unknown verb"


def options_fault(command, words):
    """The first option, recipe key or recipe that does not exist."""
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    rest = words
    if isinstance(command, RecipeCommand):
        rest, overrides = split_overrides(words, verb_options=own)
        for key in overrides:
            if not key_exists(key):
                return f"unknown key {key}"
    for word in rest:
        if word.startswith("--") and word.partition("=")[0] not in own:
            return f"unknown option {word}"
        if word.startswith("recipes/") and not (REPOSITORY / word).is_file():
            return f"no such recipe {word}"
    return ""


def key_exists(key):
    """Whether a recipe may hold this dotted key. What a component takes is checked when it is built."""
    known = set()
    for name, field in default_class().model_fields.items():
        keys = getattr(field.annotation, "model_fields", None)
        known |= {f"{name}.{inner}" for inner in keys} if keys else {name}
    return any(key == name or key.startswith(f"{name}.") for name in known)


def test_the_page_of_the_architecture_shows_the_layers_and_packages_as_they_are():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert "```\n" + "\n".join(layers) + "\n```" in text
    modules = [path for path in (REPOSITORY / "ansatz").iterdir() if not path.name.startswith(("_", "py.typed"))]
    names = [f"{path.name}/" if path.is_dir() else path.name for path in modules]
    assert [name for name in names if not re.search(rf"^  {re.escape(name)} ", text, flags=re.M)] == []


def test_a_guide_that_shows_the_defaults_of_a_project_shows_its_objective():
    """`explain` with the options of the page prints the formula of the project's defaults, and of nothing else."""
    shown = []
    for page in GUIDES:
        for line in commands_of(page.read_text(encoding="utf-8")):
            if match := re.search(r"defaults_of: ([\w-]+)", line):
                _, _, recipe, *words = shlex.split(line)
                config = load_recipe(recipe, overrides=split_overrides(words, verb_options=set())[1])
                objective = build_objective(config.algorithm, max_response_tokens=64)
                expected = build_objective({"defaults_of": match[1]}, max_response_tokens=64)
                assert formula(objective) == formula(expected), line
                shown.append(match[1])
    assert shown == ["trl", "verl"]


@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_every_change_that_makes_a_page_short_fits_its_text(page):
    assert idle_changes(page) == []
