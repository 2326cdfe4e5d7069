"""Every guard of a verdict on made-up rows, in both directions. The rows were written before they were judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansatz.errors import ConfigError
from ansatz.findings import rows as row_files
from ansatz.findings.cells import choose_times
from ansatz.findings.rows import REGISTER, RowFile
from ansatz.findings.sweep_file import SweepFile, read_sweep
from ansatz.findings.verdicts import Result, Rows, describe, find_changes, judge

CONTROL = [0.41, 0.46, 0.38, 0.44, 0.52]
BETTER = [0.53, 0.55, 0.51, 0.54, 0.63]  # by 0.09 to 0.13: mean 0.11, standard deviation 0.0158, t = 15.6
SWEEP: dict[str, Any] = {
    "recipe": "tiny_arithmetic_grpo_cpu",
    "blocks": {"seeds": [0, 1, 2, 3, 4]},
    "arms": {"control": {}, "other": {"train.lr": 1e-3}},
    "outcome": {"name": "exact_pass@k"},
    "rule": {"difference": ["other", "control"]},
}


def read(folder: Path, **changes: Any) -> SweepFile:
    (folder / "mine.yaml").write_text(yaml.safe_dump(SWEEP | changes))
    return read_sweep(folder / "mine.yaml")


def row(block: int, arm: str, value: float | None, label: str = "exact_pass@k", **more: Any) -> dict[str, Any]:
    kept = {"block": block, "arm": arm, "times": 1.0, "status": "done", "why": "", "outcomes": {label: value}}
    return {**kept, "guards": {}, "curves": {}, "recipe": "x", "commit": "0a1b2c3d4e", **more}


def rows_of(control: list[float], other: list[float], label: str = "exact_pass@k") -> list[dict[str, Any]]:
    pairs = zip(control, other, strict=True)
    return [
        row(n, arm, value, label)
        for n, pair in enumerate(pairs)
        for arm, value in zip(("control", "other"), pair, strict=True)
    ]


def verdict(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Result:
    sweep = read(folder, **changes)
    (result,) = judge(Rows(sweep, rows))
    return result


def test_a_rule_about_variances_needs_no_tuning(tmp_path):
    arms = {"a": {"algorithm.advantage": "center"}, "b": {"algorithm.advantage": "group_zscore"}, "control": {}}
    spread = {"a": 0.3, "b": 0.001, "control": 0.0}
    rows = [
        row(n, arm, 0.5 + by * value, "exact_pass@k")
        for n, value in enumerate((0.9, -0.7, 0.3, -1.1, 0.6))
        for arm, by in spread.items()
    ]
    for place, one in enumerate(rows):  # not proportional
        one["outcomes"]["exact_pass@k"] += 1e-4 * (place * 7 % 5)
    rule = {"ratio_of_variances": [["a", "control"], ["b", "control"]]}
    assert verdict(tmp_path, rows, arms=arms, rule=rule).verdict == "supported"


def test_a_difference_of_the_order_of_rounding_has_no_p_and_no_verdict(tmp_path):
    for direction in ("greater", "less", "equal"):
        rule = {"difference": ["other", "control"], "direction": direction}
        same = verdict(tmp_path, rows_of(CONTROL, [each + 1e-9 for each in CONTROL]), rule=rule)
        assert (same.verdict, same.p, same.interval) == ("no difference beyond rounding", None, None)
    itself = verdict(tmp_path, rows_of(CONTROL, BETTER), rule={"difference": ["other", "other"]})
    assert (itself.verdict, itself.p) == ("no difference beyond rounding", None)
    constant = verdict(tmp_path, rows_of(CONTROL, [each + 0.0625 for each in CONTROL]))
    assert (constant.verdict, constant.p) == ("not testable here", None)
    small = verdict(tmp_path, rows_of(CONTROL, [each + 1e-4 * n for n, each in enumerate(CONTROL, start=1)]))
    assert small.verdict == "supported, but small"


def test_a_sweep_in_which_nothing_was_learned_is_not_refuted(tmp_path):
    tiny = [3e-20, 8.4e-20, 2.9e-34, 1e-22, 7e-21]
    for direction in ("greater", "less", "equal"):
        rule = {"difference": ["other", "control"], "direction": direction}
        assert verdict(tmp_path, rows_of(tiny, tiny[::-1]), rule=rule).verdict == "not testable here"
    low = [0.003, 0.001, 0.004, 0.002, 0.006]
    assert verdict(tmp_path, rows_of(low, low[::-1])).verdict == "not testable here"
    assert verdict(tmp_path, rows_of(low, CONTROL)).verdict == "supported"  # one of the arms has learned


@pytest.mark.parametrize(
    ("control", "other", "direction", "expected"),
    [
        ([0.991, 0.989, 0.995, 0.99, 0.986], [0.99, 0.992, 0.993, 0.991, 0.988], "greater", "not testable here"),
        ([0.991, 0.989, 0.995, 0.99, 0.986], [0.99, 0.992, 0.993, 0.991, 0.988], "equal", "not testable here"),
        ([0.971, 0.969, 0.975, 0.97, 0.966], [0.97, 0.972, 0.973, 0.971, 0.968], "equal", "supported"),
        ([0.991, 0.989, 0.995, 0.99, 0.986], [0.61, 0.72, 0.55, 0.58, 0.66], "less", "supported"),
        ([0.012, 0.008, 0.015, 0.011, 0.009], [0.013, 0.007, 0.012, 0.01, 0.011], "less", "not testable here"),
        ([0.052, 0.048, 0.055, 0.051, 0.049], [0.013, 0.007, 0.012, 0.01, 0.011], "less", "supported"),
    ],
)
def test_a_difference_that_matters_must_fit_between_the_control_and_the_ceiling_or_floor(
    tmp_path, control, other, direction, expected
):
    rule = {"difference": ["other", "control"], "direction": direction}
    for label, outcome in (("exact_pass@k k=64", {"name": "exact_pass@k", "k": 64}), ("sampled_pass@1", None)):
        given = outcome or {"name": label}
        assert verdict(tmp_path, rows_of(control, other, label), rule=rule, outcome=given).verdict == expected
    own = {"name": "mine.py:length"}  # has no bounds
    free = verdict(tmp_path, rows_of(control, other, "mine.py:length"), rule=rule, outcome=own)
    assert free.verdict != "not testable here"


@pytest.mark.parametrize(("other", "expected"), [(0.09, "supported"), (0.021, "not testable here")])
def test_the_quantity_that_an_arm_manipulates_must_have_moved_between_the_arms(tmp_path, other, expected):
    rows = rows_of(CONTROL, BETTER)
    for each in rows:
        each["guards"] = {"train/clip_frac": 0.02 if each["arm"] == "control" else other}
    assert verdict(tmp_path, rows, moved={"train/clip_frac": 0.01}).verdict == expected
    stored = [{**each, "guards": {}, "curves": {"train/clip_frac": [[1, 0.0], [2, 0.01]]}} for each in rows]
    assert verdict(tmp_path, stored, moved={"train/clip_frac": 0.01}).verdict == "not testable here"
    unknown = [{**each, "guards": {}} for each in rows]
    assert verdict(tmp_path, unknown, moved={"train/clip_frac": 0.01}).verdict == "not testable here"


def test_a_guard_of_a_rule_concerns_its_arms_and_no_other_rule(tmp_path):
    rows = rows_of(CONTROL, BETTER)
    for each in rows:
        each["guards"] = {"exact_pass@k k=64 step=0": 0.97 if each["arm"] == "other" else 0.5}
    guards = {"exact_pass@k k=64 step=0": [0.02, 0.96]}
    plain = {"name": "plain", "difference": ["other", "control"]}
    sweep = read(tmp_path, rule=[plain, {**plain, "name": "guarded", "guards": guards}])
    assert [each.verdict for each in judge(Rows(sweep, rows))] == ["supported", "not testable here"]
    wider = read(tmp_path, rule=[plain, {**plain, "guards": {"exact_pass@k k=64 step=0": [0.02, 0.98]}}])
    assert [each.verdict for each in judge(Rows(wider, rows))] == ["supported", "supported"]


@pytest.mark.parametrize(("first", "expected"), [(0.31, "supported"), (0.47, "not testable here")])
def test_a_mark_must_lie_after_the_first_evaluation(tmp_path, first, expected):
    label = "steps_to value=0.4"
    rows = rows_of([14.0, 17.0, 15.0, 18.5, 16.0], [11.0, 13.5, 12.0, 13.0, 12.5], label)
    rows = [{**each, "curves": {"exact_pass@1": [[0, 0.2], [10, first], [20, 0.6]]}} for each in rows]
    rule = {"difference": ["other", "control"], "direction": "less", "delta": 1}
    assert verdict(tmp_path, rows, rule=rule, outcome={"name": "steps_to", "value": 0.4}).verdict == expected


def test_an_algorithm_is_not_decided_before_the_rate_of_its_arms_is_tuned_on_other_blocks(tmp_path):
    rows = rows_of(CONTROL, BETTER)
    arms = {"control": {"rejection": {"problems": 8}}, "other": {"algorithm.preset": "online_rft"}}
    assert verdict(tmp_path, rows, arms=arms).verdict == "undecided until tuned"
    assert verdict(tmp_path, rows_of(BETTER, CONTROL), arms=arms).verdict == "undecided until tuned"
    noisy = rows_of(CONTROL, [0.9, 0.2, 0.8, 0.1, 0.6])
    assert verdict(tmp_path, noisy, arms=arms).verdict == "undecided"
    tune = {"times": [1, 2], "seeds": [100], "key": {"control": "sft.lr", "other": "train.lr"}}
    assert verdict(tmp_path, rows, arms=arms, tune=tune).verdict == "undecided until tuned"  # no tuning has been run
    tuning = [row(100, arm, 0.5) | {"times": times} for arm in arms for times in (1.0, 2.0)]
    assert verdict(tmp_path, rows + tuning, arms=arms, tune=tune).verdict == "supported"
    assert verdict(tmp_path, rows).verdict == "supported"  # a rate is not an algorithm
    with pytest.raises(ConfigError, match=r"tune\.seeds has 4, which is a block of the test"):
        read(tmp_path, tune={"seeds": [4, 100]})


def test_the_rate_and_the_arm_with_the_fewest_steps_to_a_mark_are_the_best(tmp_path):
    outcome, label = {"name": "steps_to", "value": 0.4}, "steps_to value=0.4"
    tune = {"times": [1, 2, 3], "seeds": [100]}
    sweep = read(tmp_path, outcome=outcome, arms={"control": {}}, tune=tune, rule=[])
    steps = {1.0: 30.0, 2.0: 20.0, 3.0: None}  # the third never reaches the mark
    rows = [row(100, "control", value, label, times=times) for times, value in steps.items()]
    assert choose_times(sweep, rows) == {"control": 2.0}
    sweep = read(tmp_path, outcome=outcome, arms={}, grid={"train.lr": [0.1, 0.2, 0.3]}, rule=[])
    rows = [row(0, f"lr {times / 10}", value, label) for times, value in steps.items()]
    assert Rows(sweep, rows).arm_of({}, outcome) == "lr 0.2"
    rows += [row(1, f"lr {times / 10}", value, label) for times, value in ((1.0, 30.0), (2.0, None), (3.0, None))]
    assert Rows(sweep, rows).arm_of({}, outcome) == "lr 0.1"  # the only one that reaches the mark in both blocks


@pytest.mark.parametrize(("blocks", "expected"), [(4, "too few blocks"), (5, "supported")])
def test_fewer_than_five_blocks_are_too_few(tmp_path, blocks, expected):
    result = verdict(tmp_path, rows_of(CONTROL[:blocks], BETTER[:blocks]))
    assert (result.verdict, result.p is None) == (expected, blocks < 5)


def test_a_verdict_says_whether_it_survives_holm(tmp_path):
    """The p of one rule is 5.0e-5. Among 600 rules it is 0.03 after the correction, of at most 0.025."""
    rule = {"difference": ["other", "control"]}
    alone = judge(Rows(read(tmp_path), rows_of(CONTROL, BETTER)))
    assert describe(alone) == ["supported, survives Holm"]
    assert alone[0].p == pytest.approx(5.0e-5, rel=0.05)
    many = judge(Rows(read(tmp_path, rule=[rule] * 600), rows_of(CONTROL, BETTER)))
    assert set(describe(many)) == {"supported, does not survive Holm"}
    lower = judge(Rows(read(tmp_path), rows_of(BETTER, CONTROL)))
    assert describe(lower) == ["refuted, survives Holm"]
    assert lower[0].p is not None
    assert lower[0].p < 1e-3


def test_rows_of_another_commit_are_left_out_of_the_verdict_and_refused_by_the_sweep(tmp_path):
    rows = rows_of(CONTROL, BETTER)
    rows[-1] |= {"outcomes": {"exact_pass@k": 0.1}, "commit": "ffffffffff"}
    read_rows = Rows(read(tmp_path), rows)
    (result,) = judge(read_rows)
    assert list(result.values) == [0, 1, 2, 3]
    assert read_rows.left_out == {"ffffffffff": 1}
    assert find_changes(read_rows, {"registered": read_rows.sweep.digests()}) == ["rows"]
    assert Rows(read(tmp_path), rows[:-1]).left_out == {}


def test_a_sweep_does_not_reuse_the_row_or_the_run_of_another_commit(tmp_path, monkeypatch):
    from ansatz.findings import cells as cell_module

    sweep = read(tmp_path)

    def at(commit: str) -> Any:
        monkeypatch.setattr(cell_module, "code_commit", lambda: commit)
        monkeypatch.setattr(row_files, "code_commit", lambda: commit)
        return cell_module.Cells(sweep, tmp_path / "out").cell(0, "control")

    cell = at("0a1b2c3d4e")
    stored = RowFile(tmp_path, sweep, tmp_path / "mine.yaml")
    stored.add(row(0, "control", 0.5) | {"recipe": cell.digest}, cpu_s=1.0)
    assert stored.has(cell)
    later = at("ffffffffff")
    assert later.config.run_dir != cell.config.run_dir
    with pytest.raises(ConfigError, match="was made by commit 0a1b2c3d4e, and this is ffffffffff"):
        stored.has(later)
    assert at("0a1b2c3d4e").config.run_dir == cell.config.run_dir


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("claim", {"claim": {"text": "Other is better by far."}}),
        ("arms", {"arms": {"control": {}, "other": {"train.lr": 2e-3}}}),
        ("rule", {"rule": {"difference": ["other", "control"], "delta": 0.01}}),
        ("outcome", {"outcome": {"name": "exact_pass@k", "k": 2}}),
        ("guards", {"rule": {"difference": ["other", "control"], "guards": {"exact": [0, 1]}}}),
        ("guards", {"moved": {"train/clip_frac": 0.01}}),
    ],
)
def test_a_change_after_the_first_result_is_exploratory_also_when_the_rows_are_made_again(tmp_path, part, change):
    first = RowFile(tmp_path, read(tmp_path), tmp_path / "mine.yaml")
    assert not (tmp_path / REGISTER).exists()
    first.add(row(0, "control", 0.5), cpu_s=1.0)
    first.path.unlink()
    again = RowFile(tmp_path, read(tmp_path, **change), tmp_path / "mine.yaml")
    for each in rows_of(CONTROL, BETTER, "exact_pass@k k=2" if part == "outcome" else "exact_pass@k"):
        again.add(each, cpu_s=1.0)
    (line,) = again.judge()
    assert f"(exploratory: {part} changed)" in line
    assert len((tmp_path / REGISTER).read_text().splitlines()) == 1


def test_what_is_written_about_a_result_changes_nothing_that_was_registered(tmp_path):
    first = RowFile(tmp_path, read(tmp_path), tmp_path / "mine.yaml")
    first.add(row(0, "control", 0.5), cpu_s=1.0)
    told = read(tmp_path, claim={"text": "", "summary": "What came out.", "corrected": "Before: supported."})
    again = RowFile(tmp_path, told, tmp_path / "mine.yaml")
    for each in rows_of(CONTROL, BETTER)[1:]:
        again.add(each, cpu_s=1.0)
    assert "exploratory" not in next(iter(again.judge()))
