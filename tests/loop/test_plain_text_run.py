"""Next-token training on plain texts (`sft.objective: text`): what is learned, counted and refused."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy
from toy_runs import toy_config

from ansatz.config.layers import merge
from ansatz.config.load import load_run
from ansatz.data.store import read_problems
from ansatz.errors import DataError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.plain_text import block_demonstration, pack
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.sft import SftStage
from ansatz.loop.start_checks import check_start
from ansatz.models.load import load_policy
from ansatz.models.reader import reader_of
from ansatz.track.jsonl import read_jsonl

LONG = " ".join(str(7919 * n) for n in range(500))
TEXTS = [f"The number {n} comes after {n - 1}, and {n + 1} is next." for n in range(30)]


def config_of(folder, rows, **changes):
    """The toy recipe with these rows as data.sft; without rows it has its own."""
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = {"source": "text", "split": "train", "path": str(folder / "corpus.jsonl")}
    recipe = {
        "data": {"sft": source} if rows else {},
        "sft": {"objective": "text", "steps": 0, "epochs": 1, "batch_size": 1, "warmup_steps": 0},
        "train": {"steps": 0},
        "evaluate": {"problems": 2, "samples_per_prompt": 2, "k": 2},
        "save": {"every": 1, "keep": 9, "tensorboard": False},
    }
    return toy_config(folder, merge(recipe, changes))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_pipeline(config_of(tmp_path_factory.mktemp("text"), [{"text": text} for text in [*TEXTS, LONG]]))


def initial(run):
    return next((run / "model").glob("**/config.json")).parent


def blocks_of(run, problems, note, **overrides):
    context = SimpleNamespace(config=load_run(run, overrides=overrides), console=SimpleNamespace(note=note))
    return pack(context, problems, str(initial(run)))


def tokens_of(block):
    demonstration = block_demonstration(block)
    return [*demonstration.prompt.token_ids, *demonstration.response_ids]


def test_blocks_are_full_and_every_token_but_the_first_is_predicted_once(run):
    problems, reader = read_problems(run / "problems" / "sft.jsonl"), reader_of(initial(run))
    notes = []
    blocks = blocks_of(run, problems, notes.append)
    ids = [tokens_of(block) for block in blocks]
    assert [len(each) for each in ids[:-1]] == [reader.max_context] * (len(ids) - 1)
    assert len(ids) > 2
    assert all(left[-1] == right[0] for left, right in pairwise(ids))
    whole = [ids[0][0], *(token for each in ids for token in each[1:])]
    assert whole.count(reader.tokenizer.eos_token_id) == len(problems)
    texts = "".join(reader.tokenizer.decode(whole, skip_special_tokens=False)).split(reader.tokenizer.eos_token)
    assert sorted(texts[:-1]) == sorted(problem.solution for problem in problems)
    size = reader.max_context
    assert f"31 texts of {len(whole):,} tokens, in {len(ids)} blocks of at most {size}; 1 of the texts" in notes[0]


def test_texts_stay_in_the_order_of_their_file_if_the_recipe_says_so(run):
    problems, reader = read_problems(run / "problems" / "sft.jsonl"), reader_of(initial(run))
    ids = [tokens_of(block) for block in blocks_of(run, problems, str, **{"data.order": "file"})]
    whole = [ids[0][0], *(token for each in ids for token in each[1:])]
    texts = "".join(reader.tokenizer.decode(whole, skip_special_tokens=False)).split(reader.tokenizer.eos_token)
    assert texts[:-1] == [problem.solution for problem in problems]


def test_the_loss_is_that_of_the_next_token(run):
    """Against torch in float64: each step has the loss of one block under the weights before it, each block once."""
    problems = read_problems(run / "problems" / "sft.jsonl")
    blocks = [torch.tensor(tokens_of(block)) for block in blocks_of(run, problems, str)]
    folders = [initial(run), *sorted((run / "sft" / "checkpoints").iterdir())]
    seen = set()
    for row, folder in zip(read_jsonl(run / "sft" / "metrics.jsonl"), folders, strict=False):
        model = load_policy(folder).model.double()
        with torch.no_grad():
            losses = [float(cross_entropy(model(ids[None]).logits[0, :-1], ids[1:])) for ids in blocks]
        same = [n for n, loss in enumerate(losses) if loss == pytest.approx(row["train/loss"], rel=1e-5)]
        assert len(same) == 1
        assert row["train/tokens"] == len(blocks[same[0]]) - 1
        seen |= set(same)
    assert seen == set(range(len(blocks)))


def test_a_run_that_is_cut_off_ends_in_the_same_bytes(run):
    last = max((run / "sft" / "checkpoints").iterdir())
    before = (last / "model.safetensors").read_bytes()
    shutil.rmtree(last)
    (run / "sft" / "done.json").unlink()
    run_pipeline(load_run(run), resume=True)
    assert (last / "model.safetensors").read_bytes() == before


def test_rows_without_a_text_and_fields_besides_it_are_said(tmp_path):
    rows = [{"text": "One and two are three.", "note": "seen by nobody at all"}, {"txt": "Lost."}, {"text": " "}]
    with pytest.raises(DataError, match=r"line 2: the row has no field 'text'"):
        check_start(RunSources(config_of(tmp_path, rows)))
    sources = RunSources(config_of(tmp_path, rows, data={"unfit": "drop"}))
    assert [problem.solution for problem in sources.source("sft")] == ["One and two are three."]
    assert "nothing uses the field 'note' (1 of 3 rows)" in " ".join(sources.notes)
    assert len(sources.unfit.dropped["sft"]) == 2


def test_texts_and_demonstrations_are_not_confused(tmp_path):
    for rows, objective, message in (
        (
            [{"text": "One."}],
            "response",
            "1 of 1 rows, .* are plain text, which sft.objective: response does not train",
        ),
        ([], "text", "200 of 200 rows, .* are a question, which sft.objective: text does not train on"),
    ):
        config = config_of(tmp_path, rows, sft={"objective": objective})
        with pytest.raises(DataError, match=message):
            check_start(RunSources(config))


def test_explain_says_what_is_trained(tmp_path):
    text = SftStage().explain(config_of(tmp_path, [{"text": "One."}]))
    assert "loss = - sum over tokens of weight x log policy" in text
    assert "the texts, packed into blocks, of data.sft" in text
