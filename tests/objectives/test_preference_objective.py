"""The objective of pairs on a packed batch: its inputs and gradient, and that microbatches of whole pairs add up."""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from ansatz.audit.bundle import bundle_of, write_bundle
from ansatz.cli.replay import replay
from ansatz.errors import ConfigError, DataError
from ansatz.objectives.build import build_objective
from ansatz.objectives.preference import PREFERENCES
from ansatz.objectives.preference_objective import build_preference_objective
from ansatz.track.measurements import values
from ansatz.train.batch import TrainBatch, build_batch
from ansatz.train.packed import pack_rollouts
from ansatz.train.ranks import split_for_rank
from ansatz.train.sample import TrainSample
from ansatz.train.skipped import StoredUpdate
from ansatz.train.step import UpdateSettings, measure_loss

CPU = torch.device("cpu")
ALONE = [name for name in PREFERENCES.names() if PREFERENCES.get(name).__name__ != "likelihood"]


def pairs() -> list[TrainSample]:
    """Pairs of which two share each prompt, so that packing puts the four responses next to each other."""
    draw = random.Random(3)
    return [
        TrainSample(
            prompt_ids=[7, 8, pair // 2 + 10],
            token_ids=[100 * pair + 50 * side + index for index in range(draw.randint(2, 9))],
            behavior_logps=[],
            group=pair,
            reward=float(side == 0),
        )
        for pair in range(6)
        for side in (0, 1)
    ]


@pytest.mark.parametrize(
    ("loss", "smoothing"), [("robust", 0.5), ("robust", 0.7), ("exo", 0.0), ("dpo", 1.1), ("exo", -0.1)]
)
def test_a_share_of_flipped_labels_that_gives_no_loss_is_refused(loss: str, smoothing: float) -> None:
    with pytest.raises(ConfigError, match=rf"label_smoothing = {smoothing}, expected (above 0|0 or more) and"):
        build_preference_objective({loss: {"label_smoothing": smoothing}})


def batch_of(losses: dict, samples: list[TrainSample] | None = None) -> tuple:
    objective = build_preference_objective(losses)
    samples = [dataclasses.replace(each, behavior_logps=[0.0] * len(each.token_ids)) for each in samples or pairs()]
    packed = pack_rollouts(samples, device=CPU)
    ref_T = by_token(packed.token_T, 0.9) * packed.sampled_mask_T if objective.needs_ref else None
    return objective, build_batch(packed, objective, ref_logp_T=ref_T)


def by_token(token_T: torch.Tensor, scale: float) -> torch.Tensor:
    """A log-prob that depends only on the token."""
    return -scale * (torch.sin(token_T.double() * 12.9898) * 43758.5453).frac().abs().float() - 0.1


def loss_of(objective, batch: TrainBatch) -> tuple:
    policy_logp_T = (by_token(batch.packed.token_T, 1.0) * batch.mask_T).requires_grad_()
    parts = objective.loss(batch.for_loss(policy_logp_T), policy_logp_T)
    (gradient_T,) = torch.autograd.grad(parts.loss, policy_logp_T)
    return dataclasses.replace(parts, loss=parts.loss.detach()), gradient_T


@pytest.mark.parametrize("name", ALONE)
def test_the_losses_of_microbatches_of_whole_pairs_add_up_to_the_loss_of_the_batch(name: str) -> None:
    objective, batch = batch_of({name: {}, "likelihood": {"weight": 0.3}})
    whole, whole_T = loss_of(objective, batch)
    if objective.whole_minibatch:
        assert name in ("aot", "aot_unpaired", "bco", "bco_pair", "kto")
        return
    microbatches, _ = batch.microbatches(40, OneOf(0, 1), whole_groups=objective.whole_groups)
    assert len(microbatches) > 2
    found = [loss_of(objective, part) for part in microbatches]
    assert sum(float(parts.loss) for parts, _ in found) == pytest.approx(float(whole.loss), rel=1e-6)
    gradient_of = {
        int(token): float(value)
        for part, (_, gradient_T) in zip(microbatches, found, strict=True)
        for token, value in zip(part.packed.token_T[part.mask_T], gradient_T[part.mask_T], strict=True)
    }
    for token, value in zip(batch.packed.token_T[batch.mask_T], whole_T[batch.mask_T], strict=True):
        assert gradient_of[int(token)] == pytest.approx(float(value), rel=1e-4, abs=1e-6)
    for key in ("pairs", "tokens", "preference/margin", "preference/chosen_length"):
        assert sum(float(parts.sums[key]) for parts, _ in found) == pytest.approx(float(whole.sums[key]), rel=1e-5)


@dataclass(frozen=True)
class OneOf:
    rank: int
    size: int

    def gather(self, value):
        return [value]


@pytest.mark.parametrize(("size", "max_tokens"), [(1, 1), (1, 40), (1, 10**6), (2, 40), (3, 1), (8, 40)])
@pytest.mark.parametrize("multiple", [1, 3])
def test_no_microbatch_of_any_rank_cuts_a_pair(size: int, max_tokens: int, multiple: int) -> None:
    _, batch = batch_of({"dpo": {}})
    counted: list[int] = []
    for rank in range(size):
        microbatches, num_counted = split_for_rank(
            batch.packed, max_tokens, OneOf(rank, size), multiple=multiple, whole_groups=True
        )
        for number, rollouts in enumerate(microbatches):
            groups = batch.packed.group_N[rollouts]
            assert all((groups == group).sum() == 2 for group in groups)
            counted += rollouts.tolist() if number < num_counted else []
            lengths = torch.bincount(batch.segment_T)[rollouts]
            assert len(rollouts) == 2 or len(rollouts) * int(lengths.max()) <= max_tokens
    assert sorted(counted) == list(range(12))


def test_the_gradient_coefficient_is_the_same_for_all_tokens_and_pushes_the_responses_apart() -> None:
    objective, batch = batch_of({"dpo": {"beta": 0.5}})
    _, gradient_T = loss_of(objective, batch)
    for rollout in range(12):
        of_rollout = gradient_T[batch.mask_T & (batch.segment_T == rollout)]
        assert of_rollout == pytest.approx(torch.full_like(of_rollout, float(of_rollout[0])))
        assert (float(of_rollout[0]) < 0) is (float(batch.packed.reward_N[rollout]) == 1)
    assert gradient_T.abs().max() <= 0.5 / 6  # beta / pairs, times a sigmoid


def test_what_is_measured_of_pairs_is_that_of_the_responses_whatever_their_order() -> None:
    objective, batch = batch_of({"dpo": {}}, list(reversed(pairs())))
    parts, _ = loss_of(objective, batch)
    expected = dict.fromkeys(("margin", "accuracy", "chosen_logp", "rejected_logp", "chosen_length"), 0.0)
    for pair in range(6):
        chosen, rejected = (torch.tensor(each.token_ids) for each in pairs()[2 * pair : 2 * pair + 2])
        logp = [float(by_token(token_T, 1.0).sum()) for token_T in (chosen, rejected)]
        gain = [
            value - float(by_token(token_T, 0.9).sum()) for value, token_T in zip(logp, (chosen, rejected), strict=True)
        ]
        for name, value in (
            ("margin", gain[0] - gain[1]),
            ("accuracy", float(gain[0] > gain[1])),
            ("chosen_logp", logp[0]),
            ("rejected_logp", logp[1]),
            ("chosen_length", len(chosen)),
        ):
            expected[name] += value
    for name, value in expected.items():
        assert float(parts.sums[f"preference/{name}"]) == pytest.approx(value, abs=1e-4), name


def labelled() -> list[TrainSample]:
    """Five groups of a labelled response, of which the second and the last are undesirable, and a mismatched one."""
    signs = [1.0, -1.0, 1.0, 1.0, -1.0]
    return [
        dataclasses.replace(sample, reward=signs[sample.group] if sample.reward else 0.0)
        for sample in pairs()
        if sample.group < 5
    ]


def test_kto_learns_from_labelled_responses_and_only_measures_mismatched_ones() -> None:
    settings = {"beta": 0.5, "desirable_weight": 1.5}
    objective, batch = batch_of({"kto": settings, "likelihood": {"weight": 0.3}}, list(reversed(labelled())))
    parts, gradient_T = loss_of(objective, batch)

    def sums(sample: TrainSample) -> tuple[float, float]:
        """(log policy, gain)."""
        token_T = torch.tensor(sample.token_ids)
        policy, ref = (float(by_token(token_T, scale).double().sum()) for scale in (1.0, 0.9))
        return policy, policy - ref

    responses, mismatched = ([each for each in labelled() if bool(each.reward) is kind] for kind in (True, False))
    kl = sum(sums(each)[1] for each in mismatched) / 5
    assert kl < 0  # and so counts as 0
    wanted = 0.0
    for each in responses:
        sign = each.reward
        wanted += (1.5 if sign > 0 else 1.0) / (1 + math.exp(0.5 * sign * sums(each)[1])) / 5
    good = [each for each in responses if each.reward > 0]
    wanted -= 0.3 * sum(sums(each)[0] for each in good) / sum(len(each.token_ids) for each in good)
    assert float(parts.loss) == pytest.approx(wanted, rel=1e-5)

    signs = {each.token_ids[0]: each.reward for each in labelled()}
    for rollout in range(10):
        of_rollout = gradient_T[batch.mask_T & (batch.segment_T == rollout)]
        first = int(batch.packed.token_T[batch.mask_T & (batch.segment_T == rollout)][0])
        assert all((value < 0) - (value > 0) == signs[first] for value in of_rollout.tolist())

    bad = [each for each in responses if each.reward < 0]
    measured = {
        name: value.total / value.weight for name, value in measure_loss(parts, batch.for_loss(gradient_T)).items()
    }
    found = {name: value for name, value in measured.items() if name.startswith("preference/")}
    assert found == pytest.approx(
        {
            "preference/kl": kl,
            "preference/margin": sum(sums(each)[1] for each in good) / 3 - sum(sums(each)[1] for each in bad) / 2,
            "preference/chosen_logp": sum(sums(each)[0] for each in good) / 3,
            "preference/rejected_logp": sum(sums(each)[0] for each in bad) / 2,
            "preference/chosen_length": sum(len(each.token_ids) for each in good) / 3,
            "preference/rejected_length": sum(len(each.token_ids) for each in bad) / 2,
        },
        rel=1e-4,
    )


def test_what_is_measured_of_labelled_responses_of_one_kind_has_no_number_of_the_other() -> None:
    samples = [dataclasses.replace(each, reward=abs(each.reward)) for each in labelled()]
    objective, batch = batch_of({"kto": {}}, samples)
    parts, gradient_T = loss_of(objective, batch)
    names = {name for name in values(measure_loss(parts, batch.for_loss(gradient_T))) if name.startswith("preference/")}
    assert names == {"preference/kl", "preference/chosen_logp", "preference/chosen_length"}


def test_only_losses_that_compare_with_a_reference_need_one() -> None:
    without = {"cpo", "simpo", "orpo"}
    for name in ALONE:
        component = build_preference_objective({name: {}})
        assert component.needs_ref is (name not in without), name
    assert build_preference_objective({"simpo": {}, "dpo": {}}).needs_ref


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ({}, "preference.losses has no preference loss"),
        ({"likelihood": {}}, "preference.losses has no preference loss"),
        ({"dpoo": {}}, "preference 'dpoo' is unknown. Did you mean 'dpo'?"),
        ({"dpo": {"betta": 1}}, "has no setting 'betta'. Did you mean 'beta'?"),
        ({"dpo": {}, "kto": {}}, "preference.losses: kto learns from labelled responses, and dpo from pairs."),
        ({"dpo": {}, "sigmoid": {}}, "preference.losses: dpo and sigmoid are names of the same loss. Keep one"),
        ({"dpo": {}, "likelihood": {}, "sft": {}}, "likelihood and sft are names of the same loss."),
        ({"dpo": {"weight": 0}}, "preference.losses.dpo.weight = 0: expected a number above 0."),
        ({"dpo": {"weight": "much"}}, "preference.losses.dpo.weight = 'much': expected a number above 0."),
    ],
    ids=str,
)
def test_wrong_losses_are_refused_in_a_sentence(losses, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        build_preference_objective(losses)
    assert sentence in str(error.value)


def test_a_stored_update_of_pairs_is_not_taken_for_one_of_rl(tmp_path: Path) -> None:
    objective, batch = batch_of({"dpo": {}})
    settings = UpdateSettings(lr=1e-3, max_grad_norm=1.0, tokens_per_microbatch=64)
    about = {
        "step": 3,
        "cause": "the loss is nan",
        "of": "policy",
        "settings": settings,
        "dtype": "float32",
        "updates_per_step": 1,
    }
    stored = StoredUpdate(minibatch=batch, objective=objective, save_policy=lambda folder: None, **about)
    write_bundle(tmp_path, bundle_of(stored))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match="an update of another stage than RL"):
        replay(tmp_path, tolerance=1e-3, trust_code=False)
    of_rl = dataclasses.replace(stored, objective=build_objective({"preset": "grpo"}))
    assert bundle_of(of_rl).options["algorithm"]["surrogate"] == {"name": "clip", "low": 0.2, "high": 0.2}
