from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning import everything, rows, same
from safetensors.torch import load_file
from tiny_models import some_sequences, tiny_policy
from transformers import AutoModelForCausalLM, AutoTokenizer

from ansatz.config.schema import TrainSection
from ansatz.errors import CheckpointError
from ansatz.models.load import load_policy
from ansatz.objectives.build import build_objective
from ansatz.reward_models.model import load_reward_model
from ansatz.train import checkpoint, local, placement
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule


def trainer_of(
    algorithm: dict[str, Any] | None = None,
    *,
    name: str = "qwen3, grouped heads, tied",
    dtype: torch.dtype = torch.float32,
    export_dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> LocalTrainer:
    objective = build_objective(algorithm or {"preset": "grpo"}, max_response_tokens=9)
    settings = TrainSection(updates_per_step=2)
    policy = tiny_policy(name, seed=seed)
    return LocalTrainer(
        policy,
        objective,
        settings=settings,
        dtype=dtype,
        schedule=Schedule(lr=1e-2),
        export_dtype=export_dtype,
    )


def make_trainer() -> LocalTrainer:
    """With moments, as after a step."""
    trainer = trainer_of()
    for parameter in trainer.policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    trainer.optimizer.step(lr=0.0, max_grad_norm=0)
    return trainer


def become(trainer: LocalTrainer, step: int) -> None:
    """Every weight, moment and state has the value `step`."""
    for value in (*trainer.optimizer.weights().values(), *trainer.optimizer.state().values()):
        value.fill_(step)
    trainer.optimizer.write_back()
    trainer.version = step
    random.seed(step)


def train(trainer: LocalTrainer, step: int) -> None:
    trainer.update(trainer.batch(rows(step)), step=step)


def draws() -> tuple[float, float, float, float]:
    return random.random(), random.gauss(0, 1), float(np.random.standard_normal()), torch.rand(()).item()


def save(trainer: LocalTrainer, folder: Path, step: int, *, keep: int = 5) -> Path:
    return checkpoint.save(folder, step=step, trainer=trainer, state={"own": step}, keep=keep)


KINDS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": torch.bfloat16},
    "with a reference": {"algorithm": {"preset": "grpo", "kl_coef": 0.1}, "dtype": torch.bfloat16},
    "with a critic": {"algorithm": {"preset": "ppo", "entropy_coef": 0.01, "entropy_target": 2.0}},
    "untied": {"name": "qwen3, untied"},
    "exported in bfloat16": {"dtype": torch.bfloat16, "export_dtype": torch.bfloat16},
    "exported in bfloat16, computed in float32": {"export_dtype": torch.bfloat16},
    "mixture of experts, exported in bfloat16": {
        "name": "qwen3 mixture of experts",
        "export_dtype": torch.bfloat16,
    },
    "mixture of experts": {"name": "qwen3 mixture of experts"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_trainer_is_bit_identical_and_so_is_its_next_step(tmp_path: Path, kind: str) -> None:
    trainer = trainer_of(**KINDS[kind])
    train(trainer, 1)
    train(trainer, 2)
    saved = everything(trainer)
    path = save(trainer, tmp_path, 2)
    assert same(everything(trainer), saved)
    random_numbers = draws()
    train(trainer, 3)

    other = trainer_of(**KINDS[kind], seed=1)
    assert not same(everything(other), saved)
    assert checkpoint.restore(path, trainer=other) == (2, {"own": 2})
    assert draws() == random_numbers
    assert same(everything(other), saved)
    assert other.version == 4
    train(other, 3)
    assert same(everything(other), everything(trainer))
    assert other.state() == trainer.state()


def test_a_trainer_can_be_saved_before_its_first_step(tmp_path: Path) -> None:
    trainer, other = trainer_of(), trainer_of(seed=1)
    train(other, 1)
    assert checkpoint.restore(save(trainer, tmp_path, 0), trainer=other) == (0, {"own": 0})
    assert same(everything(other), everything(trainer))


def test_the_cached_half_of_a_gauss_pair_is_kept(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(1)
    random.gauss(0, 1)
    np.random.standard_normal()
    path = save(trainer_of(), tmp_path, 1)
    expected = random.gauss(0, 1), np.random.standard_normal()
    checkpoint.restore(path, trainer=trainer_of())
    assert (random.gauss(0, 1), np.random.standard_normal()) == expected


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "untied", "mixture of experts"])
def test_a_checkpoint_is_a_hugging_face_folder_with_the_same_logits(tmp_path: Path, kind: str) -> None:
    trainer = trainer_of(**KINDS[kind])
    train(trainer, 1)
    path = save(trainer, tmp_path, 1)
    policy = trainer.policy
    tokens = torch.tensor(some_sequences(20))
    model = AutoModelForCausalLM.from_pretrained(path, dtype=policy.dtype, attn_implementation="eager")
    policy.model.set_attn_implementation("eager")
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, policy.model(tokens).logits)
    text = "t5 t9 t12"
    assert AutoTokenizer.from_pretrained(path).encode(text) == policy.tokenizer.encode(text) == [5, 9, 12]
    masters = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    for name, value in masters.named_parameters():
        assert torch.equal(value, trainer.optimizer.weights()[name])


@pytest.mark.parametrize("export_dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_folder_without_its_training_state_is_the_model_and_nothing_else(
    tmp_path: Path, export_dtype: torch.dtype
) -> None:
    trainer = trainer_of({"preset": "ppo", "kl_coef": 0.1}, export_dtype=export_dtype)
    train(trainer, 1)
    path = save(trainer, tmp_path, 1)
    model = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {file.name for file in path.iterdir()} == {*model, "SHA256SUMS", "training"}
    training = {"optimizer.safetensors", "critic.safetensors", "reference.safetensors", "state.json"}
    rounded = {"weights.safetensors"} if export_dtype == torch.bfloat16 else set()
    assert {file.name for file in (path / "training").iterdir()} == training | rounded


def test_weights_are_exported_in_the_precision_that_was_asked_for_and_rounded_once(tmp_path: Path) -> None:
    trainer = trainer_of(export_dtype=torch.bfloat16)
    train(trainer, 1)
    path = save(trainer, tmp_path, 1)
    assert json.loads((path / "config.json").read_text())["dtype"] == "bfloat16"
    stored, masters = load_file(path / "model.safetensors"), trainer.optimizer.weights()
    assert stored.keys() == masters.keys()
    assert all(torch.equal(value, masters[name].bfloat16()) for name, value in stored.items())
    assert any(not torch.equal(value.float(), masters[name]) for name, value in stored.items())


def test_a_stage_that_starts_from_a_rounded_checkpoint_has_the_float32_weights(tmp_path: Path) -> None:
    trainer = trainer_of(export_dtype=torch.bfloat16)
    train(trainer, 1)
    path = save(trainer, tmp_path, 1)
    policy = load_policy(path)
    masters = trainer.optimizer.weights()
    assert not all(torch.equal(value, masters[name]) for name, value in policy.model.named_parameters())
    placement.use_exact_weights(policy, path)
    assert all(torch.equal(value, masters[name]) for name, value in policy.model.named_parameters())


def test_a_classifier_that_starts_from_a_rounded_checkpoint_has_the_float32_weights_below_its_head(
    tmp_path: Path,
) -> None:
    trainer = trainer_of(export_dtype=torch.bfloat16)
    train(trainer, 1)
    path = save(trainer, tmp_path, 1)
    model, masters = load_reward_model(path, reads="response", device="cpu"), trainer.optimizer.weights()
    placement.use_exact_weights(model, path, partly=True)
    below = {name: value for name, value in model.model.named_parameters() if name in masters}
    assert len(below) > 10
    assert all(torch.equal(value, masters[name]) for name, value in below.items())


def test_a_stage_that_starts_from_an_ordinary_folder_has_its_weights(tmp_path: Path) -> None:
    policy = tiny_policy()
    before = {name: value.detach().clone() for name, value in policy.model.named_parameters()}
    placement.use_exact_weights(policy, tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in policy.model.named_parameters())


def test_the_newest_are_kept_by_number_not_by_name(tmp_path: Path) -> None:
    trainer = make_trainer()
    for step in (5, 40, 999_999, 1_000_000):
        save(trainer, tmp_path, step, keep=2)
    names = [path.name for path in checkpoint.list_checkpoints(tmp_path)]
    assert names == ["step-999999", "step-1000000"]
    assert checkpoint.latest(tmp_path) == tmp_path / "checkpoints" / "step-1000000"
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == set(names)


def test_drafts_are_ignored_and_cleared_away_by_the_next_save(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    trainer = make_trainer()
    save(trainer, tmp_path, 3)
    for name in (".step-000009.draft", ".step-000002.draft"):
        (root / name / "inside").mkdir(parents=True)
    assert checkpoint.latest(tmp_path) == root / "step-000003"
    save(trainer, tmp_path, 4)
    assert {path.name for path in root.iterdir()} == {"step-000003", "step-000004"}


def test_a_folder_without_checkpoints_has_no_latest(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.list_checkpoints(tmp_path) == []


def test_a_step_is_saved_once_and_the_first_stays(tmp_path: Path) -> None:
    trainer = make_trainer()
    become(trainer, 7)
    path = save(trainer, tmp_path, 7)
    become(trainer, 8)
    with pytest.raises(CheckpointError, match="step-000007 already exists, and a step is saved only once"):
        save(trainer, tmp_path, 7)
    assert_whole(path, make_trainer())


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "state cut": lambda path: (path / "training/state.json").write_text('{"step": 1'),
    "state missing": lambda path: (path / "training/state.json").unlink(),
    "weights cut": lambda path: (path / "model.safetensors").write_bytes(b"\x08"),
    "moments cut": lambda path: (path / "training/optimizer.safetensors").write_bytes(b"\x08"),
    "moments missing": lambda path: (path / "training/optimizer.safetensors").unlink(),
    "parts of the state missing": lambda path: (path / "training/state.json").write_text('{"step": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_one_sentence_and_changes_nothing(tmp_path: Path, damage: str) -> None:
    trainer = make_trainer()
    path = save(trainer, tmp_path, 1)
    DAMAGES[damage](path)
    become(trainer, 5)
    before, numbers = everything(trainer), random.getstate()
    with pytest.raises(CheckpointError, match="is damaged: ") as caught:
        checkpoint.restore(path, trainer=trainer)
    assert str(path) in str(caught.value)
    assert same(everything(trainer), before)
    assert random.getstate() == numbers


def to_format(path: Path, version: int) -> None:
    """Make a checkpoint one of an older or a later version."""
    state = json.loads((path / "training/state.json").read_text())
    assert state.pop("format") == 4
    (path / "training/state.json").write_text(json.dumps({**state, "format": version}))
    (path / "SHA256SUMS").unlink()
    checkpoint.write_digests(path)


@pytest.mark.parametrize("version", [3, 5])
def test_a_checkpoint_of_another_format_is_refused_in_one_sentence_and_changes_nothing(
    tmp_path: Path, version: int
) -> None:
    trainer = make_trainer()
    path = save(trainer, tmp_path, 1)
    to_format(path, version)
    become(trainer, 5)
    before = everything(trainer)
    with pytest.raises(CheckpointError, match=f"has checkpoint format {version}, but .* reads format 4") as caught:
        checkpoint.restore(path, trainer=trainer)
    assert str(path) in str(caught.value)
    assert same(everything(trainer), before)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    path = save(trainer_of(), tmp_path, 1)
    with pytest.raises(CheckpointError, match="another model"):
        checkpoint.restore(path, trainer=trainer_of(name="qwen3, untied"))


class Killed(BaseException):
    """Nothing catches it."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """The moment-th thing that save does is done by halves: a file is cut, a removed folder loses one file."""
    count = 0

    def dies(real: Callable[..., Any], halfway: Callable[..., Any]) -> Callable[..., Any]:
        def doing(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment:
                halfway(*args)
                raise Killed
            return real(*args, **kwargs)

        return doing

    def remove_one_file(folder: Path) -> None:
        if folder.is_file():
            folder.write_bytes(b"")
            return
        next(path for path in Path(folder).rglob("*") if path.is_file()).unlink()

    def leave_draft(path: Path, _: str) -> None:
        path.with_name(f".{path.name}.draft").write_bytes(b"{")

    monkeypatch.setattr(local, "save_model", dies(local.save_model, lambda policy, folder: None))
    monkeypatch.setattr(placement, "save_file", dies(placement.save_file, lambda _, path: path.write_bytes(b"\x08")))
    monkeypatch.setattr(checkpoint, "sync", dies(checkpoint.sync, lambda path: None))
    monkeypatch.setattr(checkpoint, "write_text", dies(checkpoint.write_text, leave_draft))
    monkeypatch.setattr(checkpoint, "rename", dies(checkpoint.rename, lambda path, target: None))
    monkeypatch.setattr(checkpoint, "remove_path", dies(checkpoint.remove_path, remove_one_file))


def assert_whole(path: Path, trainer: LocalTrainer) -> None:
    """It restores, and every weight, moment and state in it is of its own step."""
    number = int(path.name.removeprefix("step-"))
    assert checkpoint.restore(path, trainer=trainer) == (number, {"own": number})
    values = everything(trainer).values()
    assert all(bool((value == number).all()) for value in values)
    assert trainer.version == number
    drawn = random.random()
    random.seed(number)
    assert drawn == random.random()


def test_a_save_cut_short_at_any_of_its_doings_leaves_every_listed_checkpoint_whole(tmp_path: Path) -> None:
    trainer, reader = make_trainer(), make_trainer()
    step = moment = 0
    for step in (1, 2):
        become(trainer, step)
        save(trainer, tmp_path, step, keep=2)
    finished = False
    while not finished:
        moment += 1
        step = int(checkpoint.latest(tmp_path).name.removeprefix("step-")) + 1
        become(trainer, step)
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_at(monkeypatch, moment)
            try:
                save(trainer, tmp_path, step, keep=2)
                finished = True
            except Killed:
                pass
        found = checkpoint.list_checkpoints(tmp_path)
        assert int(found[-1].name.removeprefix("step-")) in (step - 1, step)
        assert len(found) >= 2
        states = [json.loads((path / "training/state.json").read_text())["loop"] for path in found]
        assert [state["own"] for state in states] == [int(path.name.removeprefix("step-")) for path in found]
        assert_whole(found[-1], reader)
        assert_whole(found[0], reader)
    assert moment > 12


def go_on_saving(trainer: LocalTrainer, folder: Path, report: int) -> None:
    """From the latest checkpoint on, one save after another; writes each step's number to the pipe `report`."""
    step = 0
    if (last := checkpoint.latest(folder)) is not None:
        step, _ = checkpoint.restore(last, trainer=trainer)
    while True:
        step += 1
        become(trainer, step)
        save(trainer, folder, step, keep=2)
        os.write(report, b"%d\n" % step)


def child_that_saves(trainer: LocalTrainer, folder: Path) -> tuple[int, int]:
    """(process id, pipe) of a fork of this process; the trainer is its own."""
    pipe, report = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads, which the child does not use
        child = os.fork()
    if not child:
        torch.set_num_threads(1)
        try:
            go_on_saving(trainer, folder, report)
        finally:
            os._exit(1)
    os.close(report)
    return child, pipe


def test_a_saving_process_killed_at_random_moments_leaves_whole_checkpoints(tmp_path: Path) -> None:
    draw, trainer, reader, reached = random.Random(0), make_trainer(), make_trainer(), [0]
    for _ in range(6):
        child, pipe = child_that_saves(trainer, tmp_path)
        with os.fdopen(pipe) as lines:
            saved = lines.readline()
            time.sleep(draw.uniform(0.0, 0.1))
            os.kill(child, signal.SIGKILL)
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
            last_said = int([saved, *lines][-1])
        found = checkpoint.list_checkpoints(tmp_path)
        for path in found:
            assert_whole(path, reader)
        assert int(found[-1].name.removeprefix("step-")) in (last_said, last_said + 1)  # killed before it could say so
        reached.append(last_said)
    assert reached == sorted(set(reached))


def test_every_flipped_byte_in_any_file_is_noticed(tmp_path: Path) -> None:
    trainer = make_trainer()
    path, generator = save(trainer, tmp_path, 1), random.Random(0)
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    assert {"model.safetensors", "optimizer.safetensors", "state.json", "SHA256SUMS"} <= {file.name for file in files}
    for number in range(200):
        file = files[number % len(files)]
        content = bytearray(file.read_bytes())
        place = generator.randrange(len(content))
        content[place] ^= 1 << generator.randrange(8)
        whole = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"step-000001 is damaged: "):
            checkpoint.restore(path, trainer=trainer)
        file.write_bytes(whole)
    assert checkpoint.restore(path, trainer=trainer)[0] == 1


def test_a_checkpoint_under_the_name_of_another_step_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer()
    older, newer = save(trainer, tmp_path, 1), save(trainer, tmp_path, 2)
    shutil.copytree(older, tmp_path / "checkpoints" / "step-000003")
    newer.rename(tmp_path / "between")
    older.rename(newer)
    for folder in (newer, tmp_path / "checkpoints" / "step-000003"):
        with pytest.raises(CheckpointError, match=rf"{folder.name} holds the checkpoint of step 1: .* step-000001"):
            checkpoint.restore(folder, trainer=trainer)


def test_a_cut_list_of_digests_is_damage(tmp_path: Path) -> None:
    path = save(make_trainer(), tmp_path, 1)
    sums = path / "SHA256SUMS"
    sums.write_text(sums.read_text()[:-40])
    with pytest.raises(CheckpointError, match="is damaged: SHA256SUMS "):
        checkpoint.restore(path, trainer=make_trainer())


def test_a_list_of_digests_that_has_lost_a_line_is_damage(tmp_path: Path) -> None:
    """Otherwise damage to the file that is not listed any more would pass."""
    path = save(make_trainer(), tmp_path, 1)
    sums = path / "SHA256SUMS"
    whole = sums.read_text().splitlines(keepends=True)
    for number, line in enumerate(whole):
        sums.write_text("".join(whole[:number] + whole[number + 1 :]))
        name = line.split()[1]
        if name.endswith((".json", ".safetensors")):
            with pytest.raises(CheckpointError, match=f"is damaged: SHA256SUMS does not list {name}"):
                checkpoint.verify_digests(path)


def test_a_damaged_checkpoint_names_the_newest_undamaged_one(tmp_path: Path) -> None:
    trainer = make_trainer()
    paths = [save(trainer, tmp_path, step) for step in (1, 2, 3)]
    for path in paths[1:]:
        (path / "model.safetensors").write_bytes(b"")
    expected = rf"{paths[0]} is undamaged: to resume from it, rename the damaged folder to step-000003\.damaged"
    with pytest.raises(CheckpointError, match=expected):
        checkpoint.restore(paths[2], trainer=trainer)


def test_sha256sum_itself_verifies_a_checkpoint(tmp_path: Path) -> None:
    path = save(make_trainer(), tmp_path, 1)
    seen = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=path, capture_output=True, text=True, check=True)
    assert "model.safetensors: OK" in seen.stdout


@pytest.mark.parametrize("kind", ["with a critic", "with a reference", "exported in bfloat16"])
def test_a_checkpoint_without_optimizer_state_keeps_its_weights_and_is_not_resumed(tmp_path: Path, kind: str) -> None:
    trainer = trainer_of(**KINDS[kind])
    path = save(trainer, tmp_path, 3)
    model = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file() and file.name != "SHA256SUMS"}
    checkpoint.keep_weights(path)
    rounded = {"weights.safetensors"} if kind == "exported in bfloat16" else set()
    assert {file.name for file in (path / "training").iterdir()} == {"state.json", "REMOVED"} | rounded
    checkpoint.verify_digests(path)
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=path, check=True)
    before = {name: value.clone() for name, value in trainer.optimizer.weights().items()}
    with pytest.raises(
        CheckpointError, match=r"holds only its weights, because save\.optimizer .* --model\.path .*step-"
    ):
        checkpoint.restore(path, trainer=trainer)
    checkpoint.keep_weights(path, exact=False)
    checkpoint.verify_digests(path)
    assert {file.name for file in (path / "training").iterdir()} == {"state.json", "REMOVED"}
    assert {name: (path / name).read_bytes() for name in model} == model
    assert all(torch.equal(value, before[name]) for name, value in trainer.optimizer.weights().items())
    assert checkpoint.loop_state(path) == {"own": 3}


def test_removing_optimizer_state_cut_short_at_any_of_its_doings_leaves_a_usable_checkpoint(tmp_path: Path) -> None:
    """Whole and resumable, or undamaged without optimizer state. The next removal ends what a killed one began."""
    trainer, reader = make_trainer(), make_trainer()
    outcomes = list[bool]()
    for moment in range(1, 20):
        become(trainer, moment)
        path = save(trainer, tmp_path, moment, keep=1)
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_at(monkeypatch, moment)
            try:
                checkpoint.keep_weights(path)
                break
            except Killed:
                checkpoint.verify_digests(path)
        outcomes.append(checkpoint.is_resumable(path))
        if outcomes[-1]:
            assert_whole(path, reader)
        checkpoint.keep_weights(path)
        assert not checkpoint.is_resumable(path)
        assert not (path / "training" / "optimizer.safetensors").exists()
    assert outcomes == [True, True, False]  # the mark, the list of digests, the file itself


def test_a_damaged_checkpoint_is_not_replaced_by_one_without_optimizer_state(tmp_path: Path) -> None:
    trainer = make_trainer()
    whole, light, damaged = (save(trainer, tmp_path, step) for step in (1, 2, 3))
    checkpoint.keep_weights(light)
    (damaged / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=rf"{whole} is undamaged: to resume from it"):
        checkpoint.restore(damaged, trainer=trainer)
    checkpoint.keep_weights(whole)
    with pytest.raises(
        CheckpointError, match=rf"{light} is undamaged and holds only its weights .* --model\.path {light}"
    ):
        checkpoint.restore(damaged, trainer=trainer)


def test_stray_files_and_folders_are_no_checkpoints(tmp_path: Path) -> None:
    path = save(make_trainer(), tmp_path, 4)
    for stray in ("step-000004.bak", "step-000009.damaged", "step-x", "notes"):
        (path.parent / stray).mkdir()
    (path.parent / "step-000010").touch()
    assert checkpoint.latest(tmp_path) == path


@pytest.mark.parametrize("limit", [2_000, 60_000])
def test_a_write_that_fails_leaves_the_older_checkpoint_and_no_draft(tmp_path: Path, limit: int) -> None:
    """The limit on the size of a file stands for a full disk: the write itself fails, in whichever library makes it."""
    trainer = make_trainer()
    first = save(trainer, tmp_path, 1)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(OSError, match=r"[Ff]ile too large"):
            save(trainer, tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert list((tmp_path / "checkpoints").iterdir()) == [first]
    checkpoint.verify_digests(first)
    save(trainer, tmp_path, 2)
