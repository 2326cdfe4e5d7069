"""The decisions of the watchdog: conditions, windows, actions, and that a resumed run decides the same way."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansatz.config.load import parse_section
from ansatz.config.watchdog import WatchdogSection
from ansatz.errors import ConfigError
from ansatz.track.metrics import Minimum, load_metrics
from ansatz.track.rules import Rule, collapse_rules, rules_of
from ansatz.track.watchdog import WatchState, observe

SECTION = WatchdogSection(lr_factor=0.5)


def rule(**changes):
    return Rule(**{"name": "r", "metric": "train/entropy", "condition": "below", "limit": 0.1, "window": 3} | changes)


def run(rules, rows, section=SECTION, state=None):
    """The decisions on rows, and the state after each."""
    state, decisions = state or WatchState(), []
    for step, metrics in rows:
        decisions.append(observe(rules, section, state, step, metrics))
        state = decisions[-1].state
    return decisions


def curve(values, spread=None):
    """Rows of a metric; spread: of the rewards, in every step."""
    others = {} if spread is None else {"rollout/reward_std": spread}
    return [(step, {"train/entropy": value, **others}) for step, value in enumerate(values, start=1)]


def alarms(decisions):
    """(step, is_over) of all findings."""
    return [(finding.step, finding.is_over) for decision in decisions for finding in decision.findings]


@pytest.mark.parametrize(
    ("changes", "values", "expected"),
    [
        # The mean of steps 4 to 6 is 0.09: one low value of three is not enough, two are.
        ({}, [0.2, 0.2, 0.2, 0.17, 0.09, 0.01], [(6, False)]),
        ({"condition": "above", "limit": 0.5}, [0.2, 0.2, 0.9, 0.2, 0.9, 0.9], [(5, False)]),
        ({"condition": "grows_by", "limit": 2.0}, [10, 10, 10, 20, 20, 20, 21], [(7, False)]),
        ({"condition": "grows_by", "limit": 2.0}, [10, 20, 30, 30], [(4, False)]),
        # The best mean is 0.8 and the spread 0.4, so the limit is 0.8 - 0.5 x 0.4 = 0.6.
        ({"condition": "falls_by", "limit": 0.5}, [0.8, 0.8, 0.8, 0.52, 0.52, 0.52], [(6, False)]),
        ({"condition": "falls_by", "limit": 0.5}, [0.1, 0.1, 0.8, 0.8, 0.61, 0.61], []),
        # A third of the first value, 30, whatever came in between; the mean of steps 5 to 7 is 9.7.
        ({"condition": "falls_to", "limit": 0.33}, [30, 60, 60, 60, 10, 10, 9], [(7, False)]),
        # The first value is 0.3, so the limit is 0.8; after the fall to a mean of 0.1 it is 0.6.
        ({"condition": "rises_by", "limit": 0.5}, [0.3, 0.79, 0.79, 0.79, 0.9], [(5, False)]),
        ({"condition": "rises_by", "limit": 0.5}, [0.3, 0.1, 0.1, 0.1, 0.6, 0.6, 0.6, 0.7], [(8, False)]),
        ({"window": 1}, [0.2, 0.01, 0.01, 0.2, 0.01], [(2, False), (4, True), (5, False)]),
    ],
)
def test_the_mean_of_the_window_is_judged(changes, values, expected):
    rows = curve(values, spread=0.4)
    assert alarms(run([rule(**changes)], rows)) == expected


def test_an_alarm_is_over_after_as_many_healthy_judgements_as_the_window_has_steps():
    decisions = run([rule()], curve([0.0] * 3 + [0.2] * 6))
    assert alarms(decisions) == [(3, False), (7, True)]


def test_falls_by_needs_a_spread_of_rewards():
    """Rewards that do not differ within a group show nothing about the scale of the reward."""
    rows = curve([0.8, 0.8, 0.8, 0.1, 0.1, 0.1], spread=0.0)
    assert alarms(run([rule(condition="falls_by", limit=0.5)], rows)) == []


def test_a_slow_fall_is_bad_since_the_metric_was_last_near_its_best():
    """The best mean is 0.8 and an alarm comes below 0.6. A mean of 0.75, a quarter of the way, is still near the best:
    the last such window has steps 4 to 6 (0.78, 0.78, 0.72)."""
    values = [0.8, 0.8, 0.8, 0.78, 0.78, 0.72, 0.70, 0.68, 0.66, 0.64, 0.60, 0.57, 0.50]
    decision = run([rule(condition="falls_by", limit=0.5, action="rollback")], curve(values, spread=0.4))[-1]
    assert decision.cause is not None
    assert (decision.action, decision.cause.first_step, decision.first_bad_step) == ("rollback", 11, 5)


def test_a_sudden_fall_is_bad_from_its_window_on_at_the_latest():
    """Steps 1 to 3 are near the best, and so are steps 2 to 4; the alarm's window starts with step 3."""
    falls = [rule(condition="falls_by", limit=0.5, action="rollback")]
    decision = run(falls, curve([0.8, 0.8, 0.8, 0.68, 0.1], spread=0.4))[-1]
    assert decision.cause is not None
    assert (decision.action, decision.cause.first_step, decision.first_bad_step) == ("rollback", 3, 3)


@given(st.floats(0.01, 100), st.floats(-50, 50), st.lists(st.floats(0, 1), min_size=3, max_size=30))
def test_falls_by_does_not_depend_on_the_scale_of_the_reward(scale, offset, values):
    falls = [rule(condition="falls_by", limit=0.5)]
    values = [round(value, 2) for value in values]  # away from rounding at the limit
    plain = run(falls, curve(values, spread=0.401))
    scaled = run(falls, curve([offset + scale * value for value in values], spread=0.401 * scale))
    assert alarms(plain) == alarms(scaled)


def test_a_step_without_the_metric_is_left_out():
    rows = [(1, {"train/entropy": 0.0}), (2, {}), (3, {"train/entropy": 0.0}), (4, {"train/entropy": 0.0})]
    (finding,) = run([rule()], rows)[-1].findings
    assert (finding.first_step, finding.step, finding.value) == (1, 4, 0.0)


def test_a_metric_that_was_never_healthy_is_only_warned_of():
    acting = [rule(condition="above", limit=0.3, action="rollback")]
    decisions = run(acting, curve([0.9] * 6))
    assert alarms(decisions) == [(3, False)]
    assert {decision.action for decision in decisions} == {"ignore"}
    started_well = run(acting, curve([0.0] + [0.9] * 4))
    assert [decision.action for decision in started_well if decision.action != "ignore"] == ["rollback"]
    healed = run(acting, curve([0.9] * 3 + [0.0] * 6 + [0.9] * 3))
    assert [decision.action for decision in healed if decision.action != "ignore"] == ["rollback"]


@pytest.mark.parametrize(
    ("name", "metric", "value"),
    [("kl", "train/kl_ref", 3.0), ("update_kl", "train/approx_kl", 0.9), ("ratio", "train/ratio_mean", 1.8)],
)
def test_a_metric_that_is_healthy_at_every_start_acts_from_the_first_step_on(name, metric, value):
    """The reference is the policy at the start of the stage, so a KL that is large in step 1 comes from its updates."""
    section = WatchdogSection(action="rollback")
    rows = [(step, {metric: value}) for step in range(1, 7)]
    acted = [decision for decision in run(rules_of(section), rows, section) if decision.action == "rollback"]
    assert acted[0].cause is not None
    assert (acted[0].cause.rule.name, acted[0].cause.step, acted[0].first_bad_step) == (name, 5, 1)


def test_a_slow_rise_is_seen_however_long_it_takes():
    """Within 50 steps the entropy never rises by 0.5, but since the start it does."""
    rises = [rule(condition="rises_by", limit=0.5, window=5)]
    ((step, is_over),) = alarms(run(rises, curve([0.3 + 0.005 * step for step in range(150)])))
    assert (step, is_over) == (104, False)  # the mean of steps 100 to 104 is 0.3 + 0.005 x 101 = 0.805


def collapsing(**curves):
    """Rows of a policy whose other metrics stay as they were in a healthy run."""
    healthy = {
        "rollout/rewards": 0.9,
        "rollout/reward_std": 0.2,
        "rollout/accuracy": 0.9,
        "rollout/groups_with_signal_frac": 0.5,
        "rollout/response_length": 28.0,
        "train/entropy": 0.07,
    }
    named = {name.replace("__", "/"): values for name, values in curves.items()}
    return [
        (step + 1, {**healthy, **{name: values[min(step, len(values) - 1)] for name, values in named.items()}})
        for step in range(20)
    ]


@pytest.mark.parametrize(
    ("curves", "name"),
    [
        ({"rollout__response_length": [28.0, 20.0, 12.0, 6.0, 3.0, 1.0]}, "length_fall"),
        ({"rollout__response_length": [28.0, 1.0]}, "length_fall"),
        ({"rollout__response_length": [28.0, 40.0, 60.0, 90.0]}, "length"),
        ({"train__entropy": [0.07, 0.5, 1.0, 3.0]}, "entropy_rise"),
        ({"train__entropy": [0.07, 5.0]}, "entropy_rise"),
        (
            {
                "train__entropy": [0.07] * 5 + [0.001],
                "rollout__accuracy": [0.3],
                "rollout__groups_with_signal_frac": [0.1],
            },
            "entropy",
        ),
        ({"train__kl_ref": [2.0]}, "kl"),
    ],
)
def test_the_rules_of_collapse_look_in_both_directions(curves, name):
    """The reward pays for what goes wrong, so it does not fall."""
    section = WatchdogSection(action="stop")
    decisions = run(rules_of(section), collapsing(**curves), section)
    first = next(decision for decision in decisions if decision.action == "stop")
    assert first.cause is not None
    assert first.cause.rule.name == name
    assert first.cause.step <= 10


def test_a_metric_that_others_excuse_raises_no_alarm_until_they_no_longer_do():
    excused = rule(window=4, unless=(Minimum("rollout/accuracy", 0.8), Minimum("train/lr", 1.0)))
    accuracies = [0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9]
    rows = [(step, {"train/entropy": 0.01, "rollout/accuracy": each}) for step, each in enumerate(accuracies, start=1)]
    decisions = run([excused], rows)
    assert alarms(decisions) == [(5, False), (11, True)]  # one step of four is excused; then two or more, four times
    texts = [finding.text for decision in decisions for finding in decision.findings]
    assert "is below 0.1 while rollout/accuracy is under 0.8 and train/lr is under 1." in texts[0]
    assert "raises no alarm while rollout/accuracy is at least 0.8 or train/lr is at least 1." in texts[1]


def test_lower_lr_acts_once_per_window_and_stops_when_the_attempts_are_used_up():
    section = WatchdogSection(attempts=2, lr_factor=0.1)
    decisions = run([rule(action="lower_lr")], curve([0.2] * 3 + [0.0] * 8), section)
    acted = [(step, decision.action) for step, decision in enumerate(decisions, start=1) if decision.cause]
    assert acted == [(5, "lower_lr"), (8, "lower_lr"), (11, "stop")]
    assert decisions[-1].state.lr_scale == pytest.approx(0.01)
    assert decisions[-1].state.attempts == 2


def test_the_most_severe_action_wins_and_the_longest_window_decides_where_the_bad_steps_begin():
    rules = [
        rule(name="long", window=5, action="rollback"),
        rule(name="short", window=1, limit=0.05, action="rollback"),
        rule(name="mild", window=1, limit=0.05, action="lower_lr"),
    ]
    decisions = run(rules, curve([0.11] * 5 + [0.0]))
    assert (decisions[-1].action, decisions[-1].first_bad_step) == ("rollback", 2)
    assert (decisions[-1].state.rollbacks, decisions[-1].state.attempts, decisions[-1].state.lr_scale) == (1, 1, 0.5)


rows_of_metrics = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "train/entropy": st.sampled_from([0.0, 0.03, 0.2]),
            "rollout/truncated_frac": st.sampled_from([0.0, 0.1, 0.9]),
            "rollout/rewards": st.floats(0, 1),
            "rollout/reward_std": st.floats(0, 0.5),
            "rollout/response_length": st.floats(1, 100),
            "rollout/accuracy": st.sampled_from([0.1, 0.9]),
            "align/mean_exp_gap": st.sampled_from([1.0, 1.03]),
        },
    ),
    max_size=40,
)
actions = st.sampled_from(["warn", "lower_lr", "rollback", "stop"])


@given(rows_of_metrics, actions, actions, st.integers(1, 4), st.integers(0, 3), st.data())
def test_a_run_that_resumes_at_any_step_decides_as_one_that_was_left_alone(
    metrics, collapse, own, window, attempts, data
):
    changes = {"entropy": {"action": own, "window": window}, "length": {"window": window}}
    section = WatchdogSection.model_validate({"action": collapse, "rules": changes, "attempts": attempts})
    rules, rows = rules_of(section), list(enumerate(metrics, start=1))
    whole = run(rules, rows, section)
    at = data.draw(st.integers(0, len(rows)))
    state = whole[at - 1].state if at else WatchState()
    restored = WatchState.from_json(json.loads(json.dumps(state.to_json(), allow_nan=False)))
    assert restored == state
    assert run(rules, rows[at:], section, restored) == whole[at:]


def test_every_metric_with_a_range_has_a_rule_that_warns():
    rules = {rule.name: rule for rule in rules_of(WatchdogSection(action="rollback"))}
    for metric in load_metrics().values():
        if metric.has_range:
            assert rules[metric.name].action == "warn"
            assert rules[metric.name].limit == (metric.high if metric.low is None else metric.low)
    assert {rules[each.name].action for each in collapse_rules("rollback")} == {"rollback"}


def test_a_recipe_changes_rules_and_adds_its_own():
    section = WatchdogSection.model_validate(
        {
            "action": "ignore",
            "rules": {
                "truncated": {"above": 0.5, "window": 10, "action": "stop"},
                "rollout/repetition": {"action": "ignore"},
                "train/entropy": {"action": "ignore"},  # a metric that has no range any more
                "short": {"metric": "rollout/response_length", "below": 20},
            },
        }
    )
    rules = {rule.name: rule for rule in rules_of(section)}
    assert (rules["truncated"].limit, rules["truncated"].window, rules["truncated"].action) == (0.5, 10, "stop")
    assert (rules["short"].condition, rules["short"].limit, rules["short"].action) == ("below", 20, "warn")
    assert "rollout/repetition" not in rules
    assert "train/entropy" not in rules
    assert "entropy" not in rules


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"rules": {"truncted": {"above": 1}}}, r"watchdog\.rules\.truncted: .*`metric`.*Did you mean.*truncated"),
        (
            {"rules": {"truncated": {"metric": "truncated_frac"}}},
            r"watchdog\.rules\.truncated\.metric = 'truncated_frac'",
        ),
        ({"rules": {"truncated": {"above": 1, "below": 2}}}, "a rule has one condition"),
        ({"rules": {"truncated": {"window": 0}}}, r"watchdog\.rules\.truncated\.window = 0"),
        ({"rules": {"reward": {"falls_by": -1}}}, r"falls_by = -1"),
        ({"rules": {"length_fall": {"falls_to": 1.5}}}, r"falls_to = 1\.5"),
        ({"action": "panic"}, r"watchdog\.action = 'panic'"),
        ({"lr_factor": 1}, r"watchdog\.lr_factor = 1"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_a_sentence(section, message):
    with pytest.raises(ConfigError, match=message):
        rules_of(parse_section(WatchdogSection, section, name="watchdog"))


def test_the_page_of_the_watchdog_lists_the_rules_of_collapse_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "watchdog.md").read_text(encoding="utf-8")
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    expected = [f"| `{rule.name}` | `{rule.metric}` | {rule.description()} |" for rule in collapse_rules("warn")]
    assert listed == expected
    (unless,) = (rule.unless for rule in collapse_rules("warn") if rule.unless)
    words = ", or ".join(f"`{metric}` at least {value:g}" for metric, value in unless)
    assert words.replace("` at", "` is at", 1) in " ".join(page.split())
