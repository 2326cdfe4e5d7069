"""Every number that a run emits, in one table: name, formula, unit, healthy range, and what it means when it moves.

A name is an exact one, or a family that ends in a placeholder ("reward/<name>"), which covers each name with that
prefix. `docs/metrics.md` is written from this table by `python -m ansatz.track.metrics docs/metrics.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ansatz.registry import suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row. unit: "1" for plain numbers and shares. healthy: in words. moves: how to read a change."""

    name: str
    title: str
    formula: str
    unit: str
    healthy: str
    moves: str

    @property
    def family(self) -> bool:
        return self.name.endswith(">")

    def covers(self, name: str) -> bool:
        """True for the metric's own name, and for a family for each longer name with its prefix."""
        prefix = self.name[: self.name.rindex("<")] if self.family else self.name
        return name.startswith(prefix) and len(name) > len(prefix) if self.family else name == prefix


def _row(name: str, title: str, formula: str, unit: str, healthy: str, moves: str) -> Metric:
    return Metric(name=name, title=title, formula=formula, unit=unit, healthy=healthy, moves=moves)


METRICS: tuple[Metric, ...] = (
    # What the policy did: over the N rollouts and G groups of a step, before any is dropped.
    _row(
        "rollout/rewards",
        "reward",
        "mean over rollouts of the weighted reward",
        "1",
        "rises and flattens; the scale is the recipe's",
        "The number that training maximises. If it rises while eval/pass@1 does not, the policy games the reward or "
        "learns the training problems by heart.",
    ),
    _row(
        "rollout/reward_std",
        "reward spread in a group",
        "mean over groups of the population standard deviation of the group's rewards",
        "1",
        "0.1 to 0.5 for rewards in 0..1",
        "The raw size of the learning signal. Near 0, groups are all right or all wrong: choose problems of another "
        "difficulty, or more samples a prompt.",
    ),
    _row(
        "rollout/accuracy",
        "training accuracy",
        "share of rollouts whose verdict is correct",
        "share",
        "0.2 to 0.8 while there is something to learn",
        "Differs from rollout/rewards by shaping and partial rewards alone; a growing gap shows which part pays.",
    ),
    _row(
        "rollout/response_length",
        "response length",
        "mean number of response tokens, end token included",
        "tokens",
        "moves slowly, well under max_response_tokens",
        "A steady rise can be learning to reason; a rise with truncation or repetition is padding. A collapse to a few "
        "tokens means that guessing pays.",
    ),
    _row(
        "rollout/response_length_max",
        "longest response",
        "largest number of response tokens in the step",
        "tokens",
        "under max_response_tokens most of the time",
        "Pinned at the limit: some responses never end. Read it with rollout/truncated_frac.",
    ),
    _row(
        "rollout/truncated_frac",
        "cut off",
        "share of rollouts that did not come to their own end",
        "share",
        "under 0.05",
        "A rise means that the limit bites or that the policy forgets to stop; such rollouts count as wrong and pull "
        "length down for a reason that is not quality.",
    ),
    _row(
        "rollout/no_answer_frac",
        "no answer",
        "share of rollouts whose verdict is no_answer",
        "share",
        "near 0 after the first steps",
        "High from the start: template or answer format does not fit the model. Rising: the policy drifts off.",
    ),
    _row(
        "rollout/groups_with_signal_frac",
        "groups with signal",
        "share of groups whose rewards are not all equal",
        "share",
        "over 0.3",
        "Groups without spread give no gradient under a group advantage. A fall towards 0 means that the compute of "
        "the step is spent for little: problems are too easy or too hard.",
    ),
    _row(
        "rollout/partial",
        "carried over",
        "unfinished rollouts that the next step goes on with, under rollout.partial_rollout_tokens",
        "rollouts",
        "steady",
        "Growing: more is begun than ends. Raise rollout.partial_rollout_tokens, or lower prompts_per_step.",
    ),
    _row(
        "rollout/version_lag",
        "version lag",
        "optimiser steps between the policy that drew a token and the one that ended its rollout, mean over tokens",
        "optimiser steps",
        "under 1",
        "Old tokens: their ratio is off policy, and clipping discards more of them (train/clip_frac).",
    ),
    _row(
        "rollout/repetition",
        "self-repetition",
        "mean over rollouts of 1 - distinct / all 8-grams of response tokens (0 for responses under 8 tokens)",
        "share",
        "under 0.05",
        "A rise is the earliest sign of collapse: loops fill the response, truncation follows, then reward falls.",
    ),
    _row(
        "rollout/verdict/<reason>",
        "verdict",
        "share of rollouts with this reason; the shares of a step add up to 1",
        "share",
        "timeout and crashed at 0",
        "Tells why a response is wrong. timeout and crashed are faults of the grader, not of the policy: look at the "
        "samples before believing the reward.",
    ),
    _row(
        "reward/<name>",
        "reward part",
        "mean over the rollouts that have this reward of its own unweighted value",
        "1",
        "the reward's own range",
        "Shows which part of a mixed reward the policy follows. One part rising while another falls is a trade that "
        "the weights allow.",
    ),
    # What a round of rejection sampling chose from, at step 0 of the SFT that learns it.
    _row(
        "rejection/pass_rate",
        "right responses",
        "share of the sampled responses whose verdict is correct",
        "share",
        "0.1 to 0.9",
        "Rises from round to round while the policy learns. Near 1, a round teaches what is known already.",
    ),
    _row(
        "rejection/solved_frac",
        "solved problems",
        "share of the problems with at least one right response",
        "share",
        "over 0.5",
        "What is never solved is never taught. Where it stands still: more samples, a teacher, or easier problems.",
    ),
    _row(
        "rejection/kept_frac",
        "chosen responses",
        "share of the sampled responses that are taught",
        "share",
        "at most per_prompt / samples",
        "Far under rejection/pass_rate: the choice drops right responses, as repeated, over per_prompt or by a filter; "
        "selected.report.json says which.",
    ),
    _row(
        "rejection/taught_responses",
        "taught responses",
        "number of responses that are taught",
        "count",
        "many times sft.batch_size",
        "Few responses are learned by heart: lower rejection.sft.steps or take more samples.",
    ),
    _row(
        "rejection/taught_problems_frac",
        "taught problems",
        "share of the problems with at least one response that is taught",
        "share",
        "near rejection/solved_frac",
        "Falls behind rejection/solved_frac where filters drop all right responses of a problem.",
    ),
    # What the update did.
    _row(
        "train/loss",
        "loss",
        "sum over tokens of loss x weight, mean over the step's updates",
        "nats",
        "SFT: falls. RL: near 0, of either sign",
        "In RL its level says little, since advantages are centred; a jump of its size says that something broke.",
    ),
    _row(
        "train/entropy",
        "entropy",
        "mean over response tokens of the policy's entropy at that position",
        "nats",
        "falls slowly, stays over 0.05",
        "A fall to 0 ends exploration and with it learning; a sharp rise means that the policy comes apart. Raise the "
        "upper clip or the entropy coefficient, or lower the learning rate.",
    ),
    _row(
        "train/grad_norm",
        "gradient norm",
        "global L2 norm of the gradient before clipping, mean over the step's updates",
        "1",
        "same order of magnitude throughout",
        "Spikes come before collapse. Always at the clipping limit: the learning rate is in truth a fixed step length.",
    ),
    _row(
        "train/lr",
        "learning rate",
        "learning rate of the step's last update",
        "1",
        "the recipe's schedule",
        "Explains bends in other curves at the end of warm-up and in decay.",
    ),
    _row(
        "train/clip_frac",
        "clipped share",
        "share of response tokens where the clipped branch of the surrogate is the one taken",
        "share",
        "0 with one update a step; under 0.2 with several",
        "A rise means that updates move the policy further than the clip range allows: fewer updates a step or a lower "
        "learning rate.",
    ),
    _row(
        "train/ratio_mean",
        "mean ratio",
        "mean over response tokens of exp(policy_logp - old_logp)",
        "1",
        "0.99 to 1.01",
        "Expectation 1 under the old policy; a drift away from 1 means a stale or mismatched old_logp.",
    ),
    _row(
        "train/ratio_max",
        "largest ratio",
        "largest exp(policy_logp - old_logp) of a response token in the step",
        "1",
        "under 5",
        "One extreme token can carry an update. Growth from step to step comes before a spike of train/grad_norm.",
    ),
    _row(
        "train/kl_ref",
        "KL to the reference",
        "mean over response tokens of the KL estimate between policy and reference model",
        "nats",
        "grows slowly; 0 to 0.5",
        "How far the policy has gone from where it started. A sharp rise without reward is drift: raise kl_coef.",
    ),
    _row(
        "train/approx_kl",
        "KL of the update",
        "mean over response tokens of log(old / policy) (k1 of KL(old, policy))",
        "nats",
        "0 at the first update; under 0.02",
        "The size of the step in distribution. A rise with the same learning rate means a steeper landscape.",
    ),
    _row(
        "train/tokens",
        "trained tokens",
        "number of response tokens with a non-zero weight in the step",
        "tokens",
        "steady",
        "A fall means dropped groups or short responses; the gradient gets noisier.",
    ),
    _row(
        "train/sft_accuracy",
        "token accuracy",
        "share of demonstration tokens that are the model's most likely next token",
        "share",
        "rises and flattens",
        "Near 1 on training data with a flat eval/pass@1: learned by heart.",
    ),
    _row(
        "train/early_stops",
        "discarded minibatches",
        "number of minibatches of the step that were dropped because their importance ratio was too large",
        "count",
        "0, now and then 1",
        "Frequent: updates a step or learning rate are too high; the compute of those minibatches is lost.",
    ),
    _row(
        "train/value_loss",
        "value loss",
        "mean over response tokens of the squared error of the critic (PPO)",
        "reward squared",
        "falls, then follows the reward's variance",
        "A rise means that the critic does not keep up with the policy; advantages get noisy.",
    ),
    _row(
        "train/explained_variance",
        "explained variance",
        "1 - var(return - value) / var(return) over response tokens (PPO)",
        "1",
        "over 0.3 after the critic's warm-up; at most 1",
        "At or under 0 the critic is worse than a constant and PPO is REINFORCE with noise.",
    ),
    _row(
        "train/groups_dropped",
        "dropped groups",
        "number of groups that the recipe's filters left out of the update",
        "count",
        "under half of prompts_per_step",
        "With dynamic sampling it is the price of an update; a rise asks for other problems.",
    ),
    # Sampler against trainer.
    _row(
        "align/mean_gap",
        "sampler / trainer gap",
        "exp(mean over response tokens of |behavior_logp - old_logp|)",
        "1",
        "1.00 to 1.05",
        "Over 1.05 the sampler draws from another distribution than the trainer differentiates: precision, "
        "temperature, template or stale weights. The first step refuses to go on.",
    ),
    _row(
        "align/max_gap",
        "largest gap",
        "largest |behavior_logp - old_logp| of a response token in the step",
        "nats",
        "under 1",
        "A single large gap with a small mean is a token with a tiny probability; many of them are a fault.",
    ),
    # Where the time goes.
    _row("time/rollout_s", "sampling", "wall time of sampling", "s", "the largest part", "Grows with response length."),
    _row(
        "time/grade_s",
        "grading",
        "wall time of grading",
        "s",
        "under 10 % of the step",
        "A jump: answers that are hard to parse, see rollout/verdict/timeout, or too few workers.",
    ),
    _row("time/update_s", "updating", "wall time of the updates", "s", "steady", "Grows with train/tokens."),
    _row(
        "time/step_s",
        "whole step",
        "wall time of the step",
        "s",
        "steady; little more than the sum of its parts",
        "A rest that grows is evaluation, saving or waiting.",
    ),
    _row(
        "perf/rollout_tokens_per_s",
        "sampling rate",
        "response tokens / time/rollout_s",
        "tokens/s",
        "steady for the machine",
        "A fall with equal lengths: another job on the machine, or batches that got thin at their end.",
    ),
    _row(
        "perf/train_tokens_per_s",
        "training rate",
        "trained tokens (prompt and response) / time/update_s",
        "tokens/s",
        "steady for the machine",
        "A fall: slices that are too small, or swapping.",
    ),
    _row(
        "perf/peak_memory_gb",
        "peak memory",
        "since the stage began: GPU bytes that tensors held at most, or the rise of the process's peak resident memory "
        "on a CPU, over 10^9",
        "GB",
        "flat after some steps, under what `ansatz explain` counts for a GPU",
        "A steady rise: longer responses, or a leak. Near the device's memory: lower train.tokens_per_microbatch or "
        "rollout.engine.max_concurrent.",
    ),
    # How far through the data.
    _row(
        "data/epoch",
        "epoch",
        "problems taken / problems in the training set",
        "1",
        "rises",
        "Over a few epochs expect learning by heart; compare with eval/pass@1.",
    ),
    _row(
        "data/problems_seen",
        "problems seen",
        "problems taken since the stage began, repeats counted",
        "problems",
        "rises by prompts_per_step",
        "A slower rise than the recipe's means dropped prompts.",
    ),
    # Of the pool under data.curriculum, after the step; absent without one.
    _row(
        "data/tried_frac",
        "tried",
        "problems taken at least once / problems in the training set",
        "share",
        "rises",
        "Flat before it reaches 1: the curriculum goes round among what it knows; try thompson or a lower discount.",
    ),
    _row(
        "data/pass_rate",
        "expected pass rate",
        "mean over tried problems of the posterior mean (prior + right) / (2 prior + responses), discounted",
        "share",
        "rises slowly",
        "The policy's level on what it trains on, without the curriculum's choice in it: rollout/accuracy stays near "
        "1/2 when the curriculum does its work.",
    ),
    _row(
        "data/paused_frac",
        "paused",
        "problems paused after pause_after_failed visits without a correct response / problems in the training set",
        "share",
        "under 0.5, falls",
        "A rise to most of the pool: the problems are too hard for this policy.",
    ),
    _row(
        "data/dropped_frac",
        "dropped",
        "problems dropped after drop_after_solved visits with only correct responses / problems in the training set",
        "share",
        "rises, under 0.8",
        "Near 1 the pool is used up: what is left is hard or wrong, and dropped problems return to fill the step.",
    ),
    _row(
        "data/dynamic_sampling_rounds",
        "refill rounds",
        "rounds of further sampling in the step to replace groups without a signal",
        "count",
        "under data.curriculum.dynamic_sampling",
        "At the limit: the step is not full of groups with a signal. Read it with data/groups_discarded.",
    ),
    _row(
        "data/groups_discarded",
        "thrown away",
        "groups sampled in the step and left out of its update, since their rewards are all equal",
        "groups",
        "under prompts_per_step",
        "The price of a full update in sampling. A rise asks for other problems, or a sampler that avoids such groups.",
    ),
    # Judged on held-out problems; these stand in evaluations.jsonl and TensorBoard.
    _row(
        "eval/<name>",
        "held-out",
        "a number of an evaluation: pass@1 (mean over samples), greedy, pass@k, maj@k, mean_length, truncated_frac; "
        "a level is a suffix, as in eval/heldout/pass@1/3",
        "1",
        "pass@1 rises; truncated_frac under 0.05",
        "The only numbers that count. pass@1 rising to meet a flat pass@k is sharpening; pass@k rising as well is new "
        "ability; pass@k falling is lost diversity.",
    ),
)


def find_metric(name: str) -> Metric | None:
    """The row of a metric's name, by exact name or family; None when there is none."""
    return next((metric for metric in METRICS if metric.covers(name)), None)


def check_known(names: Iterable[str]) -> None:
    """ValueError that lists the names without a row: a new metric comes with its row in this table."""
    unknown = sorted({name for name in names if find_metric(name) is None})
    if unknown:
        hint = suggest(unknown[0], [metric.name for metric in METRICS if not metric.family])
        raise ValueError(
            f"undocumented metrics: {', '.join(unknown)}. Add a row to METRICS in ansatz/track/metrics.py and "
            f"write docs/metrics.md again, or fix the name.{hint if 'Did you mean' in hint else ''}"
        )


_INTRO = """# Metrics

Every number that a run emits. Written from the table in `ansatz/track/metrics.py` by
`python -m ansatz.track.metrics docs/metrics.md`; a test holds the two together.

They stand in `metrics.jsonl` (one line a step, with `step` and `seconds` since the stage began), in TensorBoard under
the same names, and in `report.html`. Held-out evaluations stand in `evaluations.jsonl`.

"Response tokens" are those that the policy chose; the prompt's are never counted unless a row says so.
"""


def metrics_markdown() -> str:
    """The text of docs/metrics.md: one section a prefix, one entry a metric."""
    lines = [_INTRO.rstrip()]
    section = ""
    for metric in METRICS:
        prefix = metric.name.split("/")[0]
        if prefix != section:
            section = prefix
            lines += ["", f"## {prefix}"]
        lines += [
            "",
            f"### `{metric.name}`",
            f"- **Formula:** {metric.formula}",
            f"- **Unit:** {metric.unit}",
            f"- **Healthy:** {metric.healthy}",
            f"- **When it moves:** {metric.moves}",
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(metrics_markdown(), encoding="utf-8")
