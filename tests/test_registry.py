import dataclasses
import os
import sys
from pathlib import Path
from typing import Literal

import pytest

from ansatz.errors import ConfigError
from ansatz.registry import Registry, bind, describe_missing_file, find_in_package, load_attribute, settings_of, suggest
from ansatz.trust import TrustedText


def make() -> Registry:
    registry = Registry("shape")

    @registry.register()
    def circle(x, *, radius: float = 1.0, times: int = 1, how: Literal["full", "half"] = "full"):
        return x, radius, times, how

    @registry.register("box", "square")
    def make_box(x):
        return x

    return registry


def test_a_component_is_found_under_its_name_and_its_aliases():
    registry = make()
    assert registry.names() == ["box", "circle", "square"]
    assert registry.get("box") is registry.get("square")


def test_an_unknown_name_gets_the_nearest_one_or_the_list():
    with pytest.raises(ConfigError, match=r"^shape 'circel' is unknown\. Did you mean 'circle'\?$"):
        make().get("circel")
    with pytest.raises(ConfigError, match=r"Known: box, circle, square\.$"):
        make().get("xyzzy")
    assert suggest("lr", ["lr_rate"]) == " Known: lr_rate."


def test_a_module_that_lacks_the_function_of_its_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shapes_of_a_test").mkdir()
    for name, code in (("__init__", ""), ("unit", "def units(): ..."), ("circle", "def circle(): ...")):
        (tmp_path / "shapes_of_a_test" / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    lacks = r"^shape 'unit' is unknown: shapes_of_a_test\.unit has no function or class 'unit'\. Known: circle\.$"
    for name, sentence in (("unit", lacks), ("circel", r"^shape 'circel' is unknown\. Did you mean 'circle'\?$")):
        with pytest.raises(ConfigError, match=sentence):
            find_in_package("shapes_of_a_test", name, kind="shape")


def test_a_name_cannot_be_registered_twice():
    registry = make()
    with pytest.raises(ValueError, match="shape 'box' is registered twice"):
        registry.register("box")(lambda: None)


def test_the_keyword_only_parameters_are_the_settings():
    assert list(settings_of(make().get("circle"))) == ["radius", "times", "how"]
    assert settings_of(make().get("box")) == {}


def test_binding_fills_the_settings_in():
    assert make().bind("circle", {"radius": 2, "times": 1e3})("x") == ("x", 2.0, 1000, "full")
    assert make().bind("box", {})("x") == "x"


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("circle", {"raduis": 2}, "shape 'circle' has no setting 'raduis'. Did you mean 'radius'?"),
        ("box", {"radius": 2}, "shape 'box' has no setting 'radius'. It has no settings."),
        ("circle", {"radius": "wide"}, "shape 'circle': radius = 'wide': input should be a valid number"),
        ("circle", {"times": 1.5}, "shape 'circle': times = 1.5: input should be a valid integer"),
        ("circle", {"how": "ful"}, "shape 'circle': how = 'ful': input should be 'full' or 'half'."),
    ],
)
def test_a_wrong_setting_is_one_sentence(name, settings, sentence):
    with pytest.raises(ConfigError) as error:
        make().bind(name, settings)
    assert str(error.value).startswith(sentence)


def test_what_is_no_function_has_no_settings():
    with pytest.raises(ConfigError, match="3 is not a function"):
        bind(3, {}, what="reward")  # pyright: ignore[reportArgumentType]


def test_a_function_of_a_file_is_loaded_once(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Seen:\n    count: int = 0\n"
        "SEEN = Seen()\ndef first(): return SEEN\ndef second(): return SEEN\n"
    )
    first, second = (load_attribute(TrustedText(f"{file}:{name}"), kind="reward") for name in ("first", "second"))
    assert dataclasses.is_dataclass(first())
    assert first() is second()


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"def where(): return {folder!r}\n")
    found = [
        load_attribute(TrustedText(f"{tmp_path / folder / 'mine.py'}:where"), kind="reward")() for folder in ("a", "b")
    ]
    assert found == ["a", "b"]


def test_a_function_of_a_module_is_found():
    assert load_attribute(TrustedText("math:sqrt"), kind="reward")(9) == 3


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere/mine.py:f", "reward 'nowhere/mine.py:f': 'nowhere/mine.py' does not exist (current folder: "),
        ("no_such_module:f", "reward 'no_such_module:f': cannot import 'no_such_module' (ModuleNotFoundError: "),
        ("math:squirt", "reward 'math:squirt': 'math' has no 'squirt'."),
        ("math:", "reward 'math:': 'math' has no ''."),
        (":f", "reward ':f': cannot import ''"),
        ("{broken}:f", "reward '{broken}:f': cannot import '{broken}' (SyntaxError: "),
        ("{raising}:f", "reward '{raising}:f': cannot import '{raising}' (ZeroDivisionError: division by zero)."),
    ],
)
def test_what_is_wrong_with_a_reference_is_one_sentence(tmp_path, reference, sentence):
    places = {"broken": tmp_path / "broken.py", "raising": tmp_path / "raising.py"}
    places["broken"].write_text("def f(:\n")
    places["raising"].write_text("1 / 0\n")
    known = set(sys.modules)
    with pytest.raises(ConfigError) as error:
        load_attribute(TrustedText(reference.format(**places)), kind="reward")
    assert str(error.value).startswith(sentence.format(**places))
    assert not {name for name in set(sys.modules) - known if name.startswith("ansatz_user")}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is a folder, expected a file"),
        (os.mkfifo, "is a pipe, a device or a socket, expected a file"),
        (lambda path: path.symlink_to("/dev/zero"), "is a pipe, a device or a socket, expected a file"),
        (lambda path: path.symlink_to(path), "is a link that leads nowhere"),
        (lambda path: path.symlink_to("nothing"), "is a link that leads nowhere"),
        (lambda path: None, "does not exist (current folder: "),
    ],
)
def test_what_is_not_a_file_is_called_by_what_it_is(tmp_path, make, said):
    path = tmp_path / "mine.py"
    make(path)
    assert describe_missing_file(path).startswith(said)
    with pytest.raises(ConfigError) as error:
        load_attribute(TrustedText(f"{path}:f"), kind="reward")
    assert f"'{path}' {said}" in str(error.value)
