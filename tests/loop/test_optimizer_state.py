"""`save.optimizer`: which checkpoints of a run keep what only a resumed stage needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_tracker import MemoryTracker
from fake_trainer import FakeTrainer
from made_up import problem
from toy_runs import toy_config

from ansatz.config.schema import SaveSection
from ansatz.data.cursor import ProblemStream
from ansatz.errors import CheckpointError
from ansatz.locks import FolderLock
from ansatz.loop import pipeline
from ansatz.loop.held_run import HeldRun
from ansatz.loop.interrupts import Interrupts
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.loop.step_edges import EdgeSaver
from ansatz.loop.watch import steps_for_rollback
from ansatz.train import checkpoint

SHORT: dict[str, Any] = {
    "sft": {"steps": 2},
    "train": {"steps": 3},
    "evaluate": {"every": 0, "problems": 4, "samples_per_prompt": 1, "k": 1},
    "save": {"every": 1, "keep": 3, "best": False, "tensorboard": False, "dtype": "bfloat16"},
}


def config_of(folder: Path, optimizer: str, **changes: Any):
    return toy_config(folder, {**SHORT, **changes, "save": {**SHORT["save"], "optimizer": optimizer}})


def training_files(run: Path) -> dict[str, set[str]]:
    """The files that only training needs, by checkpoint, without the mark of what was removed."""
    return {
        f"{path.parent.parent.name}/{path.name}": {file.name for file in (path / "training").iterdir()} - {"REMOVED"}
        for stage in ("sft", "rl")
        for path in checkpoint.list_checkpoints(run / stage)
    }


LIGHT, WHOLE = {"state.json", "weights.safetensors"}, {"state.json", "weights.safetensors", "optimizer.safetensors"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which only the newest checkpoint of each stage has its optimizer state."""
    return run_pipeline(config_of(tmp_path_factory.mktemp("last"), "last"))


def test_only_the_newest_checkpoint_of_a_stage_keeps_its_optimizer_state(finished: Path) -> None:
    assert training_files(finished) == {
        "sft/step-000001": LIGHT,
        "sft/step-000002": WHOLE,
        "rl/step-000001": LIGHT,
        "rl/step-000002": LIGHT,
        "rl/step-000003": WHOLE,
    }


def test_an_extended_run_ends_with_the_bits_of_a_long_one_and_a_finished_one_can_lose_the_rest(
    finished: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "runs" / "toy")
    run_pipeline(resume_config(run, {"train.steps": "4"}), resume=True)
    whole = run_pipeline(config_of(tmp_path / "long", "all", train={"steps": 4}))
    assert set(map(frozenset, training_files(whole).values())) == {frozenset(WHOLE)}
    for name in ("model.safetensors", "training/optimizer.safetensors", "training/weights.safetensors"):
        last = f"rl/checkpoints/step-000004/{name}"
        assert (run / last).read_bytes() == (whole / last).read_bytes()
    run_pipeline(resume_config(run, {"save.optimizer": "unfinished"}), resume=True)
    assert set(map(frozenset, training_files(run).values())) == {frozenset({"state.json"})}
    for path in (path for stage in ("sft", "rl") for path in checkpoint.list_checkpoints(run / stage)):
        checkpoint.verify_digests(path)
    record = (run / "run.json").read_bytes()
    with pytest.raises(CheckpointError, match=r"step-000004 holds only its weights, .* --model\.path .*step-000004"):
        run_pipeline(resume_config(run, {"train.steps": "5"}), resume=True)
    assert (run / "run.json").read_bytes() == record  # so that it is still a finished run
    run_pipeline(resume_config(run), resume=True)


def test_a_run_that_is_killed_while_it_removes_the_state_is_finished_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in each place in which the pipeline removes something: after SFT, after RL and at the end."""
    real, config, num_calls = pipeline.keep_weights, config_of(tmp_path, "unfinished"), 0

    class Killed(BaseException):
        """Nothing catches it."""

    def dies_after_the_next(path: Path, **how: bool) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls in (2, 5, 12):
            raise Killed
        real(path, **how)

    monkeypatch.setattr(pipeline, "keep_weights", dies_after_the_next)
    for resume in (False, True, True):
        with pytest.raises(Killed):
            run_pipeline(config, resume=resume)
    run_pipeline(config, resume=True)
    assert len(training_files(config.run_dir)) == 5
    assert set(map(frozenset, training_files(config.run_dir).values())) == {frozenset({"state.json"})}


def test_a_run_from_a_checkpoint_without_optimizer_state_says_so(finished: Path, tmp_path: Path) -> None:
    notes = list[str]()

    class Console:
        note = staticmethod(notes.append)

        def __getattr__(self, name: str) -> Any:
            return lambda *args, **kwargs: None

    path = finished / "rl" / "checkpoints" / "step-000002"
    changes = {"model": {"path": str(path)}, "data": {"sft": None}, "train": {"steps": 1}}
    run_pipeline(toy_config(tmp_path, {**SHORT, **changes}), console=Console())
    [note] = [note for note in notes if "save.optimizer" in note]
    assert note == (
        f"{path} holds only its weights (save.optimizer): training starts from model.safetensors and the float32 "
        "weights, with a new optimizer state."
    )


@pytest.mark.parametrize("keep", [1, 3])
@pytest.mark.parametrize("window", [1, 7, 12])
@pytest.mark.parametrize("every", [1, 3, 5])
def test_checkpoints_that_a_rollback_may_return_to_keep_their_state(
    tmp_path: Path, every: int, window: int, keep: int
) -> None:
    """As many steps back as a run that keeps one whole checkpoint besides them could go, whatever else is kept."""
    trainer, tracker = FakeTrainer(), MemoryTracker()

    def needed(steps):
        return steps_for_rollback(steps, step=steps[-1], window=window, near_best=0)

    edges = EdgeSaver(
        tmp_path,
        trainer=trainer,
        stream=ProblemStream([problem()], seed=0),
        settings=SaveSection(keep=keep, best=False, optimizer="last"),
        interrupts=Interrupts(tmp_path, grace_s=1),
        tracker=tracker,
        held=HeldRun(FolderLock(tmp_path), ()),
        for_rollback=needed,
    )
    edges.capture(0, dict)
    alone: list[int] = []
    for step in range(every, 31, every):
        edges.end_step(step, dict)
        edges.save()
        alone = sorted({step, *needed([*alone, step])})
        paths = checkpoint.list_checkpoints(tmp_path)
        assert [checkpoint.step_of(path) for path in paths if checkpoint.is_resumable(path)] == alone
        assert len(paths) >= min(keep, step // every)
