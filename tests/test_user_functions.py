"""Every seam of the user's code names the function that raised or returned something unexpected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ansatz.data.base import load_problems
from ansatz.data.curriculum import Curriculum, curriculum_settings
from ansatz.errors import ConfigError, UserCodeError
from ansatz.objectives.build import build_objective
from ansatz.registry import load_attribute
from ansatz.rollout.engines import engine_of
from ansatz.train.optimizers import bind_optimizer
from ansatz.trust import trusted
from ansatz.types import Problem

PROBLEMS = [Problem(id=str(n), question="?", answers=("1",), source="t", split="t") for n in range(3)]
FAULTS = {
    "raise": "raise KeyError('column')",
    "type": "return 'text'",
    "none": "return None",
    "shape": "return torch.zeros(17)",
    "nan": "return torch.full((count,), float('nan'))",
}


def source(name: str) -> None:
    load_problems(name, split="train")


def sampler(name: str) -> None:
    Curriculum(PROBLEMS, curriculum_settings({"sampler": name}), seed=0).take(2)


def advantage(name: str) -> None:
    rule = build_objective({"preset": "grpo", "advantage": name}).advantages
    ids = torch.tensor([0, 0, 1, 1, 2])
    mask = torch.tensor([False, True, False, True, True])
    extra: dict[str, Any] = {}
    rule(torch.ones(3), torch.tensor([0, 0, 0]), segment_T=ids, mask_T=mask, state_T=mask, extra=extra)


def optimizer(name: str) -> None:
    bind_optimizer({"name": name})(torch.nn.Linear(2, 2), torch.float32)


def engine(name: str) -> None:
    policy: Any = None
    engine_of({"name": name})(policy)


SEAMS: dict[Callable[[str], None], tuple[str, str]] = {
    source: ("data source", "*, split"),
    sampler: ("curriculum sampler", "posterior, rng"),
    advantage: ("advantage", "reward_N, group_N"),
    optimizer: ("train.optimizer", "model, dtype"),
    engine: ("engine", "policy"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.__name__)
def test_a_fault_of_the_users_function_is_one_sentence_that_names_it(
    tmp_path: Path, seam: Callable[[str], None], fault: str
) -> None:
    _, parameters = SEAMS[seam]
    file = tmp_path / "mine.py"
    file.write_text(f"import torch\ncount = 3\ndef mine({parameters}):\n    {FAULTS[fault]}\n")
    with pytest.raises(UserCodeError) as caught:
        seam(trusted(f"{file}:mine"))
    said = str(caught.value)
    assert f"{file}:mine" in said
    if fault == "raise":
        assert f"raised KeyError: 'column' ({file}, line 4)" in said
    else:
        assert " returned the " in said
        assert "expected " in said


def test_a_source_that_fails_or_yields_something_else_after_a_problem_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    good = (
        "from ansatz.types import Problem\ndef {name}(*, split):\n"
        "    yield Problem(id='1', question='?', answers=('1',), source='s', split=split)\n    {then}\n"
    )
    for name, then, said in (
        ("late", "raise ValueError('row 2')", "raised ValueError: row 2"),
        ("odd", "yield {'question': '?'}", "returned the dict {'question': '?'}, expected problems"),
    ):
        file.with_stem(name).write_text(good.format(name=name, then=then))
        with pytest.raises(UserCodeError, match=re.escape(said)):
            source(trusted(f"{file.with_stem(name)}:{name}"))
    file.write_text(good.format(name="fine", then="pass"))
    assert [each.id for each in load_problems(trusted(f"{file}:fine"), split="train")] == ["1"]


def test_errors_of_the_package_and_settings_of_functions_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from ansatz.errors import ConfigError\ndef mine(*, size: int = 2):\n    raise ConfigError('mine')\n"
    )
    function = load_attribute(trusted(f"{file}:mine"), kind="thing")
    assert function.__name__ == "mine"
    with pytest.raises(ConfigError, match=r"^mine$"):
        function(size=3)
