"""What the report of several runs puts next to each other."""

from __future__ import annotations

from pathlib import Path

from made_up import evaluation_row, make_pipeline

from ansatz.track.figures import Axis
from ansatz.track.report_of_runs import default_path, run_names
from ansatz.track.runs import read_pipeline


def row(stage: str, step: int):
    return {**evaluation_row(step), "stage": stage}


def test_a_stage_that_one_run_lacks_stands_where_the_other_has_it():
    long, short = [row("model", 0), row("sft", 40), row("rl", 10)], [row("model", 0), row("rl", 5), row("rl", 30)]
    for runs in ([long, short], [short, long]):
        axis = Axis.of(*runs)
        assert axis.stages == (("sft", 40), ("rl", 30))
        assert axis.x(row("rl", 15), 0.0) == 1.5
        assert axis.x(row("model", 0), 0.0) == 0.0


def test_runs_of_one_name_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path: Path):
    folders = [tmp_path / "a" / "x" / "demo", tmp_path / "b" / "x" / "demo"]
    runs = [read_pipeline(make_pipeline(folder, sft_steps=2, rl_steps=2)) for folder in folders]
    assert run_names(runs) == ["a/x/demo", "b/x/demo"]
    assert run_names(runs[:1]) == ["demo"]
    assert run_names([runs[0], runs[0]])[0].endswith("demo")  # the same run twice ends too


def test_the_default_file_has_a_name_that_a_disk_can_hold():
    assert default_path([Path("runs/a"), Path("runs/b")]) == Path("reports/a-b.html")
    assert len(default_path([Path("runs") / (letter * 100) for letter in "abc"]).name) < 200
