from __future__ import annotations

import dataclasses
import itertools
import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.objectives.presets import PRESETS
from ansatz.train.batch import LossBatch, TrainBatch, build_batch
from ansatz.train.packed import PackedRollouts, pack_rollouts, select_rollouts, split_into_microbatches
from ansatz.train.sample import TrainSample

CPU = torch.device("cpu")
FAR = 31.0  # what stands outside the mask where nothing may look


def some_rows(*, groups: int = 4, size: int = 3, seed: int = 0) -> list[TrainSample]:
    """Rows of different lengths; a row's response tokens are 100 * group + 10 * member + index, so each is known."""
    draw = random.Random(seed)
    rows: list[TrainSample] = []
    for group in range(groups):
        prompt = [draw.randrange(2, 50) for _ in range(draw.randint(1, 7))]
        for member in range(size):
            length = draw.randint(1, 9)
            rows.append(
                TrainSample(
                    prompt_ids=prompt,
                    token_ids=[1000 + 100 * group + 10 * member + index for index in range(length)],
                    behavior_logps=[-draw.random() for _ in range(length)],
                    group=group,
                    reward=float(draw.random() < 0.5) + 0.1 * member,
                    truncated=draw.random() < 0.3,
                    components=(draw.random(), draw.random()),
                )
            )
    return rows


def objective_of(preset: str, **changes: Any) -> Objective:
    return build_objective({"preset": preset, "entropy_coef": 0.01, **changes}, max_response_tokens=9)


def by_token(batch: TrainBatch, *, salt: int, scale: float = 0.3) -> Tensor:
    """A number a token that depends on the token and its rollout alone, wherever it stands in the batch."""
    token_T = batch.packed.token_T.double()
    return (torch.sin(token_T * (12.9898 + salt)) * 43758.5453).frac().float() * scale


def whole_batch(rows: list[TrainSample], objective: Objective) -> LossBatch:
    """Old, reference and behavior log-probs, values and baselines from the tokens themselves."""
    packed = pack_rollouts(rows, device=CPU)
    bare = build_batch(packed, build_objective({"preset": "reinforce"}, max_response_tokens=9))
    old_T, ref_T, value_T = (by_token(bare, salt=salt) * packed.mask_T for salt in (1, 2, 3))
    packed = dataclasses.replace(packed, behavior_logp_T=old_T + by_token(bare, salt=4, scale=0.05) * packed.mask_T)
    group_N = packed.group_N.double()
    baseline_N = (torch.sin(group_N * 7.1) * 0.5).float()
    batch = build_batch(packed, objective, old_logp_T=old_T, ref_logp_T=ref_T, value_T=value_T, baseline_N=baseline_N)
    assert isinstance(batch, LossBatch)
    return batch


def before_update(batch: TrainBatch) -> TrainBatch:
    """The batch without old log-probs."""
    return TrainBatch(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(TrainBatch)})


def loss_and_gradient(batch: TrainBatch, objective: Objective, max_tokens: int) -> tuple[float, dict[int, float]]:
    """The loss summed over slices, and its gradient in each response token's log-prob, by token id."""
    loss, gradient = 0.0, dict[int, float]()
    for part in batch.microbatches(max_tokens):
        logp_T = by_token(part, salt=5).requires_grad_()
        entropy_T = by_token(part, salt=6).abs()
        parts = objective.loss(part.for_loss(logp_T), logp_T, entropy_T)
        parts.loss.backward()
        loss += parts.loss.item()
        mask_T = part.mask_T
        gradient |= dict(zip(part.packed.token_T[mask_T].tolist(), logp_T.grad[mask_T].tolist(), strict=True))
    return loss, gradient


SLICED = [name for name in PRESETS if not objective_of(name).whole_minibatch]


@pytest.mark.parametrize("preset", SLICED)
def test_slices_add_up_to_the_whole_whatever_their_size_the_order_of_rollouts_and_the_names_of_groups(
    preset: str,
) -> None:
    objective, rows = objective_of(preset), some_rows(size=6)
    loss, gradient = loss_and_gradient(whole_batch(rows, objective), objective, 10**6)
    assert any(gradient.values())
    turned = random.Random(1).sample(rows, len(rows))
    renamed = [dataclasses.replace(row, group=(row.group * 7 + 3) % 11) for row in turned]
    for given, max_tokens in [(rows, 1), (rows, 40), (turned, 25), (turned, 10**6), (renamed, 60)]:
        if preset == "remax" and given is renamed:
            continue  # its baselines are looked up by the group's name
        other_loss, other_gradient = loss_and_gradient(whole_batch(given, objective), objective, max_tokens)
        assert other_loss == pytest.approx(loss, abs=2e-6)
        assert other_gradient == pytest.approx(gradient, abs=1e-6)


def test_a_rollouts_mismatch_weight_in_training_includes_tokens_that_a_mask_rejects() -> None:
    # log(old / behavior) = 0.5, -0.1 and 0.2: k2 = 0.125 rejects the first token; the product is exp(0.6).
    gaps = torch.tensor([0.5, -0.1, 0.2])
    sample = TrainSample(prompt_ids=[1], token_ids=[5, 6, 7], behavior_logps=(-1 - gaps).tolist(), group=0, reward=1.0)
    objective = build_objective(
        {
            "preset": "reinforce",
            "weights": "token_sum",
            "masks": {"name": "rejection", "estimator": "k2", "high": 0.1},
            "correction": {"name": "truncate", "level": "sequence", "high": None},
        }
    )
    batch = build_batch(pack_rollouts([sample], device=CPU), objective, old_logp_T=torch.tensor([0.0, -1, -1, -1]))
    assert batch.mask_T.tolist() == [False, False, True, True]
    logp_T = torch.tensor([0.0, -1, -1, -1], requires_grad=True)
    objective.loss(batch.for_loss(logp_T), logp_T, None).loss.backward()
    assert logp_T.grad is not None
    assert (-logp_T.grad).tolist() == pytest.approx([0, 0, math.exp(0.6), math.exp(0.6)])


@pytest.mark.parametrize("weights", ["token_mean", "token_sum", "sequence_mean", "sequence_sum", "prompt_mean"])
def test_every_kind_of_weight_adds_up_also_with_masks_and_penalties_of_their_own(weights: str) -> None:
    objective = objective_of("grpo", weights=weights, penalty_weights="token_mean", masks="not_truncated", kl_coef=0.1)
    batch = whole_batch(some_rows(), objective)
    assert batch.num_loss_tokens < pack_rollouts(some_rows(), device=CPU).mask_T.sum()
    loss, gradient = loss_and_gradient(batch, objective, 10**6)
    for max_tokens in (1, 30, 50):
        other_loss, other_gradient = loss_and_gradient(batch, objective, max_tokens)
        assert other_loss == pytest.approx(loss, rel=1e-5)
        assert other_gradient == pytest.approx(gradient, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("preset", PRESETS)
def test_values_outside_the_mask_do_not_matter(preset: str) -> None:
    objective = objective_of(preset, kl_coef=0.1)
    batch = whole_batch(some_rows(), objective)
    outside_T = ~batch.mask_T
    names = ["old_logp_T", "ref_logp_T", "advantage_T", "weight_T"]
    noisy = dataclasses.replace(
        batch,
        packed=dataclasses.replace(batch.packed, behavior_logp_T=batch.behavior_logp_T + FAR * outside_T),
        **{name: getattr(batch, name) + FAR * outside_T for name in names},
    )
    assert loss_and_gradient(noisy, objective, 10**6) == loss_and_gradient(batch, objective, 10**6)


@pytest.mark.parametrize("preset", PRESETS)
def test_without_old_log_probs_the_policy_is_its_own_old_policy(preset: str) -> None:
    """The same numbers as with the policy's values given."""
    objective = objective_of(preset)
    batch = whole_batch(some_rows(), objective)
    given = dataclasses.replace(batch, old_logp_T=by_token(batch, salt=5))
    left_out = before_update(batch)
    for max_tokens in (10**6, 40):
        assert loss_and_gradient(left_out, objective, max_tokens) == loss_and_gradient(given, objective, max_tokens)
    assert left_out.for_loss(by_token(batch, salt=5).requires_grad_()).old_logp_T.requires_grad is False


PROMPTS = ([1, 2, 3], [1, 2], [1, 2, 3], [4, 2, 3])


def test_a_layout_holds_each_row_once_by_prompt_and_then_the_longest_first() -> None:
    rows = some_rows()
    packed = pack_rollouts(rows, device=CPU)
    found: list[tuple[Any, ...]] = []
    for n in range(packed.num_rollouts):
        own_T = packed.segment_T == n
        response_T = own_T & packed.mask_T
        prompt = packed.token_T[own_T & ~packed.mask_T].tolist()
        logps = [round(logp, 5) for logp in packed.behavior_logp_T[response_T].tolist()]
        found.append((prompt, packed.token_T[response_T].tolist(), logps, packed.group_N[n].item()))
        assert packed.position_T[own_T].tolist() == list(range(int(own_T.sum())))
        assert packed.mask_T[own_T].tolist() == [False] * len(prompt) + [True] * len(logps)
        row = next(row for row in rows if row.token_ids == found[-1][1])
        assert packed.reward_N[n].item() == pytest.approx(row.reward)
        assert packed.truncated_N[n].item() is row.truncated
        assert packed.component_NK[n].tolist() == pytest.approx(row.components)
    expected = [
        (list(row.prompt_ids), row.token_ids, [round(logp, 5) for logp in row.behavior_logps], row.group)
        for row in rows
    ]
    assert sorted(found) == sorted(expected)
    prompts = [tuple(prompt) for prompt, *_ in found]
    by_prompt = {
        prompt: [len(response) for other, response, *_ in found if tuple(other) == prompt] for prompt in prompts
    }
    assert prompts == [prompt for prompt, lengths in by_prompt.items() for _ in lengths]  # side by side
    assert all(lengths == sorted(lengths, reverse=True) for lengths in by_prompt.values())
    longest = [len(prompt) + lengths[0] for prompt, lengths in by_prompt.items()]
    assert longest == sorted(longest, reverse=True)
    assert not packed.behavior_logp_T[~packed.mask_T].any()


def test_rollouts_of_one_prompt_share_its_number_and_their_responses_have_none() -> None:
    rows = [
        TrainSample(prompt_ids=prompt, token_ids=[9], behavior_logps=[0.0], group=0, reward=0.0) for prompt in PROMPTS
    ]
    packed = pack_rollouts(rows, device=CPU)
    assert packed.prompt_id_T is not None
    numbers = {
        tuple(packed.token_T[own_T & ~packed.mask_T].tolist()): set(packed.prompt_id_T[own_T & ~packed.mask_T].tolist())
        for own_T in (packed.segment_T == n for n in range(len(rows)))
    }
    assert sorted(map(len, numbers.values())) == [1, 1, 1]
    assert len(set.union(*numbers.values())) == 3
    assert set(packed.prompt_id_T[packed.mask_T].tolist()) == {-1}
    assert pack_rollouts(rows[:2], device=CPU).prompt_id_T is None


def test_supports_stand_at_their_tokens_and_rows_without_them_have_the_whole_vocabulary() -> None:
    rows = some_rows()
    assert pack_rollouts(rows, device=CPU).num_candidates_T is None
    rows[4] = dataclasses.replace(rows[4], num_candidates=list(range(3, 3 + len(rows[4].token_ids))))
    batch = whole_batch(rows, objective_of("grpo"))
    for part in (batch, *batch.microbatches(40)):
        token_T, num_candidates_T = (
            part.packed.token_T[part.mask_T].tolist(),
            part.packed.num_candidates_T[part.mask_T].tolist(),
        )
        own = dict(zip(rows[4].token_ids, rows[4].num_candidates, strict=True))
        assert num_candidates_T == [own.get(token, 2**31) for token in token_T]


def test_the_first_tokens_of_a_row_with_a_minimum_are_endless_and_no_others() -> None:
    rows = some_rows()
    assert pack_rollouts(rows, device=CPU).no_eos_T is None
    rows[4] = dataclasses.replace(rows[4], min_response_tokens=len(rows[4].token_ids) - 1)
    rows[7] = dataclasses.replace(rows[7], min_response_tokens=100)
    expected = {*rows[4].token_ids[:-1], *rows[7].token_ids}
    packed = pack_rollouts(rows, device=CPU)
    assert set(packed.token_T[packed.no_eos_T].tolist()) == expected
    own = select_rollouts(packed, packed.segment_T[packed.token_T == rows[4].token_ids[0]])
    assert own.token_T[own.no_eos_T].tolist() == rows[4].token_ids[:-1]


def test_forced_tokens_are_context_alone() -> None:
    rows = [row for row in some_rows(size=6) if len(row.token_ids) > 4]
    rows = [
        dataclasses.replace(row, sampled_mask=[True, False, *[True] * (len(row.token_ids) - 4), False, False])
        for row in rows
    ]
    packed = pack_rollouts(rows, device=CPU)
    forced = {row.token_ids[index] for row in rows for index in (1, -2, -1)}
    response = {token for row in rows for token in row.token_ids}
    assert set(packed.token_T[packed.mask_T].tolist()) == response - forced
    assert set(packed.token_T[packed.prompt_id_T < 0].tolist()) == response
    assert not packed.behavior_logp_T[~packed.mask_T].any()
    assert packed.step_end_T[packed.mask_T].sum() == len(rows)
    assert packed.step_reward_T.sum().item() == pytest.approx(sum(row.reward for row in rows))
    last = {row.token_ids[-3] for row in rows}
    assert set(packed.token_T[packed.step_end_T].tolist()) == last


@pytest.mark.parametrize("preset", PRESETS)
def test_forced_tokens_have_neither_weight_nor_advantage_nor_gradient(preset: str) -> None:
    rows = [
        dataclasses.replace(row, sampled_mask=[True, *[False] * (len(row.token_ids) - 1)]) for row in some_rows(size=4)
    ]
    objective = objective_of(preset, kl_coef=0.1)
    batch = whole_batch(rows, objective)
    assert not batch.weight_T[~batch.packed.mask_T].any()
    assert not batch.advantage_T[~batch.packed.mask_T].any()
    _, gradient = loss_and_gradient(batch, objective, 10**6)
    assert set(gradient) <= {row.token_ids[0] for row in rows}


def test_steps_that_end_on_forced_tokens_end_at_the_policys_last_before_and_add_up() -> None:
    row = dataclasses.replace(
        some_rows()[0],
        token_ids=[5, 6, 7, 8, 9],
        behavior_logps=[-1.0] * 5,
        sampled_mask=[True, True, False, False, True],
        steps=[(1, 0.25), (3, 0.5), (4, 1.0)],
    )
    packed = pack_rollouts([row], device=CPU)
    first = len(row.prompt_ids)
    assert packed.step_end_T.nonzero().flatten().tolist() == [first + 1, first + 4]
    assert packed.step_reward_T[first:].tolist() == [0.0, 0.75, 0.0, 0.0, 1.0]


def test_a_row_without_a_prompt_or_with_log_probs_of_another_length_is_refused() -> None:
    row = some_rows()[0]
    with pytest.raises(ValueError, match="has no prompt"):
        pack_rollouts([row, dataclasses.replace(row, prompt_ids=[])], device=CPU)
    with pytest.raises(ValueError, match="entries in behavior_logps"):
        pack_rollouts([dataclasses.replace(row, behavior_logps=[*row.behavior_logps, -1.0])], device=CPU)
    with pytest.raises(ValueError, match="entries in sampled_mask"):
        pack_rollouts([dataclasses.replace(row, sampled_mask=[True, *[True] * len(row.token_ids)])], device=CPU)
    with pytest.raises(ValueError, match="no token that the policy sampled"):
        pack_rollouts([dataclasses.replace(row, sampled_mask=[False] * len(row.token_ids))], device=CPU)


@pytest.mark.parametrize("max_tokens", [1, 17, 40, 64, 10**6])
def test_slices_hold_every_rollout_once_and_keep_to_the_limit_unless_they_hold_one(max_tokens: int) -> None:
    batch = whole_batch(some_rows(), objective_of("grpo"))
    lengths = torch.bincount(batch.segment_T)
    runs = [run.tolist() for run in split_into_microbatches(batch.packed, max_tokens)]
    assert [n for run in runs for n in run] == list(range(12))
    assert all(len(run) == 1 or len(run) * int(lengths[run].max()) <= max_tokens for run in runs)
    for run, after in itertools.pairwise(runs):  # none could have taken one more
        assert (len(run) + 1) * int(lengths[[*run, after[0]]].max()) > max_tokens


@pytest.mark.parametrize("multiple", [2, 3, 5])
@pytest.mark.parametrize("max_tokens", [70, 10**6])
def test_slices_for_several_threads_are_a_multiple_and_alike_in_size(multiple: int, max_tokens: int) -> None:
    lengths = [9 + 7 * n % 40 for n in range(60)]
    rows = [
        TrainSample(
            prompt_ids=[n // 4 + 1] * 8, token_ids=[5] * one, behavior_logps=[0.0] * one, group=n // 4, reward=0.0
        )
        for n, one in enumerate(lengths)
    ]
    packed = pack_rollouts(rows, device=CPU)
    runs = [run.tolist() for run in split_into_microbatches(packed, max_tokens, multiple=multiple)]
    assert [n for run in runs for n in run] == list(range(60))
    if max_tokens == 10**6:
        sizes = [int(torch.isin(packed.segment_T[packed.mask_T], torch.tensor(run)).sum()) for run in runs]
        assert len(runs) == multiple
        assert max(sizes) - min(sizes) <= 2 * max(lengths) + 16
    else:
        padded = torch.bincount(packed.segment_T)
        assert all(len(run) == 1 or len(run) * int(padded[run].max()) <= max_tokens for run in runs)


def test_a_pick_has_the_numbers_of_the_whole_and_rollouts_numbered_from_0() -> None:
    batch = whole_batch(some_rows(), objective_of("grpo"))
    part = batch.select_rollouts(torch.tensor([2, 5, 6]))
    assert part.num_rollouts == 12
    assert part.segment_T.unique().tolist() == [0, 1, 2]
    for mine, theirs in enumerate([2, 5, 6]):
        mine_T, theirs_T = part.segment_T == mine, batch.segment_T == theirs
        for name in ("old_logp_T", "ref_logp_T", "advantage_T", "weight_T", "behavior_logp_T", "mask_T"):
            assert torch.equal(getattr(part, name)[mine_T], getattr(batch, name)[theirs_T])
        assert torch.equal(part.packed.token_T[mine_T], batch.packed.token_T[theirs_T])
    assert torch.equal(part.packed.reward_N, batch.packed.reward_N[[2, 5, 6]])
    assert torch.equal(part.packed.group_N, batch.packed.group_N[[2, 5, 6]])
    assert part.penalty_weight_T is None


@pytest.mark.parametrize("preset", ["grpo", "dapo", "dr_grpo", "luspo"])
def test_minibatches_hold_whole_groups_weighted_as_batches_of_their_own_with_advantages_of_the_step(
    preset: str,
) -> None:
    objective, rows = objective_of(preset), some_rows(groups=5)
    batch = whole_batch(rows, objective)
    parts = batch.minibatches(2, objective)
    groups = [set(part.packed.group_N.tolist()) for part in parts]
    assert sorted(len(each) for each in groups) == [2, 3]
    assert set.union(*groups) == set(range(5))
    for part, own in zip(parts, groups, strict=True):
        alone = whole_batch([row for row in rows if row.group in own], objective)
        assert part.num_rollouts == alone.num_rollouts == 3 * len(own)
        torch.testing.assert_close(part.weight_T, alone.weight_T)
        torch.testing.assert_close(part.advantage_T, alone.advantage_T)  # z-scored within groups, so equal
        assert torch.equal(part.packed.token_T, alone.packed.token_T)


def test_one_minibatch_is_the_batch_and_more_than_groups_are_as_many_as_groups() -> None:
    objective = objective_of("grpo")
    batch = whole_batch(some_rows(), objective)
    assert batch.minibatches(1, objective)[0] is batch
    assert [part.num_rollouts for part in batch.minibatches(9, objective)] == [3, 3, 3, 3]


def mixed_versions() -> TrainSample:
    """Two tokens that version 3 sampled, a forced token, and one that version 4 sampled."""
    return TrainSample(
        prompt_ids=[1],
        token_ids=[5, 6, 7, 8],
        behavior_logps=[-1.0, -2.0, 0.0, -3.0],
        sampled_mask=[True, True, False, True],
        versions=[3, 3, 3, 4],
        group=0,
        reward=1.0,
    )


POLICY_LOGPS = torch.tensor([0.0, -1.5, -1.8, 0.0, -2.9])  # one for each token, the prompt's first


def log_ratios(objective: Objective, *, policy_version: int, new_T: Tensor = POLICY_LOGPS) -> tuple[list[float], float]:
    """log(policy / old) at the sampled tokens, and the mean ratio that the loss reports."""
    packed = pack_rollouts([mixed_versions()], device=CPU)
    batch = build_batch(packed, objective, policy_version=policy_version).with_old_logps(POLICY_LOGPS)
    losses = objective.loss(batch, new_T, None)
    gaps_T = (new_T - batch.old_logp_T)[batch.mask_T]
    return gaps_T.tolist(), float(losses.sums["ratio"] / losses.sums["tokens"])


def test_the_ratio_of_a_stale_token_is_that_to_the_policy_that_sampled_it() -> None:
    # Version 4 is updated: the first two tokens are stale, log(policy / behavior) = -1.5 + 1 and -1.8 + 2.
    gaps, mean_ratio = log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=4)
    assert gaps == pytest.approx([-0.5, 0.2, 0.0])
    assert mean_ratio == pytest.approx((math.exp(-0.5) + math.exp(0.2) + 1) / 3)


def test_without_stale_tokens_the_policy_is_its_own_old_policy_bit_for_bit() -> None:
    for version in (0, 3):
        assert log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=version) == ([0.0, 0.0, 0.0], 1.0)


def test_a_token_that_gets_older_in_the_second_update_keeps_its_log_prob_and_the_others_theirs() -> None:
    moved_T = POLICY_LOGPS + torch.tensor([0.0, 0.1, 0.1, 0.0, 0.1])
    gaps, _ = log_ratios(objective_of("grpo", entropy_coef=0.0), policy_version=4, new_T=moved_T)
    assert gaps == pytest.approx([-0.4, 0.3, 0.1])


def test_a_correction_for_the_sampler_carries_the_staleness_in_place_of_the_ratio() -> None:
    correction = {"name": "truncate", "high": None}
    objective = objective_of("reinforce", entropy_coef=0.0, weights="token_sum", correction=correction)
    packed = pack_rollouts([mixed_versions()], device=CPU)
    batch = build_batch(packed, objective, policy_version=4).with_old_logps(POLICY_LOGPS)
    assert (POLICY_LOGPS - batch.old_logp_T)[batch.mask_T].tolist() == [0.0, 0.0, 0.0]
    logp_T = POLICY_LOGPS.clone().requires_grad_()
    objective.loss(batch, logp_T, None).loss.backward()
    assert logp_T.grad is not None  # -(old / behavior) x reward, with the reward 1
    weights = (-logp_T.grad[batch.mask_T]).tolist()
    assert weights == pytest.approx([math.exp(-0.5), math.exp(0.2), math.exp(0.1)])


def test_forced_tokens_and_tokens_without_a_version_are_never_stale() -> None:
    unversioned = dataclasses.replace(mixed_versions(), versions=())
    packed = pack_rollouts([mixed_versions(), unversioned], device=CPU)
    stale_T = build_batch(packed, objective_of("grpo"), policy_version=9).stale_T
    sampled_by = packed.version_T[stale_T].tolist()
    assert sampled_by == [3, 3, 4]
    assert not stale_T[~packed.mask_T].any()


def test_selecting_rollouts_refuses_a_field_whose_name_does_not_end_in_an_axis() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wider(PackedRollouts):
        extra: Tensor

    packed = pack_rollouts(some_rows(), device=CPU)
    values = {field.name: getattr(packed, field.name) for field in dataclasses.fields(packed)}
    with pytest.raises(AssertionError, match="extra names no axis"):
        select_rollouts(Wider(**values, extra=torch.zeros(3)), torch.tensor([0]))
