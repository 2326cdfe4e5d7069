from __future__ import annotations

from typing import Any

import pytest

from ansatz.data.base import load_problems
from ansatz.errors import ConfigError


def targets(count: int = 2000, **settings: Any) -> Any:
    inner = {"source": "arithmetic", "count": count}
    return load_problems("target_lengths", split="train", settings={"of": inner, **settings})


def test_the_target_is_in_the_question_and_in_meta_and_the_rest_is_unchanged() -> None:
    inner = load_problems("arithmetic", split="train", settings={"count": 20})
    for plain, problem in zip(inner, targets(20), strict=True):
        tokens = problem.meta["target_tokens"]
        assert problem.question == f"{plain.question}\nThink for {tokens} tokens."
        assert (problem.id, problem.answer, problem.solution) == (plain.id, plain.answer, plain.solution)


def test_targets_are_uniform_and_include_both_ends() -> None:
    lengths = [problem.meta["target_tokens"] for problem in targets(min_tokens=10, max_tokens=13)]
    # 2,000 draws of four values: 5 standard deviations are 5 * sqrt(2000 * 3/16) = 97.
    assert all(abs(lengths.count(value) - 500) < 97 for value in (10, 11, 12, 13))


def test_the_target_of_a_row_depends_on_the_seed_but_not_on_other_rows() -> None:
    many = targets()
    assert targets(50)[:] == many[:50]
    assert targets(50, seed=1)[:] != many[:50]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_tokens": 0}, "min_tokens = 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "max_tokens = 8"),
        ({"text": "Think."}, r"text = 'Think.', expected \{tokens\}"),
        ({"of": {"path": "x"}}, r"of\.source = None"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        targets(**settings) if "of" not in settings else load_problems(
            "target_lengths", split="train", settings=settings
        )
