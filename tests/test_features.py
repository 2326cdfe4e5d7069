"""The core imports no feature, and a feature imports another only if pyproject.toml says so.

Imports anywhere in a file count, also within a function or for type checkers alone. What is found by its name does
not. `python tests/test_features.py` prints the seams and the imports of features as they are now.
"""

from __future__ import annotations

from collections import defaultdict

from tools.package_size import FEATURES, SETTINGS, core, feature_of, imports_of, is_within, trees

SEAMS: dict[str, list[str]] = SETTINGS["seams"]
ABOVE: list[str] = SETTINGS["above"]


def seams() -> dict[str, list[str]]:
    """Find what modules that are in no feature import of features: {"loop.watch": ["loop.pipeline", ...]}."""
    found = defaultdict[str, set[str]](set)
    for name in trees():
        if feature_of(name) is None and not is_within(name, ABOVE):
            for imported in filter(feature_of, imports_of(name)):
                found[imported.removeprefix("ansatz.")].add(name.removeprefix("ansatz."))
    return {imported: sorted(names) for imported, names in sorted(found.items())}


def imported_features() -> dict[str, list[str]]:
    """Find the features that each feature imports."""
    found = {feature: set[str]() for feature in FEATURES}
    for name in trees():
        if (own := feature_of(name)) is not None:
            found[own] |= {other for each in imports_of(name) if (other := feature_of(each)) not in (None, own)}
    return {feature: sorted(others) for feature, others in found.items()}


def test_only_the_seams_import_a_feature():
    assert seams() == SEAMS


def test_a_feature_imports_only_the_features_of_its_row():
    assert imported_features() == {name: row["imports"] for name, row in SETTINGS["features"].items()}


def test_every_module_of_a_feature_is_there_and_in_one_feature_only():
    listed = [module for modules in FEATURES.values() for module in modules]
    assert [module for module in [*listed, *ABOVE] if not any(is_within(name, [module]) for name in trees())] == []
    assert [
        module for module in listed if is_within(f"ansatz.{module}", [each for each in listed if each != module])
    ] == []


def test_the_core_is_more_than_a_file():
    assert {"ansatz.train.step", "ansatz.rollout.native.sampler", "ansatz.loop.collect"} <= core()


def test_the_core_imports_nothing_from_above():
    assert [name for name in core() if is_within(name, ABOVE)] == []


if __name__ == "__main__":
    for found in (seams(), imported_features()):
        print(*[f"{name} = {others}" for name, others in found.items()], sep="\n")
