"""A card names a run that anybody can repeat, and is a file of somebody else: it is checked before it is used."""

from __future__ import annotations

import base64
import copy
import json
import os
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_runs import toy_config

from ansatz.cli.export import export
from ansatz.errors import ConfigError, UntrustedCodeError
from ansatz.loop import chain
from ansatz.loop.chain import CHAIN_FILE
from ansatz.loop.pipeline import run_pipeline
from ansatz.repeat.card import MAX_BYTES, Step, Trace, chain_of, config_of, read_card, write_card
from ansatz.repeat.rerun import Comparison, Span, causes, compare_traces, repeat_run
from ansatz.track.jsonl import read_jsonl

VARIED = {"rewards": {"math_answer": {"weight": 0}, "repetition": {"ngram": 1}}, "train": {"lr": 1e-3}}
"""Rewards that differ from response to response, also for a model that has learned nothing."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = toy_config(tmp_path_factory.mktemp("made"), VARIED)
    folder = run_pipeline(config)
    write_card(folder, config)
    return folder


@pytest.fixture
def content(run: Path) -> dict[str, Any]:
    return json.loads((run / "card.json").read_text())


def written(folder: Path, content: dict[str, Any], *, chained: bool = True) -> Path:
    """The file of a card. chained: with the chain of its steps, as a card has that somebody made on purpose."""
    if chained:
        stages = {name: [Step.model_validate(row) for row in rows] for name, rows in content["stages"].items()}
        content = {**content, "chain": chain_of(stages)}
    file = folder / "card.json"
    file.write_text(json.dumps(content))
    return file


def repeated(file: Path, folder: Path, *, span: Span | None = None, until_differs: bool = False, **more: str) -> Any:
    """The comparison of a run that is made from the card, and its causes."""
    card = read_card(file)
    config = config_of(card, file, {"out": str(folder / "again"), **more}, trust_code=True)
    comparison = Comparison(card=card, span=span, until_differs=until_differs)
    repeat_run(card, config, comparison, console=None, fresh=False)
    return comparison, (causes(comparison, config.run_dir, config) if comparison.first else [])


def test_a_card_has_a_digest_of_every_step_and_the_class_of_every_stage(content: dict[str, Any], run: Path):
    assert [*content["stages"]] == ["sft", "rl"]
    begin, *steps = content["stages"]["rl"]
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert {"device": "cpu", "dtype": "float32", "threads": 1}.items() <= begin["arithmetic"].items()
    weights = [row["weights"] for row in content["stages"]["sft"] + content["stages"]["rl"]]
    assert len({*weights}) == len(weights) - 1  # RL starts with the weights that SFT ends with
    assert len({row["rollouts"] for row in steps}) == len({row["logps"] for row in steps}) == 4
    assert content["data"].keys() >= {"problems/train.jsonl", "model/model.safetensors"}
    assert read_card(run).chain == content["chain"]


def test_rows_that_a_full_disk_has_refused_are_written_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    trainer: Any = object()  # one without a policy, as of a reward model
    chain.begin_chain(tmp_path, 0, trainer, dtype="float32")
    with monkeypatch.context() as patch:
        patch.setattr(chain, "append_text", full)
        chain.extend_chain(tmp_path, 1, trainer, (), num_steps=3)
    for step in (2, 3):
        chain.extend_chain(tmp_path, step, trainer, (), num_steps=3)
    assert [row["step"] for row in read_jsonl(tmp_path / CHAIN_FILE)] == [1, 2, 3]


def test_a_card_repeats_its_run_to_the_same_bits(run: Path, tmp_path: Path):
    comparison, _ = repeated(run, tmp_path)
    assert (comparison.first, comparison.same, comparison.unknown) == ({}, 8, 0)
    assert [read_jsonl(folder / "rl" / CHAIN_FILE) for folder in (run, tmp_path / "again" / "repeat_toy")] == [
        read_jsonl(run / "rl" / CHAIN_FILE)
    ] * 2


def test_a_repetition_ends_after_the_steps_that_are_asked_for(run: Path, tmp_path: Path):
    comparison, _ = repeated(run, tmp_path, span=Span(stage="sft", first=2, last=3))
    assert (comparison.first, comparison.same) == ({}, 2)
    assert len(read_jsonl(tmp_path / "again" / "repeat_toy" / "sft" / CHAIN_FILE)) == 4  # the start, and three steps


def test_a_card_without_digests_is_not_called_the_same(ansatz: Any, content: dict[str, Any], tmp_path: Path):
    for row in content["stages"]["sft"][1:]:
        row |= {"rollouts": None, "logps": None, "weights": None, "trace": None}
    content["num_changes"] = 1
    code, out, err = ansatz("repeat", written(tmp_path, content), "--steps", "sft/1:2", "--out", tmp_path / "again")
    assert (code, err) == (1, "")
    assert "recipe: changed once while the run was resumed; the card has its last form" in out
    assert "2 steps could not be compared: the card has no digests of them." in out
    assert "nothing could be compared" in out
    assert "same bits" not in out


def test_a_card_with_the_digests_of_some_steps_is_the_same_as_far_as_it_goes(
    ansatz: Any, content: dict[str, Any], tmp_path: Path
):
    content["stages"]["sft"][2] |= {"rollouts": None, "logps": None, "weights": None, "trace": None}
    code, out, err = ansatz("repeat", written(tmp_path, content), "--steps", "sft/1:2", "--out", tmp_path / "again")
    assert (code, err) == (0, "")
    assert "1 steps could not be compared: the card has no digests of them." in out
    assert "same bits in the steps that could be compared (1 steps)" in out


@pytest.mark.parametrize(("first", "last"), [(2, 9), (5, 5), (5, None)])
def test_steps_that_the_card_does_not_have_are_refused(run: Path, tmp_path: Path, first: int, last: int | None):
    with pytest.raises(ConfigError, match=r"It has sft/1:\d+, rl/1:4\."):
        repeated(run, tmp_path, span=Span(stage="rl", first=first, last=last))


@pytest.mark.parametrize("steps", ["0:", "0:2", "3:1", "sft", "1"])
def test_steps_are_a_range_from_1_on(ansatz: Any, content: dict[str, Any], tmp_path: Path, steps: str):
    code, _, err = ansatz("repeat", written(tmp_path, content), "--steps", steps, "--out", tmp_path / "again")
    assert (code, f"--steps {steps!r}: expected A:B" in err) == (2, True)


def test_a_digest_that_differs_is_named_with_its_step(content: dict[str, Any], tmp_path: Path):
    content["stages"]["rl"][2]["weights"] = "0" * 16
    comparison, found = repeated(written(tmp_path, content), tmp_path)
    assert comparison.first == {"weights": ("rl", 2)}
    assert (comparison.same, found) == (7, [])


def test_another_learning_rate_differs_in_weights_then_log_probs_then_tokens(content: dict[str, Any], tmp_path: Path):
    content["recipe"]["train"]["lr"] *= 300
    comparison, _ = repeated(written(tmp_path, content), tmp_path, until_differs=True)
    assert comparison.first["weights"] == ("rl", 1)
    assert comparison.first["log-probs"] == comparison.first["tokens"] == ("rl", 2)
    assert comparison.detail.startswith("step 2: first different token ")
    assert not (tmp_path / "again" / "repeat_toy" / "rl" / "done.json").exists()


def test_a_changed_recipe_other_versions_data_and_arithmetic_are_named_as_causes(
    content: dict[str, Any], tmp_path: Path
):
    content["num_changes"] = 2
    content["packages"]["torch"] = "1.0"
    content["data"]["problems/train.jsonl"] = "0" * 64
    content["stages"]["sft"][0]["arithmetic"]["instructions"] = "AVX1024"
    content["stages"]["sft"][1]["weights"] = "0" * 16
    comparison, found = repeated(written(tmp_path, content), tmp_path, span=Span(stage="sft", first=1, last=1))
    assert comparison.first == {"weights": ("sft", 1)}
    assert found[0] == "recipe: changed 2 times while the run was resumed; the card has its last form"
    assert [cause.partition(":")[0] for cause in found[1:]] == ["data", "versions", "arithmetic class"]
    assert "torch 1.0 there" in found[2]
    assert "instructions AVX1024 there" in found[3]


def test_a_changed_card_is_refused(content: dict[str, Any], tmp_path: Path):
    content["stages"]["rl"][2]["weights"] = "0" * 16
    with pytest.raises(ConfigError, match="was changed: its steps add up to the chain"):
        read_card(written(tmp_path, content, chained=False))


def test_an_exported_model_has_the_card_of_its_run(run: Path, tmp_path: Path):
    export(run, tmp_path / "model")
    assert read_card(tmp_path / "model") == read_card(run)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_cut_card_is_refused(run: Path, tmp_path: Path, keep: float):
    text = (run / "card.json").read_text()
    (tmp_path / "card.json").write_text(text[: int(keep * len(text))])
    with pytest.raises(ConfigError, match="card"):
        read_card(tmp_path / "card.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    with open(tmp_path / "card.json", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ConfigError, match="a card has at most"):
        read_card(tmp_path)


def test_a_pipe_and_a_missing_file_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "card.json")
    for path in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(ConfigError, match="is not a file"):
            read_card(path)


DAMAGES: dict[str, Any] = {
    "format": 2,
    "recipe": [],
    "stages": {"rl": [{"step": -1}]},
    "packages": {"torch": 2},
    "chain": "../../etc",
    "num_changes": True,
    "unknown": 1,
}


@pytest.mark.parametrize("key", DAMAGES)
def test_a_value_of_another_kind_is_refused_by_name(content: dict[str, Any], tmp_path: Path, key: str):
    with pytest.raises(ConfigError, match=key):
        read_card(written(tmp_path, {**content, key: DAMAGES[key]}, chained=False))


def trace(*responses: list[int], logps: list[float] | None = None, traced: int = 2) -> Trace:
    marks = [bytes(token % 256 for token in accumulate(tokens)) for tokens in responses]
    packed = [base64.b64encode(each).decode() for each in (bytes(each[-1] for each in marks), b"".join(marks[:traced]))]
    floats = None if logps is None else base64.b64encode(np.array(logps, "<f4").tobytes()).decode()
    return Trace(samples=packed[0], lengths=[len(each) for each in marks[:traced]], tokens=packed[1], logps=floats)


def test_a_trace_has_as_many_marks_as_it_says():
    whole = trace([7], [8, 1], logps=[-0.5, -1.0, -2.0])
    assert whole.responses() == [(b"\7", [-0.5]), (b"\x08\t", [-1.0, -2.0])]
    for change in (
        {"lengths": [1]},
        {"lengths": [1, 3]},
        {"logps": "AAAA"},
        {"logps": "A" * 32},
        {"tokens": "?"},
        {"tokens": ""},
    ):
        with pytest.raises(ValueError, match=r"a trace of|base64|padding"):
            whole.model_copy(update=change).responses()


def test_traces_say_the_first_token_that_differs():
    before = Step(step=3, trace=trace([1, 1], [5, 6, 7], [3], logps=[-1.0, -1.0, -1.0, -2.0, -3.0]))
    other = Step(step=3, trace=trace([1, 1], [5, 6, 8], [3], logps=[-1.0, -1.0, -1.0, -2.25, -9.0]))
    found = "step 3: first different token 2 of sample 1; log-prob difference 0.25 at most"
    assert compare_traces(before, other) == found
    assert compare_traces(before, before) == compare_traces(before, Step(step=3)) == ""
    left, right = (Step(step=9, trace=trace([1, 1], [5], [last])) for last in (3, 4))
    found = "step 9: first different token (not in the card) of sample 2; log-probs are not in the card"
    assert compare_traces(left, right) == found
    longer = Step(step=9, trace=trace([1, 1, 2], [5], [3]))
    assert compare_traces(left, longer).startswith("step 9: first different token 2 of sample 0;")


def test_code_that_a_card_names_is_not_imported(content: dict[str, Any], tmp_path: Path):
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef score(**_): return []\n")
    content["recipe"]["rewards"] = {f"{tmp_path / 'mine.py'}:score": {}}
    card = read_card(written(tmp_path, content))
    with pytest.raises((UntrustedCodeError, ConfigError)):
        run_pipeline(config_of(card, tmp_path / "card.json", {"out": str(tmp_path)}))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["secret.jsonl", "./secret.jsonl", "*/secret.jsonl", "~/secret.jsonl"])
def test_a_file_that_a_card_names_is_not_read(
    content: dict[str, Any], tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("secret.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    content["recipe"]["data"]["train"] = {"source": "files", "path": name}
    card = read_card(written(tmp_path, content))
    with pytest.raises(ConfigError, match=r"data\.train\.path = .*the card names a place on this machine"):
        config_of(card, tmp_path / "card.json", {})
    given = config_of(card, tmp_path / "card.json", {"data.train.path": "secret.jsonl"})
    assert str(given.data.train["path"] if isinstance(given.data.train, dict) else given.data.train).count("secret")


def test_the_model_of_a_card_is_not_read_from_a_folder_here(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "mine").mkdir(parents=True)
    content["recipe"]["model"]["path"] = "models/mine"
    with pytest.raises(ConfigError, match=r"model\.path"):
        config_of(read_card(written(tmp_path, content)), tmp_path / "card.json", {})


def test_only_keys_that_can_name_a_place_are_refused_and_only_with_options_that_are_allowed(
    content: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "word_problems", "tiny", "adamw", "all"):
        (tmp_path / name).mkdir()
    content |= {"signatures": []}  # of somebody else
    content["recipe"]["rollout"]["stop"] = ["/", "..."]
    config_of(read_card(written(tmp_path, content)), tmp_path / "card.json", {})
    (tmp_path / "turn.txt").write_text("{question}")
    for changes, key in (
        ({"rewards": {"learned": {"model": "train"}}}, "rewards.learned.model"),
        ({"data": {**content["recipe"]["data"], "template": {"name": "chat", "user": "turn.txt"}}}, "template.user"),
    ):
        card = read_card(written(tmp_path, {**content, "recipe": {**content["recipe"], **changes}}))
        with pytest.raises(ConfigError, match=rf"{key} = .* be used, allow everything .* with --trust-code"):
            config_of(card, tmp_path / "card.json", {})


def test_the_user_who_made_a_run_may_repeat_it_with_his_own_files(run: Path, tmp_path: Path):
    card = read_card(run)
    recipe = copy.deepcopy(card.recipe)
    assert config_of(card, run / "card.json", {}).found_in is None  # the signature is this user's
    recipe["data"]["template"] = "boxed"  # a text that was not signed
    assert config_of(card.model_copy(update={"recipe": recipe}), run / "card.json", {}).found_in == run / "card.json"


def test_settings_that_change_a_run_are_refused(run: Path):
    with pytest.raises(ConfigError, match=r"--train\.lr would change the run"):
        config_of(read_card(run), run / "card.json", {"train.lr": "1"})


def test_place_workers_and_name_of_the_card_are_not_taken_over(content: dict[str, Any], tmp_path: Path):
    content["recipe"] |= {"out": "/etc", "name": "../x", "cluster": {"address": "10.0.0.1:6379", "trainers": 2}}
    card = read_card(written(tmp_path, content))
    config = config_of(card, tmp_path / "card.json", {"cluster.workers": "3"})
    assert str(config.run_dir) == "runs/repeat__x"
    assert (config.cluster.address, config.cluster.trainers, config.cluster.workers) == ("", 2, 3)
