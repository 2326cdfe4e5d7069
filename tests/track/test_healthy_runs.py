"""No rule of the watchdog raises an alarm in healthy runs of packaged recipes, and each metric that fails is seen."""

import json
from pathlib import Path

import pytest

from ansatz.config import load_recipe
from ansatz.config.watchdog import WatchdogSection
from ansatz.track.health import health_checks
from ansatz.track.rules import rules_of
from ansatz.track.runs import StageRun
from ansatz.track.watchdog import Alarm, WatchState, observe

RECIPES = Path(__file__).parents[2] / "recipes"
RUNS = sorted((Path(__file__).parent / "healthy_runs").glob("*.json"))
LENGTH, ENTROPY, KL = "rollout/response_length", "train/entropy", "train/kl_ref"
WORSE = "rollout/accuracy", "rollout/groups_with_signal_frac"


def read(path: Path):
    """(section of the recipe, rows) of a stored run."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    num_steps = len(stored["metrics"]["rollout/rewards"])
    curves = {name: each if isinstance(each, list) else [each] * num_steps for name, each in stored["metrics"].items()}
    rows = [
        {"step": step, "seconds": 0.0, **dict(zip(curves, values, strict=True))}
        for step, values in enumerate(zip(*curves.values(), strict=True), start=1)
    ]
    rows = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return load_recipe(RECIPES / f"{stored['recipe']}.yaml").watchdog, rows


def findings(section: WatchdogSection, rows) -> list[Alarm]:
    state, found = WatchState(), list[Alarm]()
    for row in rows:
        decision = observe(rules_of(section), section, state, row["step"], row)
        state, found = decision.state, [*found, *decision.findings]
    return found


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_no_rule_raises_an_alarm_in_a_healthy_run(path):
    section, rows = read(path)
    assert len(rows) >= 20
    assert [finding.text for finding in findings(section, rows)] == []
    run = StageRun(name="rl", folder=path.parent, metrics=tuple(rows), evaluations=())
    checks = health_checks(run, section)
    assert [check.text for check in checks if not check.fine] == []
    assert len(checks) >= 10


def test_several_recipes_are_held_against_the_rules():
    assert len(RUNS) >= 5
    assert "tiny_arithmetic_grpo_cpu" in [path.stem for path in RUNS]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("rule", "failing"),
    [
        ("length_fall", lambda row, by: {LENGTH: max(1.0, row[LENGTH] * (1 - by))}),
        ("length", lambda row, by: {LENGTH: row[LENGTH] * (1 + 2 * by)}),
        ("entropy_rise", lambda row, by: {ENTROPY: row.get(ENTROPY, 0.0) + by}),
        (
            "entropy",
            lambda row, by: {
                ENTROPY: row.get(ENTROPY, 0.0) * (1 - by),
                **{name: row[name] * (1 - by) for name in WORSE},
            },
        ),
        ("kl", lambda row, by: {KL: 2.0 * by}),
        ("reward", lambda row, by: {"rollout/rewards": row["rollout/rewards"] * (1 - by)}),
        ("truncated", lambda row, by: {"rollout/truncated_frac": by}),
        ("repetition", lambda row, by: {"rollout/repetition": by}),
        ("gap", lambda row, by: {"align/mean_exp_gap": row["align/mean_exp_gap"] + 0.03 * by}),
        (WORSE[1], lambda row, by: {name: row[name] * (1 - by) for name in WORSE}),
    ],
)
def test_a_healthy_run_in_which_a_metric_then_fails_raises_the_alarm_of_that_rule(path, rule, failing):
    """From step 11 on, over five steps."""
    section, rows = read(path)
    broken = [row | failing(row, min(1.0, (row["step"] - 10) / 5)) if row["step"] > 10 else row for row in rows]
    assert rule in [finding.rule.name for finding in findings(section, broken)]
