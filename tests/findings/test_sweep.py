"""Whole sweeps at toy size, with the real command."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from slow_verdicts import rows_of
from slow_verdicts import verdicts as slow_verdicts
from toy_runs import command, start, toy

from ansatz.config.layers import merge
from ansatz.errors import ConfigError
from ansatz.findings.cells import Cells, check_cells
from ansatz.findings.sweep_file import read_sweep
from ansatz.track.jsonl import read_jsonl
from tools.findings.pages import read_finding

GRID: dict[str, Any] = {
    "claim": {"text": "A higher rate is better.", "sources": [{"document": "nobody", "section": 1}]},
    "start": {"stages": ["sft"]},
    "blocks": {"seeds": [0, 1]},
    "grid": {"train.lr": [1e-3, 2e-3], "algorithm.kl_coef": [0, 0.1]},
    "outcome": {"name": "exact_pass@k"},
    "rule": {"difference": [{"train.lr": 2e-3}, {"train.lr": 1e-3}]},
    "guards": {"rollout/truncated_frac": [0.0, 1.0]},
    "figure": {"heat": ["train.lr", "algorithm.kl_coef"]},
}


def write_sweep(folder: Path, sweep: dict[str, Any], changes: dict[str, Any] | None = None, **more: Any) -> Path:
    """A sweep file of the toy recipe, next to it."""
    recipe = folder / "toy.yaml"
    small = {"data": {"sft": {"count": 40}, "train": {"count": 40}}, "train": {"steps": 2}, "sft": {"steps": 2}}
    recipe.write_text(yaml.safe_dump(toy(folder, merge(small, changes or {}))))
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({"recipe": str(recipe), **sweep, **more}, sort_keys=False))
    return path


def run(path: Path, *options: str, workers: bool = False) -> tuple[int, str, str]:
    folders = ("--rows", path.parent / "rows", "--out", path.parent / "out")
    return command("sweep", path, *folders, *options, timeout_s=1200, workers=workers)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished 2 x 2 x 2 sweep, and what the command printed."""
    path = write_sweep(tmp_path_factory.mktemp("grid"), GRID)
    code, out, err = run(path)
    assert code == 0, err
    return path.parent, out


def test_a_grid_has_a_row_for_each_arm_and_block_and_a_registered_head(grid: tuple[Path, str]) -> None:
    folder, out = grid
    header, *rows = read_jsonl(folder / "rows" / "mine.jsonl")
    assert set(header["registered"]) == {"claim", "recipe", "arms", "outcome", "rule", "guards"}
    assert [(row["block"], row["arm"]) for row in rows] == [
        (block, f"lr {lr}, kl_coef {kl}") for block in (0, 1) for lr in (0.001, 0.002) for kl in (0, 0.1)
    ]
    assert {row["status"] for row in rows} == {"done"}
    assert all(0 <= row["outcomes"]["exact_pass@k"] <= 1 for row in rows)
    assert all([x for x, _ in row["curves"]["exact_pass@1"]] == [0, 2] for row in rows)
    assert all(len(json.dumps(row)) < 2000 for row in rows)
    assert "8 cells, 8 without a row" in out
    assert "n = 2" in out


def test_arms_of_a_block_share_start_problems_and_noise(grid: tuple[Path, str]) -> None:
    """The first step of all arms has the same rollouts, bit for bit; another block has others."""
    folder, _ = grid

    def first_step(block: int) -> list[str]:
        runs = sorted(path for path in (folder / "out" / f"block-{block:04d}").glob("lr-*"))
        assert len(runs) == 4
        return [(path / "rl" / "samples" / "step-000001.jsonl").read_text() for path in runs]

    assert len(set(first_step(0))) == 1
    assert len(set(first_step(1))) == 1
    assert first_step(0)[0] != first_step(1)[0]


def test_two_sweeps_run_an_equal_start_and_an_equal_cell_once(grid: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = grid
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("block-*/*/summary.json")}
    kept = {key: GRID[key] for key in ("claim", "start", "blocks", "outcome")}
    known = {"train.lr": 2e-3, "algorithm.kl_coef": 0}
    arms = {"known": known, "again": known, "new": {"train.lr": 3e-3}}
    other = write_sweep(folder, kept, arms=arms, rule={"difference": ["new", "known"]}).rename(folder / "other.yaml")
    code, _, err = command("sweep", other, "--rows", tmp_path / "rows", "--out", folder / "out")
    assert code == 0, err
    after = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("block-*/*/summary.json")}
    assert len(before) == 2 + 8
    assert sorted(path.parent.name.rpartition("-")[0] for path in after.keys() - before.keys()) == ["new", "new"]
    assert before.items() <= after.items()  # nothing that was there has been written again
    rows = {(row["block"], row["arm"]): row["outcomes"] for row in read_jsonl(tmp_path / "rows" / "other.jsonl")[1:]}
    assert rows[0, "known"] == rows[0, "again"]
    write_sweep(folder, GRID)


def test_the_verdict_is_that_of_the_slow_implementation(grid: tuple[Path, str]) -> None:
    folder, _ = grid
    finding = read_finding(folder / "rows" / "mine.jsonl", folder)
    found = [result.verdict for result in finding.results]
    assert found == slow_verdicts(folder / "rows" / "mine.jsonl", folder / "mine.yaml")


def test_a_finished_sweep_runs_nothing_and_more_blocks_add_rows(grid: tuple[Path, str]) -> None:
    folder, _ = grid
    path, rows = folder / "mine.yaml", folder / "rows" / "mine.jsonl"
    before = rows.read_bytes()
    assert "0 without a row" in run(path, "--dry-run")[1]
    assert rows.read_bytes() == before
    wider = write_sweep(folder, GRID, blocks={"seeds": [0, 1, 2]})
    assert "12 cells, 4 without a row" in run(wider, "--dry-run")[1]
    assert read_finding(rows, folder).changed == []
    other = write_sweep(folder, GRID, rule={**GRID["rule"], "delta": 0.01})
    assert read_finding(rows, folder).changed == ["rule"]
    other = write_sweep(folder, GRID, changes={"rollout": {"temperature": 0.9}})
    code, _, err = run(other)
    assert code == 2
    assert "was made with another recipe" in err
    write_sweep(folder, GRID)


@pytest.mark.slow
def test_a_sweep_that_is_killed_again_and_again_ends_with_the_same_rows(grid: tuple[Path, str], tmp_path: Path) -> None:
    """Killed without warning, the command and its workers with it, until it gets to the end."""
    folder, _ = grid
    path = write_sweep(tmp_path, GRID)
    recipe = (folder / "toy.yaml").read_text().replace(str(folder), str(tmp_path))
    (tmp_path / "toy.yaml").write_text(recipe)
    moments = [
        lambda: any((tmp_path / "out" / "block-0000").glob("*/rl/metrics.jsonl")),  # within a cell
        lambda: (tmp_path / "rows" / "mine.jsonl").is_file(),  # after a row
        lambda: any((tmp_path / "out" / "block-0001").glob("start-*/sft")),  # within a start
    ]
    for reached in moments:
        process = start("sweep", path, "--rows", tmp_path / "rows", "--out", tmp_path / "out", workers=True)
        while process.poll() is None and not reached():
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    code, _, err = run(path)
    assert code == 0, err
    header, *rows = read_jsonl(tmp_path / "rows" / "mine.jsonl")
    assert rows == rows_of(folder / "rows" / "mine.jsonl")
    assert header["registered"].keys() == read_jsonl(folder / "rows" / "mine.jsonl")[0]["registered"].keys()


def test_a_typing_error_in_one_cell_is_found_before_the_first_cell_starts(tmp_path: Path) -> None:
    arms = {"control": {}, "other": {"train.lrr": 1e-3}}
    path = write_sweep(tmp_path, {key: GRID[key] for key in ("blocks", "start", "outcome")}, arms=arms)
    code, _, err = run(path)
    assert code == 2
    assert "block 0, other: train.lrr: train has no key 'lrr'" in err
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rule": {"difference": ["control"], "guards": {"exakt": 0.1}}}, "exakt"),
        ({"moved": {"rollout/acuracy": 0.1}}, "names 'rollout/acuracy', which is not a metric"),
        ({"outcome": {"name": "mean_metric", "metric": "rollout/acuracy"}}, "names 'rollout/acuracy'"),
        ({"outcome": {"name": "mean_metric", "metric": "entropy"}}, "names 'entropy', which is not a"),
        ({"outcome": {"name": "drop_from_peak", "number": "exact_pas@1"}}, "Did you mean 'exact_pass@1'"),
        ({"figure": {"curves": ["pass1"]}}, "names 'pass1'"),
        ({"tune": {"key": {"controll": "train.lr"}}}, "tune.key: 'controll' is not an arm. The arms are control"),
    ],
)
def test_a_name_that_does_not_exist_is_found_before_the_first_cell_starts(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    sweep = {"blocks": {"seeds": [0]}, "arms": {"control": {}}, "outcome": {"name": "exact_pass@k"}}
    path = write_sweep(tmp_path, sweep | changes)
    with pytest.raises(ConfigError, match=sentence):
        check_cells(Cells(read_sweep(path), tmp_path / "out"))


def test_only_whole_numbers_are_added_to(tmp_path: Path) -> None:
    sweep = {"blocks": {"seeds": [0]}, "arms": {"more": {"train.lr+": 0.1}}, "outcome": {"name": "exact_pass@k"}}
    with pytest.raises(ConfigError, match=r"^train\.lr = \S+: expected a whole number, to which .* train\.lr\+ adds"):
        check_cells(Cells(read_sweep(write_sweep(tmp_path, sweep)), tmp_path / "out"))


def test_levels_and_outcomes_of_the_users_own_have_numbers_that_are_not_metrics(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def count(run, *, number: str) -> float:\n    return 1.0\n")
    level = {"name": "gain_by_level", "level": "1", "number": "reward"}
    rule = {"difference": ["control"], "outcome": {"name": f"{tmp_path / 'mine.py'}:count", "number": "things"}}
    sweep = {"blocks": {"seeds": [0]}, "arms": {"control": {}}, "outcome": level, "rule": rule}
    cells = check_cells(Cells(read_sweep(write_sweep(tmp_path, sweep)), tmp_path / "out"))
    assert [cell.arm for cell in cells] == ["control"]


def test_blocks_need_no_source_that_has_a_seed(tmp_path: Path) -> None:
    """A sweep of a user's own file varies the order and the noise. A key that the file names must exist."""
    (tmp_path / "mine.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    rows = {"source": "jsonl", "split": "train", "path": str(tmp_path / "mine.jsonl")}
    changes = {"data": {"sft": None, "train": None, "heldout": {"seed": 7}}}
    kept = {key: GRID[key] for key in ("grid", "outcome")}
    path = write_sweep(tmp_path, kept, changes, blocks={"seeds": [1]})
    recipe = yaml.safe_load((tmp_path / "toy.yaml").read_text())
    recipe["data"]["train"] = rows
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(recipe))
    arm = "lr 0.001, kl_coef 0"
    config = Cells(read_sweep(path), tmp_path / "out").cell(1, arm).config
    assert (config.seed, config.data.train, config.data.heldout["seed"]) == (1000, rows, 1007)
    write_sweep(tmp_path, kept, changes, blocks={"seeds": [1], "vary": ["data.train.seed"]})
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(ConfigError, match=r"data source 'jsonl' has no setting 'seed'"):
        check_cells(Cells(read_sweep(path), tmp_path / "out"))


def test_a_tuned_key_is_multiplied_from_the_value_that_each_arm_has(tmp_path: Path) -> None:
    arms = {"key": {"rewards.format.weight": 0.1}, "section": {"rewards": {"format": {"weight": 0.4}}}, "without": {}}
    sweep = {"blocks": {"seeds": [0]}, "arms": arms, "outcome": {"name": "exact_pass@k"}}
    tune = {"key": "rewards.format.weight", "times": [2], "seeds": [100]}
    cells = Cells(read_sweep(write_sweep(tmp_path, sweep, tune=tune)), tmp_path / "out")
    for arm, weight in (("key", 0.2), ("section", 0.8)):
        assert cells.cell(100, arm, 2.0).config.rewards["format"]["weight"] == pytest.approx(weight)
    with pytest.raises(ConfigError, match=r"tune\.key: rewards\.format\.weight of the arm 'without' is missing"):
        cells.cell(100, "without", 2.0)


@pytest.mark.slow
def test_a_cell_that_collapses_is_a_row_with_what_was_measured(tmp_path: Path) -> None:
    """The watchdog stops one arm in its second step, when the learning rate has risen above a limit.

    The process of these cells loads everything anew, as it does outside of the tests."""
    stop = {"rate": {"metric": "train/lr", "above": 0.25, "window": 1, "action": "stop"}}
    sweep = {
        "blocks": {"seeds": [0]},
        "common": {"train.lr": 1.0, "train.warmup_steps": 5, "train.steps": 4},
        "arms": {"control": {"train.lr": 1e-4}, "stopped": {"watchdog.rules": stop}},
        "outcome": {"name": "exact_pass@k"},
    }
    path = write_sweep(tmp_path, sweep)
    code, _, err = run(path, "--processes", "1", workers=True)
    assert code == 0, err
    rows = rows_of(tmp_path / "rows" / "mine.jsonl")
    assert [(row["arm"], row["status"]) for row in rows] == [("control", "done"), ("stopped", "collapsed")]
    assert "train/lr" in rows[1]["why"]
    assert str(tmp_path) not in rows[1]["why"]


@pytest.mark.slow
def test_each_arm_is_tuned_on_its_own_blocks_and_tested_at_its_best_and_at_the_common_value(tmp_path: Path) -> None:
    sweep = {
        "start": {"stages": ["sft"]},
        "blocks": {"seeds": [0]},
        "arms": {"control": {}},
        "tune": {"key": "train.lr", "times": [1, 30], "seeds": [100]},
        "outcome": {"name": "mean_metric", "metric": "train/lr"},
    }
    path = write_sweep(tmp_path, sweep)
    code, _, err = run(path, "--processes", "1")
    assert code == 0, err
    rows = rows_of(tmp_path / "rows" / "mine.jsonl")
    assert [(row["block"], row["times"]) for row in rows] == [(0, 1.0), (0, 30.0), (100, 1.0), (100, 30.0)]
    finding = read_finding(tmp_path / "rows" / "mine.jsonl", tmp_path)
    assert finding.rows.chosen == {"control": 30.0}
    assert rows[1]["outcomes"] == pytest.approx(
        {name: 30 * value for name, value in rows[0]["outcomes"].items()}, rel=1e-4
    )


def test_a_branch_continues_a_checkpoint_with_the_keys_of_each_arm(tmp_path: Path, grid: tuple[Path, str]) -> None:
    recipe = write_sweep(tmp_path, GRID, changes={"save": {"every": 1}}).parent / "toy.yaml"
    assert command("train", recipe, "--name", "base-0")[0] == 0
    sweep = {
        "start": {"from": str(tmp_path / "runs" / "base-{block}"), "step": 1},
        "blocks": {"seeds": [0], "vary": []},
        "arms": {"as it is": {}, "other": {"train.lr": 0.05}},
        "outcome": {"name": "mean_metric", "metric": "train/lr", "steps": [2, 2]},
    }
    path = write_sweep(tmp_path, sweep, changes={"save": {"every": 1}})
    code, _, err = run(path, "--processes", "1")
    assert code == 0, err
    rows = rows_of(tmp_path / "rows" / "mine.jsonl")
    assert rows[0]["outcomes"] != rows[1]["outcomes"]
    first = [
        read_jsonl(run / "rl" / "metrics.jsonl")[0]["rollout/rewards"]
        for run in sorted((tmp_path / "out" / "block-0000").iterdir())
    ]
    assert len(first) == 2
    assert first[0] == first[1]  # step 1 comes from the run that both continue
    missing = write_sweep(tmp_path, {**sweep, "start": {**sweep["start"], "step": 7}})
    read = read_sweep(missing)
    with pytest.raises(ConfigError, match="step-000007 is missing"):
        check_cells(Cells(read, tmp_path / "out"))


def test_a_grid_of_millions_of_cells_is_refused_with_the_count(tmp_path):
    values = list(range(100))
    grid = {"train.lr": values, "train.steps": values, "seed": values}
    with pytest.raises(ConfigError, match="3000000: 1000000 arms, each on 3 blocks"):
        read_sweep(write_sweep(tmp_path, {**GRID, "grid": grid, "blocks": {"seeds": [0, 1, 2]}}))
