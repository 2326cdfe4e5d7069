"""A learned reward, with a real (tiny, untrained) Hugging Face folder made here."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest
from given import build_grader

from ansatz.errors import ConfigError, ModelError
from ansatz.process import take_notes
from ansatz.rewards.learned import learned

WORDS = ["<pad>", "<unk>", "what", "is", "one", "plus", "two", "three", "so", "it", "five", "user", "assistant"]
TEMPLATE = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"


def save_classifier(folder: Path, *, labels: int = 1, pad: bool = True, chat: bool = True) -> str:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", **({"pad_token": "<pad>"} if pad else {})
    )
    tokenizer.chat_template = TEMPLATE if chat else None
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_labels=labels,
    )
    LlamaForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_classifier(tmp_path_factory.mktemp("model"))


@pytest.fixture
def group(rollout):
    return [rollout(text, prompt="what is one plus two ") for text in ("three", "so it is five five five", "it")]


def values(judgements):
    return [judgement.value for judgement in judgements]


def test_each_response_gets_the_models_own_logit_padded_or_not(folder, group):
    import torch
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder)
    expected = []
    for rollout in group:
        ids = [WORDS.index(word) for word in f"{rollout.prompt.text}{rollout.text}".split()]
        expected.append(model(input_ids=torch.tensor([ids])).logits.item())
    assert len({round(value, 6) for value in expected}) == 3
    assert values(learned(group, model=folder)) == pytest.approx(expected, abs=1e-6)
    assert values(learned(group, model=folder, batch_size=1)) == pytest.approx(expected, abs=1e-6)


def test_a_model_without_a_padding_token_is_scored_row_by_row(tmp_path, folder, group):
    bare = save_classifier(tmp_path / "bare", pad=False)
    assert values(learned(group, model=bare)) == pytest.approx(values(learned(group, model=folder)), abs=1e-6)


def test_the_chat_form_shows_question_and_response_in_the_models_template(folder, rollout):
    chat = learned([rollout("three", prompt="never seen")], model=folder, form="chat")
    text = learned([rollout("assistant three", prompt="user ? ")], model=folder)
    assert values(chat) == pytest.approx(values(text), abs=1e-6)


def test_only_the_last_tokens_are_kept_and_that_is_said_once(folder, rollout):
    long, short = rollout("so it is three", prompt=""), rollout("is three", prompt="")
    take_notes()  # of other tests
    for _ in range(2):
        cut, whole = values(learned([long, short], model=folder, max_tokens=2))
        assert cut == pytest.approx(whole, abs=1e-6)
    (sentence,) = take_notes()
    assert "max_tokens = 2: with the prompt, 1 of 2 responses to problem" in sentence
    assert "have more tokens, up to 4." in sentence
    assert values(learned([long], model=folder)) != values(learned([short], model=folder))


def test_the_sigmoid_keeps_the_order_within_0_and_1(folder, group):
    plain, squashed = values(learned(group, model=folder)), values(learned(group, model=folder, squash="sigmoid"))
    assert squashed == pytest.approx([1 / (1 + math.exp(-value)) for value in plain])


def test_a_model_of_ones_own_is_a_file_and_extremes_do_not_overflow(tmp_path, group):
    file = tmp_path / "mine.py"
    file.write_text(
        "class Longer:\n"
        "    def score(self, rollouts):\n"
        "        return [1000.0 if 'five' in r.text else -1000.0 for r in rollouts]\n"
    )
    recipe = {"math_answer": {}, "learned": {"model": f"{file}:Longer", "squash": "sigmoid", "weight": 0.5}}
    with build_grader(recipe) as grader:
        scored = grader.score(group)
    assert [item.score.value for item in scored] == [0.0, 0.5, 0.0]
    assert not any(item.score.verdict for item in scored)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (None, {}, "not a model folder"),
        ({"labels": 2}, {}, "has 2 labels"),
        ({"chat": False}, {"form": "chat"}, "no chat template"),
        ({}, {"device": "moon"}, "cannot be loaded on 'moon'"),
    ],
)
def test_a_wrong_model_is_refused_before_any_work(tmp_path, make, settings, message):
    path = str(tmp_path / "m") if make is None else save_classifier(tmp_path / "m", **make)
    with pytest.raises(ModelError, match=message):
        build_grader({"learned": {"model": path, **settings}})


def test_a_factory_that_makes_no_model_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("def nothing(): return 5\n")
    with pytest.raises(ConfigError, match=r"returned 5, which has no method score"):
        build_grader({"learned": {"model": f"{tmp_path}/mine.py:nothing"}})


def test_the_reward_is_found_without_loading_torch():
    code = "from ansatz.rewards.base import rewards; import sys; print(rewards.names(), 'torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "'learned'" in seen
    assert seen.endswith(" False\n")
