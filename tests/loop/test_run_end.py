"""How a run ended is recorded where it is looked for: in run.json, the log, the list of runs and the overview."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.errors import ConfigError, NonFiniteError, RewardError, RunInterrupted, RunStopped
from ansatz.loop import pipeline
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.track.base import LOG
from ansatz.track.console import open_console
from ansatz.track.report import write_report
from ansatz.track.runs import read_pipeline
from ansatz.ui.library import RunSummary


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(tmp_path_factory.mktemp("ends"), {"sft": {"steps": 0}, "train": {"steps": 1}})
    return run_pipeline(config, console=open_console(log=config.run_dir / LOG))


def end_of(run: Path) -> dict[str, str]:
    return json.loads((run / "run.json").read_text(encoding="utf-8"))["end"]


def state_of(run: Path) -> str:
    return RunSummary(name="run", run=read_pipeline(run)).state


def last_line(run: Path) -> str:
    return (run / LOG).read_text(encoding="utf-8").splitlines()[-1]


def test_a_run_that_is_complete_says_so(run: Path):
    run_pipeline(resume_config(run), resume=True)
    assert (end_of(run)["state"], end_of(run)["resume"]) == ("done", "")
    assert last_line(run).endswith("done: The run is complete.")
    assert state_of(run) == "done"


def test_a_finished_run_that_may_not_be_resumed_stays_finished(run: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ConfigError("a file is missing.")

    run_pipeline(resume_config(run), resume=True)
    monkeypatch.setattr(pipeline, "check_inputs", refuse)
    with pytest.raises(ConfigError, match="a file is missing"):
        run_pipeline(resume_config(run), resume=True)
    assert end_of(run)["state"] == "done"


@pytest.mark.parametrize(
    ("error", "state", "sentence"),
    [
        (RunInterrupted("stopped by SIGTERM. Saved. Resume with: x"), "interrupted", "The run was stopped by SIGTERM."),
        (KeyboardInterrupt(), "interrupted", "The run was interrupted."),
        (
            RunStopped("step 3: the policy has collapsed."),
            "stopped",
            "The watchdog stopped the run: step 3: the policy",
        ),
        (NonFiniteError("step 2: the loss is nan."), "failed", "The run failed: step 2: the loss is nan."),
        (
            RewardError("reward 'mine' raised\nValueError: no"),
            "failed",
            "The run failed: reward 'mine' raised ValueError",
        ),
        (ZeroDivisionError("division by zero"), "failed", "The run failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_run_that_ends_early_records_its_state_the_reason_and_what_resumes_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, state: str, sentence: str
):
    def fail(*_: object) -> None:
        assert end_of(run) is None
        raise error

    monkeypatch.setattr(pipeline, "_run_stages", fail)
    with pytest.raises(type(error)):
        run_pipeline(resume_config(run), resume=True)
    end = end_of(run)
    assert (end["state"], state_of(run)) == (state, state)
    assert end["sentence"].startswith(sentence)
    assert "Resume with" not in end["sentence"]
    assert end["resume"] == f"ansatz train --resume {run}"
    assert sentence in last_line(run)
    assert last_line(run).endswith(f"Resume with: ansatz train --resume {run}")
    page = write_report(run).read_text(encoding="utf-8")
    assert "still in progress" not in page
    assert sentence.replace("'", "&#39;") in page
    assert f"Resume it with <code>ansatz train --resume {run}</code>" in page


def test_a_run_that_was_killed_is_not_called_done_and_its_page_says_how_it_is_resumed(run: Path):
    """Also if it was complete before and has been extended: its summary is still there."""
    run_pipeline(resume_config(run), resume=True)
    content = json.loads((run / "run.json").read_text()) | {"end": None}
    (run / "run.json").write_text(json.dumps(content))
    assert state_of(run) == "done"  # so far the record is that of a refused resume in an earlier version
    later = (run / "summary.json").stat().st_mtime + 1
    os.utime(run / "rl" / "config.yaml", (later, later))
    page = write_report(run).read_text(encoding="utf-8")
    state = state_of(run)
    assert state in ("running", "killed")  # killed after a minute without a new line
    assert "or its process was killed" in page
    assert f"ansatz train --resume {run}" in page
