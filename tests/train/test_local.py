from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
import torch
from fake_weight_store import FakeWeightStore
from preset_lists import WITHOUT_TEACHER as PRESETS
from tiny_models import tiny_policy

from ansatz.config.schema import CriticSection, TrainSection
from ansatz.errors import AlignmentError, NonFiniteError
from ansatz.objectives.build import build_objective
from ansatz.train import skipped
from ansatz.train.batch import TrainBatch
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample
from ansatz.train.skipped import write_skipped
from ansatz.train.step import UpdateReport


def rows() -> list[TrainSample]:
    """Three prompts of four rollouts: mixed, one success, all alike."""
    rewards = ((1.0, 0.0, 1.0, 0.5), (1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0))
    return [
        TrainSample(
            prompt_ids=(5, 6 + group, 7),
            token_ids=tuple((3 * group + 5 * sample + 2 * place) % 50 + 2 for place in range(2 + (group + sample) % 5)),
            behavior_logps=[-4.0] * (2 + (group + sample) % 5),
            group=group,
            reward=reward,
            truncated=sample == 3,
            components=(reward, float(sample)),
        )
        for group, values in enumerate(rewards)
        for sample, reward in enumerate(values)
    ]


def trainer_of(algorithm: dict[str, Any], **settings: Any) -> LocalTrainer:
    return LocalTrainer(
        tiny_policy("qwen3, grouped heads, tied"),
        build_objective(algorithm, max_response_tokens=8),
        settings=TrainSection(**settings),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-3),
    )


def weights(trainer: LocalTrainer) -> torch.Tensor:
    return torch.cat([value.flatten() for value in trainer.optimizer.weights().values()]).clone()


def batch_of(trainer: LocalTrainer):
    return trainer.batch(rows(), baseline_of_group={0: 0.5, 1: 0.0, 2: 1.0})


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_moves_the_weights_and_reports_finite_numbers(preset: str):
    pairs = {"advantage": {"k": 2}} if preset == "pass_at_k" else {}  # of groups of 4, where k = 4 says nothing
    trainer = trainer_of({"preset": preset, "kl_coef": 0.01, **pairs}, updates_per_step=2, epochs_per_step=2)
    before = weights(trainer)
    report = trainer.update(batch_of(trainer), step=1)
    assert report.num_updates == trainer.version == 4
    assert all(math.isfinite(value) for value in report.metrics.values())
    assert not torch.equal(before, weights(trainer))


def test_a_report_says_of_each_rollout_what_its_update_saw():
    trainer = trainer_of({"preset": "grpo"}, tokens_per_microbatch=24)
    known = trainer.token_logps(rows())
    samples = [  # a sampler that is off by 0.5 nats at the first token of each response, and by 0.1 at the others
        dataclasses.replace(
            row, behavior_logps=[logp + (0.5 if place == 0 else -0.1) for place, logp in enumerate(each.logps)]
        )
        for row, each in zip(rows(), known, strict=True)
    ]
    report = trainer.update(trainer.batch(samples), step=1)
    first, other = math.exp(-0.5) - 1 + 0.5, math.exp(0.1) - 1 - 0.1
    assert sorted(report.rollouts) == list(range(12))
    for place, (sample, each) in enumerate(zip(samples, known, strict=True)):
        length, seen = len(sample.token_ids), report.rollouts[place]
        assert seen["mismatch_max"] == pytest.approx(first, rel=1e-3)
        assert seen["mismatch_mean"] == pytest.approx((first + (length - 1) * other) / length, rel=1e-3)
        assert seen["mean_entropy"] == pytest.approx(math.fsum(each.entropies) / length, rel=1e-4)
        assert seen["clip_share"] == 0


def test_clipped_tokens_are_counted_for_each_rollout_and_add_up_to_the_metric():
    trainer = trainer_of({"preset": "grpo"}, epochs_per_step=3)
    trainer.schedule = Schedule(lr=0.05)
    report = trainer.update(trainer.batch(rows()), step=1)
    clipped = sum(report.rollouts[place]["clip_share"] * len(row.token_ids) for place, row in enumerate(rows()))
    tokens = sum(len(row.token_ids) for row in rows())
    assert 0 < clipped / tokens <= 3 * report.metrics["train/clip_frac"]
    assert {row["clip_share"] for row in report.rollouts.values()} != {0.0}


def test_a_reference_says_what_it_thinks_of_tokens():
    trainer = trainer_of({"preset": "grpo", "kl_coef": 0.1})
    start = trainer.token_logps(rows())
    trainer.update(trainer.batch(rows()), step=1)
    assert trainer.token_logps(rows(), of_reference=True) == start
    assert trainer.token_logps(rows()) != start


def test_each_epoch_of_a_step_deals_the_prompts_into_other_minibatches(monkeypatch: pytest.MonkeyPatch):
    samples = [dataclasses.replace(row, group=3 * (index % 2) + row.group) for index, row in enumerate(rows())]

    def groups_by_update(trainer: LocalTrainer, *, seed: int, step: int) -> list[frozenset[int]]:
        seen: list[frozenset[int]] = []
        update_once = trainer._update_once

        def recorded(minibatch: TrainBatch, **settings: Any) -> UpdateReport:
            seen.append(frozenset(minibatch.packed.group_N.tolist()))
            return update_once(minibatch, **settings)

        monkeypatch.setattr(trainer, "_update_once", recorded)
        trainer.update(trainer.batch(samples), step=step, seed=seed)
        return seen

    def epochs(*, seed: int = 5, step: int = 7) -> list[list[frozenset[int]]]:
        trainer = trainer_of({"preset": "grpo"}, updates_per_step=3, epochs_per_step=4)
        seen = groups_by_update(trainer, seed=seed, step=step)
        return [seen[first : first + 3] for first in range(0, 12, 3)]

    once = epochs()
    assert once[0] == [{0, 3}, {1, 4}, {2, 5}]  # the first epoch has the order of the prompts
    assert all(sorted(group for part in epoch for group in part) == list(range(6)) for epoch in once)
    assert len({frozenset(epoch) for epoch in once}) > 1
    assert once == epochs()
    assert once != epochs(seed=6)
    assert once != epochs(step=8)


def test_a_reference_is_kept_only_where_the_kl_asks_for_one():
    assert trainer_of({"preset": "grpo"}).reference is None
    assert trainer_of({"preset": "grpo", "kl_coef": 0.1}).reference is not None


def test_the_reference_stays_the_start_and_becomes_the_policy_every_so_many_steps():
    trainer = trainer_of({"preset": "grpo", "kl_coef": 0.1}, reference_update_interval=2)
    assert trainer.reference is not None
    start = weights(trainer)
    for step, expected in ((1, lambda: start), (2, lambda: weights(trainer))):
        trainer.update(batch_of(trainer), step=step)
        reference = torch.cat([parameter.flatten() for parameter in trainer.reference.model.parameters()])
        assert torch.equal(reference, expected())


@pytest.mark.parametrize("kl", ["full", "full_reverse"])
def test_an_exact_kl_pulls_the_policy_back_to_the_reference(kl):
    # no reward signal (all alike), so the KL alone acts on a policy that was moved away
    trainer = trainer_of({"preset": "grpo", "kl": kl, "kl_coef": 1.0})
    assert trainer.reference is not None
    with torch.no_grad():
        for parameter in trainer.policy.model.parameters():
            parameter.add_(0.05 * torch.sin(torch.arange(parameter.numel()).view(parameter.shape).float()))
    alike = [row for row in rows() if row.group == 2]
    kls = [trainer.update(trainer.batch(alike), step=step).metrics["train/kl_ref"] for step in range(1, 9)]
    assert kls[0] > 0.01
    assert kls[-1] < 0.8 * kls[0]


def test_a_ratio_past_its_bound_drops_the_minibatch_and_the_updates_after_it():
    trainer = trainer_of({"preset": "grpo", "max_ratio": 0.5}, epochs_per_step=3)
    before = weights(trainer)
    report = trainer.update(batch_of(trainer), step=1)
    assert (report.num_updates, report.metrics["train/early_stops"]) == (0, 1.0)
    assert "train/grad_norm" not in report.metrics
    assert torch.equal(before, weights(trainer))
    assert trainer.version == 0


def test_an_adaptive_entropy_bonus_rises_below_its_target_and_is_part_of_the_state():
    trainer = trainer_of({"preset": "grpo", "entropy_coef": 0.005, "entropy_target": 100.0})
    trainer.update(batch_of(trainer), step=1)
    assert trainer.entropy_coef > 0.005
    assert trainer.state()["entropy_coef"] == trainer.entropy_coef


def test_a_critic_starts_at_zero_and_learns_the_returns():
    trainer = trainer_of({"preset": "ppo"}, critic=CriticSection(lr=1e-2))
    batch = batch_of(trainer)
    assert batch.old_value_T is not None
    assert not batch.old_value_T.any()
    losses = [trainer.update(batch_of(trainer), step=step).metrics["train/value_loss"] for step in range(1, 13)]
    assert losses[-1] < 0.5 * losses[0]


def test_truncated_rollouts_leave_the_loss_where_the_mask_says_so():
    batch = batch_of(trainer_of({"preset": "grpo", "masks": "not_truncated"}))
    cut_T = batch.packed.truncated_N[batch.segment_T]
    assert cut_T.any()
    assert not batch.weight_T[cut_T].any()
    assert batch.weight_T.sum() > 0


def carried_samples(trainer: LocalTrainer, *, gap: float) -> list[TrainSample]:
    """Samples whose first half an earlier version sampled, with log-probs that are off by 1 nat; those of the rest are
    off by `gap`."""
    packed = trainer.batch(rows()).packed
    logp_T = trainer._logps(trainer.policy, packed)
    samples: list[TrainSample] = []
    for index in range(packed.num_rollouts):
        response_T = (packed.segment_T == index) & packed.sampled_mask_T
        logps, half = logp_T[response_T].tolist(), int(response_T.sum()) // 2
        samples.append(
            TrainSample(
                prompt_ids=packed.token_T[(packed.segment_T == index) & ~packed.sampled_mask_T].tolist(),
                token_ids=packed.token_T[response_T].tolist(),
                behavior_logps=[logp - (1.0 if place < half else gap) for place, logp in enumerate(logps)],
                versions=[trainer.version - (place < half) for place in range(len(logps))],
                group=int(packed.group_N[index]),
                reward=float(packed.reward_N[index]),
            )
        )
    return samples


def test_one_update_on_stale_tokens_has_the_ratio_to_the_policy_that_sampled_them():
    trainer = trainer_of({"preset": "grpo"})
    trainer.update(batch_of(trainer), step=1)
    report = trainer.update(trainer.batch(carried_samples(trainer, gap=0.0)), step=2)
    # policy / behavior = e at stale tokens and 1 at the others; every response has floor(n / 2) stale ones of n.
    lengths = [len(row.token_ids) for row in rows()]
    stale = sum(length // 2 for length in lengths)
    assert report.metrics["train/ratio_max"] == pytest.approx(math.e, rel=1e-4)
    assert report.metrics["train/ratio_mean"] == pytest.approx(
        (stale * math.e + sum(lengths) - stale) / sum(lengths), rel=1e-4
    )


def test_stale_tokens_raise_no_alarm_about_the_sampler():
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1.05)
    trainer.update(batch_of(trainer), step=1)
    report = trainer.update(trainer.batch(carried_samples(trainer, gap=0.02)), step=2, check_alignment=True)
    assert report.metrics["align/mean_exp_gap"] == pytest.approx(math.exp(0.02), rel=1e-4)
    assert report.metrics["align/max_gap"] == pytest.approx(0.02, abs=1e-4)


def test_a_sampler_that_is_off_at_fresh_tokens_is_refused():
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1.05)
    trainer.update(batch_of(trainer), step=1)
    batch = trainer.batch(carried_samples(trainer, gap=0.1))
    with pytest.raises(AlignmentError, match=r"is 1\.1052, but train\.max_logprob_gap = 1\.05"):
        trainer.update(batch, step=2, check_alignment=True)


def samples_with_gap(trainer: LocalTrainer, gap_of_group: dict[int, float]) -> list[TrainSample]:
    """The rows as the current policy would have sampled them, except that groups are off by these nats per token."""
    packed = trainer.batch(rows()).packed
    logp_T = trainer._logps(trainer.policy, packed)
    responses = [(packed.segment_T == index) & packed.sampled_mask_T for index in range(packed.num_rollouts)]
    logps = {tuple(packed.token_T[response_T].tolist()): logp_T[response_T].tolist() for response_T in responses}
    return [
        dataclasses.replace(
            row, behavior_logps=[logp - gap_of_group.get(row.group, 0.0) for logp in logps[tuple(row.token_ids)]]
        )
        for row in rows()
    ]


def test_one_token_with_a_large_gap_is_noticed_although_the_mean_gap_is_small():
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1.05)
    samples = samples_with_gap(trainer, {})
    logps = samples[0].behavior_logps
    samples[0] = dataclasses.replace(samples[0], behavior_logps=[logps[0] - 1.5, *logps[1:]])
    tokens = sum(len(sample.token_ids) for sample in samples)
    measure = (tokens - 1 + math.exp(1.5)) / tokens
    assert math.exp(1.5 / tokens) < 1.05 < measure
    with pytest.raises(AlignmentError, match=rf"over {tokens} tokens is {measure:.4f}, .* largest difference is 1\.5 "):
        trainer.update(trainer.batch(samples), step=9, check_alignment=True)


@pytest.mark.parametrize("off", [0, 1, 2])
def test_a_microbatch_that_is_compared_with_older_weights_comes_from_all_over_the_batch(off):
    """Any of three groups may be the one that is off. A microbatch has room for three rollouts of 9 tokens, of 12."""
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1e9, tokens_per_microbatch=27)
    samples = [
        dataclasses.replace(row, versions=[0] * len(row.token_ids)) for row in samples_with_gap(trainer, {off: 0.3})
    ]
    batch, before, store = trainer.batch(samples), weights(trainer), FakeWeightStore()
    store.publish(1, trainer.weights())
    assert int(torch.bincount(batch.packed.segment_T).max()) == 9
    for step in range(1, 5):
        assert trainer.check_against(partial(store.load, 1), batch, step=step)["align/max_gap"] == pytest.approx(
            0.3, abs=1e-4
        )
    assert torch.equal(weights(trainer), before)


def test_several_updates_are_checked_before_the_first_of_them():
    """Only the prompts of the second minibatch are off, which the first update would not see."""
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1.05, updates_per_step=3)
    batch, before = trainer.batch(samples_with_gap(trainer, {1: 0.5})), weights(trainer)
    with pytest.raises(AlignmentError, match="step 4: sampler and trainer disagree"):
        trainer.update(batch, step=4, check_alignment=True)
    assert torch.equal(weights(trainer), before)
    assert trainer.version == 0


def test_minibatches_above_the_limit_are_no_alarm_while_the_step_is_below_it():
    trainer = trainer_of({"preset": "grpo"}, max_logprob_gap=1.2, updates_per_step=3)
    report = trainer.update(trainer.batch(samples_with_gap(trainer, {1: 0.3})), step=4, check_alignment=True)
    assert report.num_updates == 3
    assert 1.05 < report.metrics["align/mean_exp_gap"] < 1.2 < math.exp(0.3)


def test_skipped_updates_change_nothing_and_the_third_in_a_row_stops():
    trainer = trainer_of({"preset": "grpo"})
    trainer.update(batch_of(trainer), step=1)
    before, moments = weights(trainer), {name: value.clone() for name, value in trainer.optimizer.state().items()}
    hook = trainer.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    updates = []
    trainer.on_skip = updates.append
    for step in (2, 3):
        report = trainer.update(batch_of(trainer), step=step)
        assert report.metrics["train/skipped_steps"] == 1
        assert (report.num_updates, trainer.version) == (0, 1)
    assert torch.equal(weights(trainer), before)
    assert all(torch.equal(value, moments[name]) for name, value in trainer.optimizer.state().items())
    hook.remove()
    trainer.update(batch_of(trainer), step=4)  # a finite update in between: the count starts again
    assert trainer.version == 2
    trainer.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    trainer.update(batch_of(trainer), step=5)
    trainer.update(batch_of(trainer), step=6)
    with pytest.raises(NonFiniteError, match=r"^step 7: .* number 3 in a row"):
        trainer.update(batch_of(trainer), step=7)
    assert [each.step for each in updates] == [2, 3, 5, 6, 7]


def skipped_update():
    trainer, updates = trainer_of({"preset": "grpo"}), []
    trainer.policy.head.weight.register_hook(lambda gradient: gradient * math.inf)
    trainer.on_skip = updates.append
    trainer.update(batch_of(trainer), step=3)
    return updates[0]


def test_a_step_that_is_made_again_replaces_its_update(tmp_path):
    update, folder = skipped_update(), tmp_path / "skipped" / "step-000003-0"
    folder.mkdir(parents=True)
    (folder / "half").touch()
    write_skipped(folder, update)
    assert {"bundle.json", "arrays.safetensors", "model.safetensors"} < {path.name for path in folder.iterdir()}
    assert not (folder / "half").exists()
    assert list(folder.parent.iterdir()) == [folder]


def test_a_full_disk_leaves_no_half_update(tmp_path, monkeypatch):
    update, folder = skipped_update(), tmp_path / "skipped" / "step-000003-0"
    write_skipped(folder, update)

    def full(*_):
        raise OSError("unexpected pos")

    monkeypatch.setattr(skipped, "write_bundle", full)
    before = sorted(folder.iterdir())
    with pytest.raises(OSError, match="unexpected pos"):
        write_skipped(folder, update)
    assert list(folder.parent.iterdir()) == [folder]
    assert sorted(folder.iterdir()) == before
