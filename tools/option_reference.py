"""docs/parity_options.md: every option of every project whose options are translated into ours.

python -m tools.option_reference
"""

from __future__ import annotations

from ansatz.objectives.projects import PROJECTS
from ansatz.objectives.projects.options import Option
from tools.pages import item, replace_page, value_in_yaml

INTRODUCTION = """\
# Options of other projects

This page is generated from `ansatz/objectives/projects/` by `make docs`; do not edit it.

It lists every option that `defaults_of` and `ansatz parity` translate, with the project's default
and what it becomes here. An option is used only where its project uses it, and ignored only where
its project ignores it. Any other option that differs from its default is refused by name; so are
the options marked "refused" below, unless they keep their default.
"""


def render() -> str:
    """The page as Markdown."""
    lines = [INTRODUCTION]
    for name, project in PROJECTS.items():
        for section, options in (("", project.options), *project.other):
            lines += [f"## {name}: {section}" if section else f"## {name}", "", *map(_option, options), ""]
    return "\n".join(lines)


def _option(option: Option) -> str:
    meaning = f"refused: {option.meaning}" if option.refused else option.meaning
    return item(f"`{option.name}` (default `{value_in_yaml(option.default)}`): {meaning}")


if __name__ == "__main__":
    replace_page("parity_options.md", render())
