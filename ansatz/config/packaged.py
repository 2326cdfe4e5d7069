"""The recipes and overlays that are installed with Ansatz, by name.

The first comment line of each file is its summary. A line "# Hardware: 8x80GiB" names the intended machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ansatz.errors import ConfigError
from ansatz.links import read_text
from ansatz.registry import describe_missing_file, suggest

FOLDER = Path(__file__).parents[1] / "recipes"
OVERLAYS = FOLDER / "overlays"
STARTER = Path(__file__).parents[1] / "starter"
"""The files of a first project, which `ansatz init` copies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedRecipe:
    """hardware: such as "8x80GiB (our choice)"; empty for a recipe that runs on a CPU."""

    path: Path
    summary: str
    hardware: str

    @property
    def name(self) -> str:
        return self.path.stem


def recipe_text(file: Path) -> str:
    """Read a recipe's file. Raise ConfigError if it is not a text file or cannot be read."""
    try:
        return read_text(file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); give a YAML recipe.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not a text file ({error.reason} at byte {error.start}); give a YAML recipe."
        ) from error


def recipe_path(given: str | Path) -> Path:
    """Return the file that a user means: an existing file, or else the packaged recipe or overlay of that name, or the
    recipe in the folder of a run, a project or a model.

    Raise ConfigError for none of them, with the nearest packaged name.
    """
    path = Path(given)
    if path.is_file():
        return path
    name = str(given).removesuffix(".yaml")
    for folder in (FOLDER, OVERLAYS):
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    for inner in ("config.yaml", "recipe.yaml"):
        if (path / inner).is_file():
            return path / inner
    if path.exists() or path.is_symlink():
        advice = "Give a YAML file, or a folder that holds recipe.yaml."
        raise ConfigError(f"the recipe {str(given)!r} {describe_missing_file(path)}. {advice}")
    known = [file.stem for folder in (FOLDER, OVERLAYS) for file in folder.glob("*.yaml")]
    raise ConfigError(
        f"there is no recipe file {str(given)!r} (looked in {Path.cwd()}) and no installed recipe of that name."
        f"{suggest(path.stem, known)}"
    )


def is_packaged(path: Path) -> bool:
    return FOLDER in path.resolve().parents


def packaged_recipes(folder: Path = FOLDER) -> list[PackagedRecipe]:
    """Return all packaged recipes in the order of their names; with `OVERLAYS`, all overlays."""
    return [_described(path) for path in sorted(folder.glob("*.yaml"))]


def _described(path: Path) -> PackagedRecipe:
    comments = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    hardware = [line.removeprefix("Hardware:").strip() for line in comments if line.startswith("Hardware:")]
    return PackagedRecipe(path=path, summary=comments[0], hardware=hardware[0] if hardware else "")
