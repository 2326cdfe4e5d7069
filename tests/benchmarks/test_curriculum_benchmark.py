"""The benchmark of curricula: its sums by hand, and a cut-down run of it in a real process."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from toy_runs import REPOSITORY, toy

SCRIPT = REPOSITORY / "benchmarks" / "curriculum.py"


@pytest.fixture(scope="module")
def curriculum() -> Any:
    spec = importlib.util.spec_from_file_location("curriculum_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(arm: str, seed: int, *values: float, drawn: int = 100) -> dict[str, Any]:
    steps = [5 * place for place in range(len(values))]
    samples = [drawn * place for place in range(len(values))]
    row = {"arm": arm, "seed": seed, "steps": steps, "drawn": samples, "pass@1": list(values)}
    return {**row, "signal": 0.5, "seconds": 1.0}


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ((0.5, 0.8, 0.9, 0.9), 2),
        ((0.5, 0.85, 0.85), 1),
        ((0.5, 0.9, 0.8, 0.9, 0.9), 3),  # once above and back below is not there yet
        ((0.5, 0.8, 0.9), None),  # the last evaluation has no next one
        ((0.9, 0.9), 0),
    ],
)
def test_the_target_is_reached_where_the_next_evaluation_holds_it(curriculum: Any, values: Any, place: int) -> None:
    assert curriculum.reached(line("a", 0, *values), 0.85) == place


def test_rollouts_that_were_thrown_away_are_drawn_too(curriculum: Any) -> None:
    steps = [{"step": 1}, {"step": 2, "data/groups_discarded": 3.0}, {"step": 3, "data/groups_discarded": 5.0}]
    rollout = SimpleNamespace(prompts_per_step=10, samples_per_prompt=4)
    assert [curriculum.drawn(steps, until, rollout) for until in (0, 1, 2, 3)] == [0, 40, 92, 152]


def test_the_median_counts_a_seed_that_never_gets_there_as_last(curriculum: Any) -> None:
    found = [
        line("a", 1, 0.5, 0.9, 0.9, 0.9),
        line("a", 0, 0.5, 0.6, 0.9, 0.9),
        line("a", 2, 0.5, 0.6, 0.7, 0.8),
        line("b", 0, 0.5, 0.9, 0.9, 0.9, drawn=300),
        line("b", 1, 0.5, 0.6, 0.6, 0.6),
        line("b", 2, 0.5, 0.6, 0.7, 0.7),
    ]
    a, b = curriculum.summary(found, 0.85)
    assert (a["arm"], a["steps"], a["drawn"], a["reached"]) == ("a", 10, 200, 2)
    assert a["steps_by_seed"] == [10, 5, None]
    assert a["end"] == pytest.approx((0.9 + 0.9 + 0.8) / 3)
    assert (b["steps"], b["drawn"], b["reached"]) == (None, None, 1)
    text = curriculum.markdown([a, b], 0.85)
    assert "| `a` | 10 (10, 5, >15) | 200 | 50 % | 86.7 (80.0 to 90.0) |" in text
    assert "| `b` | >15 (5, >15, >15) |  |" in text


def test_the_table_takes_its_place_in_the_page_and_no_other(curriculum: Any) -> None:
    page = f"before\n{curriculum.START}\nold\n{curriculum.END}\nafter\n"
    once = curriculum.written_into(page, "new")
    assert once == f"before\n{curriculum.START}\nnew\n{curriculum.END}\nafter\n"
    assert curriculum.written_into(once, "new") == once
    with pytest.raises(ValueError, match="lacks the lines"):
        curriculum.written_into("a page", "new")


def test_arms_are_curricula_that_a_recipe_may_name(curriculum: Any) -> None:
    from ansatz.config.load import parse_yaml
    from ansatz.data.curriculum import curriculum_settings, samplers

    settings = [
        curriculum_settings(parse_yaml(text, where="arm")) for text in curriculum.ARMS.values() if text != "null"
    ]
    assert {one.sampler for one in settings} == set(samplers.names())
    assert any(one.drop_after_solved and one.pause_after_failed and one.dynamic_sampling for one in settings)


@pytest.mark.e2e
@pytest.mark.slow
def test_a_cut_down_run_draws_a_figure_and_is_not_repeated(curriculum: Any, tmp_path: Path) -> None:
    recipe = tmp_path / "toy.yaml"
    recipe.write_text(yaml.safe_dump(toy(tmp_path)))
    out, svg, page = tmp_path / "out", tmp_path / "c.svg", tmp_path / "page.md"
    arms = ["none", "variance_pause_dynamic"]
    given = ["--arms", *arms, "--seeds", "0", "--cap", "2", "--every", "1", "--recipe", str(recipe)]
    given += ["--set", "train.steps=4", "evaluate.problems=4"]

    def call() -> str:
        done = subprocess.run(
            [sys.executable, SCRIPT, "run", out, *given], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "SFT of 1 seeds" in call()
    found = {row["arm"]: row for row in curriculum.rows(out / "results.jsonl")}
    assert set(found) == set(arms)
    assert [row["steps"] for row in found.values()] == [[0, 1, 2]] * 2
    assert found["none"]["drawn"] == [0, 16, 32]
    assert found["variance_pause_dynamic"]["drawn"][-1] > 32  # a model of chance has groups without signal: refilled
    assert found["none"]["pass@1"][0] == found["variance_pause_dynamic"]["pass@1"][0]  # one checkpoint

    before = (out / "results.jsonl").read_bytes()
    assert "seed 0" not in call()
    assert (out / "results.jsonl").read_bytes() == before

    page.write_text(f"{curriculum.START}\n{curriculum.END}\n")
    curriculum.plot(argparse.Namespace(out=str(out), svg=str(svg), page=str(page), target=0.85))
    assert [svg.read_text().count(f'class="dot s{place}"') for place in range(3)] == [3, 3, 0]
    assert "`variance_pause_dynamic`" in page.read_text()
    assert [row["arm"] for row in json.loads((out / "summary.json").read_text())] == list(found)
