"""Reward models are trained on packed responses, and are ordinary classifiers of transformers."""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from ansatz.config.schema import TrainSection
from ansatz.errors import ModelError, NonFiniteError
from ansatz.models.load import load_policy
from ansatz.models.save import save_model
from ansatz.reward_models.model import HEAD, load_reward_model
from ansatz.reward_models.trainer import LanguageLoss, RewardTrainer, reads
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample
from tests.tiny_models import ARCHITECTURES, some_sequences, tiny_folder

PROMPTS = [(5, 6, 7), (8, 9)]


def samples() -> list[TrainSample]:
    """Two prompts with three responses each; the second prompt has one correct response."""
    responses, labels = some_sequences(4, 7, 5, 6, 3, 8), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    return [
        TrainSample(
            prompt_ids=PROMPTS[index // 3],
            token_ids=response,
            behavior_logps=[0.0] * len(response),
            group=index // 3,
            reward=label,
        )
        for index, (response, label) in enumerate(zip(responses, labels, strict=True))
    ]


def with_steps(sample: TrainSample) -> TrainSample:
    return dataclasses.replace(sample, steps=((1, 0.25), (len(sample.token_ids) - 1, sample.reward)))


def trainer(
    folder: Path,
    kind,
    *,
    seed: int = 1,
    extra_layers: int = 0,
    language: LanguageLoss | None = None,
    device: str = "cpu",
    **settings,
) -> RewardTrainer:
    model = load_reward_model(folder, reads=reads(kind), extra_layers=extra_layers, device=device)
    generator = torch.Generator().manual_seed(seed)
    for parameter in getattr(model.model, HEAD).parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).to(device)
    return RewardTrainer(
        model,
        kind=kind,
        settings=TrainSection(**settings),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
        language=language,
    )


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("policy"))


CLASSES = {
    "bradley_terry": transformers.AutoModelForSequenceClassification,
    "process": transformers.AutoModelForTokenClassification,
}


@pytest.mark.parametrize("extra_layers", [0, 2])
@pytest.mark.parametrize("kind", CLASSES)
def test_transformers_loads_the_folder_and_gives_the_same_scores(policy_folder, tmp_path, kind, extra_layers):
    ours = trainer(policy_folder, kind, extra_layers=extra_layers)
    labelled = [with_steps(sample) for sample in samples()] if kind == "process" else samples()
    for step in (1, 2, 3):
        ours.update(ours.batch(labelled), step=step)
    (tmp_path / "training").mkdir()
    ours.save(tmp_path)
    theirs = CLASSES[kind].from_pretrained(tmp_path).eval()
    assert theirs.config.num_hidden_layers == 2 + extra_layers
    for sample in labelled:
        packed = ours.batch([sample]).packed
        ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
        logits = theirs(input_ids=ids).logits
        read = [index + len(sample.prompt_ids) for index, _ in sample.steps]
        expected = logits[0, read, 0] if kind == "process" else logits[0]
        torch.testing.assert_close(ours.scores(packed), expected, rtol=1e-4, atol=1e-5)


REFUSED = ("gemma", "gpt-oss")
"""Families whose embeddings are scaled by the width, or whose norms cannot be corrected for it."""


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if not name.startswith(REFUSED)])
def test_extra_layers_leave_the_policy_as_it_is_and_are_all_trained(tmp_path, name):
    folder = tiny_folder(tmp_path, name)
    plain = load_reward_model(folder, reads="step", device="cpu").model
    ours = trainer(folder, "process", extra_layers=2)
    deeper = ours.model.model
    batch = ours.batch([with_steps(sample) for sample in samples()])
    start = {key: value.detach().clone() for key, value in deeper.named_parameters()}
    before_TH = last_layer_of_policy(deeper)
    for step in (1, 2):
        ours.update(batch, step=step)
    moved = {key for key, value in deeper.named_parameters() if not torch.equal(start[key], value)}
    expected = {key for key in start if key.startswith(("model.layers.2.", "model.layers.3.", "model.norm", HEAD))}
    assert {key for key in expected if "expert" not in key} <= moved <= expected  # not every expert is used
    policy_TH = last_layer_of_policy(plain)
    assert torch.equal(last_layer_of_policy(deeper), before_TH)
    width = policy_TH.shape[1]
    assert float((before_TH[:, :width] - policy_TH).norm()) < 0.01 * float(policy_TH.norm())
    assert torch.equal(before_TH[:, width:], deeper.get_input_embeddings().weight[:8, width:])
    last_TH = after_layer(deeper, 3)  # writes to the second half of the 64 new channels only
    assert torch.equal(last_TH[:, : width + 32], before_TH[:, : width + 32])
    assert (last_TH[:, width + 32 :] != 0).all()


def last_layer_of_policy(model) -> torch.Tensor:
    """The residual stream of the tokens 0 to 7 after the second layer, the last one of the policy."""
    return after_layer(model, 1)


@pytest.mark.gpu
def test_extra_layers_are_trained_on_a_gpu(policy_folder):
    losses = dict[str, list[float]]()
    for device in ("cpu", "cuda"):
        ours = trainer(policy_folder, "process", extra_layers=2, device=device)
        batch = ours.batch([with_steps(sample) for sample in samples()])
        losses[device] = [ours.update(batch, step=step).metrics["train/loss"] for step in (1, 2, 3)]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)


def after_layer(model, index: int) -> torch.Tensor:
    seen = list[torch.Tensor]()
    hook = model.model.layers[index].register_forward_hook(lambda _, inputs, output: seen.append(output))
    with torch.no_grad():
        model.base_model(input_ids=torch.arange(8)[None])
    hook.remove()
    return seen[0].view(8, -1)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name.startswith(REFUSED)])
def test_layers_that_would_change_the_policy_are_not_added(tmp_path, name):
    with pytest.raises(ModelError, match=r"Set reward_model\.extra_layers to 0"):
        load_reward_model(tiny_folder(tmp_path, name), reads="step", extra_layers=1, device="cpu")


def test_only_a_policy_gets_layers_and_channels(policy_folder, tmp_path):
    policy = load_reward_model(policy_folder, reads="step", device="cpu")
    first = load_reward_model(policy_folder, reads="step", extra_layers=1, extra_width=8, device="cpu")
    assert first.model.config.num_hidden_layers == policy.model.config.num_hidden_layers + 1
    assert first.model.config.hidden_size == policy.model.config.hidden_size + 8
    save_model(first, tmp_path, state=dict(first.model.named_parameters()), dtype=torch.float32)
    again = load_reward_model(tmp_path, reads="step", extra_layers=1, device="cpu")
    for (name, left), right in zip(first.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(left, right), name
        assert (
            left.requires_grad == right.requires_grad == ("layers.2." in name or name.startswith(("model.norm", HEAD)))
        )


def test_two_models_from_one_policy_start_with_the_same_weights(policy_folder):
    first, second = (load_reward_model(policy_folder, reads="step", extra_layers=1, device="cpu") for _ in range(2))
    for left, right in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(left, right)


def test_a_model_that_starts_from_a_policy_scores_everything_0_and_needs_all_other_weights(policy_folder, tmp_path):
    model = load_reward_model(policy_folder, reads="response", device="cpu")
    assert not model.model.score.weight.any()
    shutil.copytree(policy_folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights, such as model\.norm\.weight"):
        load_reward_model(tmp_path, reads="response", device="cpu")


def expected_loss(ours: RewardTrainer, labelled: list[TrainSample]) -> float:
    """The loss from single forward passes, in float64 and with plain loops."""
    scores, labels, groups = [], [], []
    for sample in labelled:
        values = ours.scores(ours.batch([sample]).packed).detach().double()
        scores += list(values)
        labels += [label for _, label in sample.steps] or [sample.reward]
        groups += [sample.group] * len(values)
    if ours.kind == "bradley_terry":
        pairs = [
            -F.logsigmoid(scores[i] - scores[j])
            for i in range(len(scores))
            for j in range(len(scores))
            if groups[i] == groups[j] and labels[i] > labels[j]
        ]
        assert len(pairs) == 4  # two from the first prompt, two from the second
        return float(sum(pairs) / len(pairs))
    terms = [-(t * F.logsigmoid(s) + (1 - t) * F.logsigmoid(-s)) for s, t in zip(scores, labels, strict=True)]
    return float(sum(terms) / len(terms))


@pytest.mark.parametrize("kind", ["bradley_terry", "correctness", "process"])
@pytest.mark.parametrize("tokens", [16, 16384])
def test_the_loss_is_that_of_a_loop_whatever_the_microbatches(policy_folder, kind, tokens):
    ours = trainer(policy_folder, kind, tokens_per_microbatch=tokens)
    labelled = [with_steps(sample) for sample in samples()] if kind == "process" else samples()
    expected = expected_loss(ours, labelled)
    report = ours.update(ours.batch(labelled), step=1)
    assert report.metrics["train/loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["bradley_terry", "process"])
@pytest.mark.parametrize("tokens", [16, 16384])
def test_the_language_loss_is_that_of_the_policy_on_the_tokens_of_correct_responses(policy_folder, kind, tokens):
    labelled = [with_steps(sample) for sample in samples()] if kind == "process" else samples()
    policy = load_policy(policy_folder, device="cpu")
    nats = list[float]()
    for sample in labelled:
        if sample.reward == 0:
            continue
        ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
        logp_LV = policy.model(input_ids=ids).logits[0].detach().double().log_softmax(-1)
        nats += [-float(logp_LV[index - 1, ids[0, index]]) for index in range(len(sample.prompt_ids), ids.shape[1])]
    language = LanguageLoss(policy.head.weight.detach(), 0.5)
    ours = trainer(policy_folder, kind, language=language, tokens_per_microbatch=tokens)
    plain = expected_loss(ours, labelled)
    metrics = ours.update(ours.batch(labelled), step=1).metrics
    assert metrics["reward_model/language_loss"] == pytest.approx(sum(nats) / len(nats), rel=1e-5)
    assert metrics["train/loss"] == pytest.approx(plain + 0.5 * sum(nats) / len(nats), rel=1e-5)


@pytest.mark.parametrize("kind", ["bradley_terry", "process"])
def test_training_separates_the_labels_and_a_resumed_trainer_continues_with_the_same_bits(
    policy_folder, tmp_path, kind
):
    ours, labelled = trainer(policy_folder, kind), samples()
    batch = ours.batch(labelled)
    for step in range(1, 21):
        if step == 11:
            (tmp_path / "training").mkdir()
            ours.save(tmp_path)
            state = ours.state()
        report = ours.update(batch, step=step)
    assert report.metrics["reward_model/train_accuracy"] == 1.0
    again = trainer(policy_folder, kind, seed=2)
    again.restore(tmp_path, state)
    for step in range(11, 21):
        again.update(again.batch(labelled), step=step)
    assert again.version == ours.version == 20
    for name, weight in ours.optimizer.weights().items():
        assert torch.equal(weight, again.optimizer.weights()[name]), name


def test_an_update_that_is_not_finite_changes_nothing(policy_folder):
    ours = trainer(policy_folder, "correctness")
    before = {name: value.clone() for name, value in ours.optimizer.weights().items()}
    with pytest.raises(NonFiniteError, match="step 3"):
        ours.update(ours.batch([dataclasses.replace(samples()[0], reward=math.nan)]), step=3)
    assert all(torch.equal(value, before[name]) for name, value in ours.optimizer.weights().items())
