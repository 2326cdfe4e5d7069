"""Checkpoints that cannot be written, and the space that they need."""

from types import SimpleNamespace
from typing import Any

import pytest
from fake_tracker import MemoryTracker
from fake_trainer import FakeTrainer
from made_up import problem
from toy_runs import toy_config

from ansatz.config.schema import SaveSection
from ansatz.data.cursor import ProblemStream
from ansatz.errors import CheckpointError, ConfigError, StorageError
from ansatz.locks import FolderLock
from ansatz.loop import disk
from ansatz.loop.disk import check_run_space, check_space, published_weights
from ansatz.loop.held_run import HeldRun
from ansatz.loop.interrupts import Interrupts
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.step_edges import EdgeSaver
from ansatz.models.tiny import recipe_shape
from ansatz.train import checkpoint


class FullDisk(FakeTrainer):
    """A trainer whose files do not fit on the disk while `full` is set."""

    full = False

    def save(self, folder):
        super().save(folder)
        if self.full:
            raise OSError(28, "No space left on device")


SIZES: Any = SimpleNamespace(checkpoint_bytes=2 * 10**9, weights_bytes=10**9)
"""The sizes of a trainer."""


def saver(folder, trainer, tracker):
    edges = EdgeSaver(
        folder,
        trainer=trainer,
        stream=ProblemStream([problem()], seed=0),
        settings=SaveSection(keep=1),
        interrupts=Interrupts(folder, grace_s=1),
        tracker=tracker,
        held=HeldRun(FolderLock(folder), ()),
    )
    edges.capture(0, dict)
    return edges


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_a_checkpoint_that_cannot_be_written_keeps_the_last_one_and_is_tried_again(tmp_path):
    trainer, tracker = FullDisk(), MemoryTracker()
    edges = saver(tmp_path, trainer, tracker)
    edges.end_step(1, dict)
    edges.save()
    trainer.full = True
    edges.end_step(2, dict)
    edges.save()
    edges.end_step(3, dict)
    edges.save_if_due(last=False)
    assert names(tmp_path) == ["step-000001"]
    trainer.full = False
    for step in (4, 5):  # step 4 tries again; no checkpoint is due after step 5
        edges.end_step(step, dict)
        edges.save_if_due(last=False)
        assert names(tmp_path) == ["step-000004"]
    assert [(row["step"], row["kind"]) for row in tracker.events] == [(2, "not_saved"), (3, "not_saved")]


def test_no_checkpoint_is_written_before_the_rows_of_its_step(tmp_path):
    class FullForRows(MemoryTracker):
        full = True

        def flush(self):
            if self.full:
                raise StorageError("metrics.jsonl could not be written.")

    tracker = FullForRows()
    edges = saver(tmp_path, FakeTrainer(), tracker)
    edges.end_step(1, dict)
    edges.save()
    assert checkpoint.latest(tmp_path) is None
    tracker.full = False
    edges.end_step(2, dict)
    edges.save_if_due(last=False)
    assert names(tmp_path) == ["step-000002"]


def test_the_third_failure_in_a_row_stops_the_run_and_names_the_last_checkpoint(tmp_path):
    trainer, tracker = FullDisk(), MemoryTracker()
    edges = saver(tmp_path, trainer, tracker)
    edges.end_step(1, dict)
    edges.save()
    trainer.full = True
    edges.end_step(2, dict)
    with pytest.raises(
        CheckpointError,
        match=r"3 times in a row\. .*checkpoints could not be "
        r"written \(No space left on device; \d+ bytes are needed, .* are free on this disk\)\. .*step-000001\.",
    ):
        edges.save(again=True)  # the last step has no next one
    assert [row["step"] for row in tracker.events] == [2, 2, 2]
    checkpoint.verify_digests(tmp_path / "checkpoints" / "step-000001")


def test_a_stage_that_does_not_fit_on_the_disk_is_refused_with_the_sum(tmp_path):
    """Two kept and one being written: 3 x 2 GB = 6 GB. Four without optimizer state, a best one, and two that are whole
    while one is written: 4 x 1 GB + 2 x 2 GB = 8 GB."""
    few = SaveSection(keep=2, best=False)
    check_space(tmp_path, SIZES, few, free=lambda folder: 6 * 10**9)
    with pytest.raises(
        ConfigError, match=r"3 checkpoints .* of 2 GB each need 6 GB, but only 5\.99 GB .* save\.optimizer"
    ):
        check_space(tmp_path, SIZES, few, free=lambda folder: 5_990_000_000)
    many = SaveSection(keep=4, optimizer="last")
    check_space(tmp_path, SIZES, many, free=lambda folder: 8 * 10**9)
    with pytest.raises(ConfigError, match=r"6 checkpoints .*, 4 of them without optimizer state \(1 GB\) need 8 GB"):
        check_space(tmp_path, SIZES, many, free=lambda folder: 7_990_000_000)


def test_the_weights_for_samplers_need_room_too(tmp_path):
    """3 x 2 GB, and 4 x 1 GB for a lag of 2."""
    config = toy_config(tmp_path, {"rollout": {"lag": 2}})
    save, published = SaveSection(keep=2, best=False), published_weights(config, 10**9)
    check_space(tmp_path, SIZES, save, published=published, free=lambda folder: 10 * 10**9)
    with pytest.raises(ConfigError, match=r"2 GB each and 4 versions .* of 1 GB each need 10 GB, but only 9\.99"):
        check_space(tmp_path, SIZES, save, published=published, free=lambda folder: 9_990_000_000)
    parameters = recipe_shape(config).num_parameters
    check_run_space(config, free=lambda folder: parameters * (2 * 10 + 4 * 2))
    with pytest.raises(ConfigError, match="4 versions of the weights for samplers"):
        check_run_space(config, free=lambda folder: parameters * (2 * 10 + 4 * 2) - 1)


def test_a_run_that_does_not_fit_on_the_disk_is_refused_before_its_model_is_loaded(tmp_path, monkeypatch):
    config = toy_config(tmp_path)
    parameters = recipe_shape(config).num_parameters
    needed = 2 * parameters * 10  # keep = 2; bfloat16 weights and two float32 moments
    check_run_space(config, free=lambda folder: needed)
    with pytest.raises(ConfigError, match=rf"2 checkpoints .* of {parameters:,} weights, .* 10 bytes .* elsewhere"):
        check_run_space(config, free=lambda folder: needed - 1)
    last = toy_config(tmp_path, {"save": {"optimizer": "last"}})
    check_run_space(last, free=lambda folder: parameters * 12)
    with pytest.raises(ConfigError, match="10 bytes per weight in the newest and 2 in the other, need"):
        check_run_space(last, free=lambda folder: parameters * 12 - 1)
    monkeypatch.setattr(disk.check_run_space, "__kwdefaults__", {"free": lambda folder: 0})
    with pytest.raises(ConfigError, match="only 0 GB are free"):
        run_pipeline(config)
    assert not config.run_dir.exists()


def test_at_each_edge_a_removed_lock_is_made_again_and_a_moved_folder_ends_the_run(tmp_path):
    run, tracker = tmp_path / "run", MemoryTracker()
    run.mkdir()
    edges = saver(run, FakeTrainer(), tracker)
    (run / ".lock").unlink()
    edges.end_step(1, dict)
    assert [(row["step"], row["kind"]) for row in tracker.events] == [(1, "lock")]
    assert (run / ".lock").is_file()
    run.rename(tmp_path / "moved")
    run.mkdir()
    for write in (lambda: edges.end_step(2, dict), edges.save):
        with pytest.raises(ConfigError, match="was moved, removed or replaced"):
            write()
    assert list(run.iterdir()) == []
