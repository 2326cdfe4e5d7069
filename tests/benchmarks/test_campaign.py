"""The campaign of faults on a trainer of its user, which a file describes, and its counts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks.faults.adapters import CommandAdapter
from benchmarks.faults.campaign import DisturbedRun, Disturber, Fault
from benchmarks.faults.store import Store
from benchmarks.reliability import PAGE, STORE, run_campaign

TRAINER = Path(__file__).with_name("toy_trainer.py")


def documented_adapter(folder: Path, options: Sequence[str] = ()) -> CommandAdapter:
    """The file of the page, for the toy trainer. options: further ones of the trainer."""
    (block,) = re.findall(r"```yaml\n(name: my trainer\n.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    described = yaml.safe_load(block)
    for key in ("start", "resume"):
        python, script, *others = described[key]
        assert (python, script) == ("python", "train.py")
        described[key] = [sys.executable, str(TRAINER), *others, *options]
    path = folder / "my_trainer.yaml"
    path.write_text(yaml.safe_dump(described), encoding="utf-8")
    return CommandAdapter.read(path)


KILLS_AND_A_SIGNAL = [("kill", None), ("kill", None), ("signal", None), ("kill", None)]


def test_a_trainer_that_saves_all_of_its_state_ends_in_the_same_bits(tmp_path):
    adapter = documented_adapter(tmp_path)
    adapter.prepare(tmp_path / "runs")
    result = Disturber(adapter, tmp_path / "runs" / "1" / "run", 1, KILLS_AND_A_SIGNAL).disturb()
    assert [fault.fault for fault in result.faults].count("kill") >= 1
    assert result.differences == []
    assert result.unexpected == []


def test_a_trainer_that_forgets_its_random_state_is_found_and_its_run_is_kept(tmp_path, capsys):
    adapter = documented_adapter(tmp_path, ["--careless"])
    store, runs = Store(tmp_path / "store.jsonl"), tmp_path / "runs"
    adapter.faults = ["kill"]
    while not any(row["differences"] for row in store.rows()):  # a kill may come before the first checkpoint
        run_campaign([adapter], runs, store, minutes=0, seed=len(store.rows()))
    *_, result = sorted((runs / "my_trainer").glob("*/result.json"))
    assert json.loads(result.read_text())["differences"] == ["weight.txt"]
    assert "| my trainer |" in store.table()


def test_a_command_that_does_not_resume_is_given_up(tmp_path):
    adapter = documented_adapter(tmp_path)
    adapter.prepare(tmp_path / "runs")
    adapter.resume = [sys.executable, "-c", "raise SystemExit(3)"]
    result = Disturber(adapter, tmp_path / "runs" / "1" / "run", 1, [("kill", None)]).disturb()
    assert result.unexpected == ["exit code 3: "] * 3


def rows_of(store: Store, num_kills: int, *, differs: bool = False) -> None:
    faults = [Fault(fault="kill", of="tree") for _ in range(num_kills)]
    store.add(DisturbedRun(kind="grpo", seed=0, faults=faults, differences=["a"] * differs))


def test_merged_stores_add_up_the_runs_of_a_commit(tmp_path):
    stores = [Store(tmp_path / name) for name in ("one", "other")]
    rows_of(stores[0], 3)
    rows_of(stores[0], 4)
    rows_of(stores[1], 5, differs=True)
    old = {key: value for key, value in stores[1].rows()[0].items() if key != "stop"}  # rows once had no stops
    stores[1].path.write_text(json.dumps(old) + "\n")
    stores[0].merge(stores[1:])
    (row,) = stores[0].rows()
    assert (row["runs"], row["kill"], row["killed"], row["differences"]) == (3, 12, {"tree": 12}, 1)
    assert "| grpo | 3 | 12 | 0 | 0 | 0 | 0 | 1 | 0 |" in stores[0].table()


def test_the_page_has_the_table_of_the_store():
    assert Store(STORE).table() in PAGE.read_text(encoding="utf-8")
