"""The table of metrics: formula, unit, healthy range, how to read a change, and how the parts of a step are merged.

A metric has an exact name, or it is a family whose name ends in a placeholder ("reward/<name>") and covers every longer
name with that prefix. `python -m ansatz.track.metrics docs/metrics.md` writes the page of metrics from this table.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from ansatz import files
from ansatz.registry import suggest

WINDOW = 5
"""Steps over which the watchdog averages a metric, unless a recipe gives another number."""


class Reduction(StrEnum):
    """How the measurements of several parts (microbatches, minibatches, epochs, ranks) become one number."""

    MEAN = "mean"  # of all things that were measured, whichever part they are in
    SUM = "sum"
    MAX = "max"
    LAST = "last"


class Minimum(NamedTuple):
    """The least value of a metric that makes what another metric shows healthy."""

    metric: str
    value: float

    def __str__(self) -> str:
        return f"{self.metric} is at least {self.value:g}"


SOLVED = Minimum("rollout/accuracy", 0.8)
"""The policy solves most problems: it is sure of its answers with good reason, and few groups have a wrong one."""
SIGNAL = Minimum("rollout/groups_with_signal_frac", 0.3)
"""The samples of many prompts differ in their reward: whatever its entropy, the policy explores."""


def unless(minima: Sequence[Minimum]) -> str:
    """Return the end of a sentence about a limit; empty if nothing excuses what is beyond it."""
    return f", unless {' or '.join(str(minimum) for minimum in minima)}" if minima else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table.

    unit: "1" for plain numbers, "fraction" for numbers in 0..1. meaning: how to read a change.
    weight: what a mean is taken over; "" for other reductions.
    low, high: the watchdog and the report warn outside of this range. worst_step: every step must keep to it; without
    this, every mean of WINDOW steps must. unless: other metrics that excuse a value outside of it. advice: what the
    warning adds.
    at_start: the value before the first update of a stage, if it is the same for every policy.
    """

    name: str
    title: str
    formula: str
    unit: str
    healthy: str
    meaning: str
    reduction: Reduction = Reduction.MEAN
    weight: str = ""
    low: float | None = None
    high: float | None = None
    worst_step: bool = False
    unless: tuple[Minimum, ...] = ()
    advice: str = ""
    at_start: float | None = None

    @property
    def is_family(self) -> bool:
        return self.name.endswith(">")

    def covers(self, name: str) -> bool:
        """Whether this is the row of the name: its own name, or for a family any longer name with its prefix."""
        if not self.is_family:
            return name == self.name
        prefix = self.name[: self.name.rindex("<")]
        return name.startswith(prefix) and len(name) > len(prefix)


METRICS: tuple[Metric, ...] = (
    # What the policy did, over all rollouts and groups of the step, before any group is left out of the update.
    Metric(
        name="rollout/rewards",
        title="reward",
        formula="mean over rollouts of the weighted reward",
        unit="1",
        healthy="rises, then levels off; the scale depends on the recipe",
        meaning="This is the number that training maximises. If it rises while eval/pass@1 does not, the policy "
        "exploits the reward or memorises the training problems.",
        weight="rollouts",
    ),
    Metric(
        name="rollout/reward_std",
        title="reward spread within a group",
        formula="mean over groups of the population standard deviation of the rewards in the group",
        unit="1",
        healthy="0.1 to 0.5 for rewards in 0..1",
        meaning="The raw strength of the learning signal. Near 0, all rollouts of a group are correct or all are "
        "wrong: use problems of another difficulty, or more samples per prompt.",
        weight="groups",
    ),
    Metric(
        name="rollout/accuracy",
        title="training accuracy",
        formula="fraction of rollouts whose verdict is correct",
        unit="fraction",
        healthy="0.2 to 0.8 while there is something to learn",
        meaning="Differs from rollout/rewards only by length rewards, format rewards and other partial credit. A "
        "growing difference shows that those are what improves.",
        weight="rollouts",
    ),
    Metric(
        name="rollout/response_length",
        title="response length",
        formula="mean number of response tokens, including the end-of-sequence token and forced tokens",
        unit="tokens",
        healthy="changes slowly and stays well below rollout.max_response_tokens",
        meaning="A steady rise can mean that the policy learns to reason. A rise together with truncation or "
        "repetition is padding. A collapse to a few tokens means that guessing pays off.",
        weight="rollouts",
    ),
    Metric(
        name="rollout/response_length_max",
        title="longest response",
        formula="largest number of response tokens in the step",
        unit="tokens",
        healthy="below rollout.max_response_tokens most of the time",
        meaning="If it stays at the limit, some responses never end. Read it together with rollout/truncated_frac.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="rollout/truncated_frac",
        title="truncated",
        formula="fraction of rollouts that were cut off before their own end",
        unit="fraction",
        healthy="under 0.05",
        meaning="A rise means that the length limit is too low or that the policy forgets to stop. Truncated rollouts "
        "usually count as wrong, so they push the length down for a reason that has nothing to do with quality.",
        weight="rollouts",
        high=0.05,
        advice="rollout.max_response_tokens is too low, or the policy forgets to stop.",
    ),
    Metric(
        name="rollout/no_answer_frac",
        title="no answer",
        formula="fraction of rollouts whose verdict is no_answer",
        unit="fraction",
        healthy="under 0.05 after the first steps",
        meaning="High from the start: the prompt template or the answer format does not fit the model. Rising: the "
        "policy drifts away from the format.",
        weight="rollouts",
        high=0.05,
        advice="The policy has left the answer format, or the template does not fit the model.",
    ),
    Metric(
        name="rollout/groups_with_signal_frac",
        title="groups with signal",
        formula="fraction of groups whose rewards are not all equal",
        unit="fraction",
        healthy="over 0.3; less once most problems are solved",
        meaning="A group without spread has no gradient under a group advantage. A fall towards 0 means that most of "
        "the compute is wasted, because the problems are too easy or too hard.",
        weight="groups",
        low=SIGNAL.value,
        unless=(SOLVED,),
        advice="Most groups are entirely correct or entirely wrong. Use harder or easier problems, or data.curriculum.",
    ),
    Metric(
        name="rollout/partial",
        title="partial rollouts",
        formula="number of unfinished rollouts that the next step resumes (only with rollout.partial_rollout_tokens)",
        unit="rollouts",
        healthy="steady",
        meaning="If it grows, more responses are started than finished. Raise rollout.partial_rollout_tokens, or lower "
        "rollout.prompts_per_step.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="rollout/version_lag",
        title="staleness",
        formula="mean over response tokens of (version of the policy that the step updates - version of the policy "
        "that sampled the token)",
        unit="optimizer steps",
        healthy="0 without partial rollouts; under 1 with them",
        meaning="Stale tokens are off-policy: their importance ratio is taken to the policy that sampled them, and "
        "clipping removes more of them (train/clip_frac).",
        weight="tokens",
    ),
    Metric(
        name="rollout/repetition",
        title="repetition",
        formula="mean over rollouts of 1 - distinct / all 8-grams of response tokens (0 for responses of fewer than 8 "
        "tokens)",
        unit="fraction",
        healthy="under 0.05",
        meaning="A rise is the earliest sign of collapse: loops fill the response, then truncation rises, then the "
        "reward falls.",
        weight="rollouts",
        high=0.05,
        advice="Look for loops in the rollouts. `save.best` keeps the best checkpoint.",
    ),
    Metric(
        name="rollout/observed_frac",
        title="with observations",
        formula="fraction of rollouts with at least one observation of the environment (only with `environment`)",
        unit="fraction",
        healthy="rises while the policy learns to use a tool that helps",
        meaning="If it falls towards 0, the policy does without the environment: its answers do not help, or calls are "
        "longer than rollout.max_response_tokens allows.",
        weight="rollouts",
    ),
    Metric(
        name="rollout/observations",
        title="observations",
        formula="mean over rollouts of the number of observations (only with `environment`)",
        unit="1",
        healthy="below environment.turns - 1 for most rollouts",
        meaning="If it comes near environment.turns - 1, responses run out of turns. Raise environment.turns, or look "
        "for calls that are repeated.",
        weight="rollouts",
    ),
    Metric(
        name="rollout/verdict/timeout",
        title="grader timeouts",
        formula="fraction of rollouts that the grader gave up on after its time limit",
        unit="fraction",
        healthy="0",
        meaning="A fault of the grader, not of the policy. These rollouts count as wrong whatever they say.",
        weight="rollouts",
        high=0.0,
        worst_step=True,
        advice="These rollouts were not graded. Do not trust the reward of those steps.",
    ),
    Metric(
        name="rollout/verdict/crashed",
        title="grader crashes",
        formula="fraction of rollouts on which the grader crashed",
        unit="fraction",
        healthy="0",
        meaning="A fault of the grader, not of the policy. These rollouts count as wrong whatever they say.",
        weight="rollouts",
        high=0.0,
        worst_step=True,
        advice="These rollouts were not graded. Do not trust the reward of those steps.",
    ),
    Metric(
        name="rollout/verdict/<reason>",
        title="verdict",
        formula="fraction of rollouts with this reason; the fractions of all reasons add up to 1",
        unit="fraction",
        healthy="equal rises, all others fall",
        meaning="Shows why responses are wrong. docs/verifier.md explains the reasons.",
        weight="rollouts",
    ),
    Metric(
        name="reward/<name>",
        title="single reward",
        formula="mean of this reward's unweighted value, over the rollouts that have it",
        unit="1",
        healthy="within the range of the reward",
        meaning="Shows which of several rewards the policy follows. If one rises while another falls, the weights of "
        "the recipe allow that trade.",
        weight="rollouts",
    ),
    # Rejection sampling: logged at step 0 of the SFT stage that learns from the selected responses.
    Metric(
        name="rejection/pass_rate",
        title="correct responses",
        formula="fraction of the sampled responses whose verdict is correct",
        unit="fraction",
        healthy="0.1 to 0.9",
        meaning="Rises from round to round while the policy learns. Near 1, a round teaches what the policy already "
        "knows.",
        weight="responses",
    ),
    Metric(
        name="rejection/solved_frac",
        title="solved problems",
        formula="fraction of problems with at least one correct response",
        unit="fraction",
        healthy="over 0.5",
        meaning="Unsolved problems teach nothing. If it stops rising, use more samples, a teacher, or easier problems.",
        weight="problems",
    ),
    Metric(
        name="rejection/kept_frac",
        title="selected responses",
        formula="fraction of the sampled responses that are selected for training",
        unit="fraction",
        healthy="at most per_prompt / samples_per_prompt",
        meaning="Far below rejection/pass_rate, the selection drops correct responses: as duplicates, beyond "
        "per_prompt, or by a filter. selected.report.json gives the reasons.",
        weight="responses",
    ),
    Metric(
        name="rejection/taught_responses",
        title="training responses",
        formula="number of responses that are selected for training",
        unit="responses",
        healthy="many times sft.batch_size",
        meaning="A small set is memorised: lower rejection.sft.steps or sample more responses.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="rejection/taught_problems_frac",
        title="training problems",
        formula="fraction of problems with at least one response that is selected for training",
        unit="fraction",
        healthy="near rejection/solved_frac",
        meaning="Falls below rejection/solved_frac where filters drop every correct response of a problem.",
        weight="problems",
    ),
    # Reward models: the last five are measured once, after the last step, on responses to held-out problems.
    Metric(
        name="reward_model/train_accuracy",
        title="accuracy of the reward model in training",
        formula="fraction of labelled tokens on the right side of score 0; with bradley_terry, of pairs in the right "
        "order",
        unit="fraction",
        healthy="rises, and stays near reward_model/pair_accuracy",
        meaning="Far above the held-out accuracy, the model memorises: sample more problems or train fewer epochs.",
        weight="labels or pairs",
    ),
    Metric(
        name="reward_model/language_loss",
        title="language-modelling loss of the reward model",
        formula="- mean over tokens of correct responses of log p, by the policy's output embedding",
        unit="nats per token",
        healthy="falls from its first value, which is that of the policy",
        meaning="Above its first value, the model forgets what the policy knows: lower reward_model.lr.",
        weight="tokens",
    ),
    Metric(
        name="reward_model/pair_accuracy",
        title="held-out pairs in the right order",
        formula="fraction of pairs of a correct and a wrong response to one problem that the scores order rightly",
        unit="fraction",
        healthy="over 0.75",
        meaning="0.5 is chance. A model below 0.75 chooses hardly better than a vote.",
        weight="pairs",
    ),
    Metric(
        name="reward_model/calibration_error",
        title="calibration error",
        formula="mean over ten bins, by their size, of |mean predicted probability - frequency| (arXiv:1706.04599)",
        unit="fraction",
        healthy="below 0.1",
        meaning="Predictions are of a response being correct; with bradley_terry, of the higher score of a pair being "
        "the correct one. A large error makes scores incomparable between problems, although their order may be right.",
        weight="predictions",
    ),
    Metric(
        name="reward_model/first_error_f1",
        title="first wrong step found",
        formula="harmonic mean of the accuracies on solutions with and without a wrong step (arXiv:2412.06559)",
        unit="fraction",
        healthy="over 0.8",
        meaning="Only of process models, with reward_model.slips. The first step with a probability below one half is "
        "the predicted error.",
        weight="solutions",
    ),
    Metric(
        name="reward_model/heldout_accuracy",
        title="accuracy on given held-out rows",
        formula="fraction of labels on the right side of score 0; with bradley_terry, of pairs with the chosen "
        "response above the rejected one",
        unit="fraction",
        healthy="near reward_model/train_accuracy",
        meaning="Only with reward_model.heldout_data. 0.5 is chance for pairs.",
        weight="labels or pairs",
    ),
    Metric(
        name="reward_model/heldout_first_error_f1",
        title="first wrong step found in given held-out rows",
        formula="harmonic mean of the accuracies on responses with and without a wrong step (arXiv:2412.06559)",
        unit="fraction",
        healthy="over 0.8",
        meaning="Only of process models, with reward_model.heldout_data that has responses of both kinds.",
        weight="responses",
    ),
    Metric(
        name="reward_model/best_of_<n>",
        title="best of n",
        formula="probability that the response with the highest score among n is correct, mean over problems",
        unit="fraction",
        healthy="above reward_model/maj_<n>, and rises with n",
        meaning="If it falls with n, the highest scores are errors of the model, and RL would find them too.",
        weight="problems",
    ),
    Metric(
        name="reward_model/weighted_vote_<n>",
        title="weighted vote of n",
        formula="probability that the answer with the largest sum of weights among n responses is correct; the weight "
        "is the predicted probability, or with bradley_terry exp(score)",
        unit="fraction",
        healthy="at least reward_model/maj_<n>",
        meaning="Between best_of_n and a majority. It forgives single wrong scores.",
        weight="problems",
    ),
    Metric(
        name="reward_model/maj_<n>",
        title="majority of n",
        formula="maj@n of the same responses",
        unit="fraction",
        healthy="rises with n",
        meaning="What choosing costs nothing for: a reward model must beat it.",
        weight="problems",
    ),
    # Preference optimisation. The first three are logged at step 0 of the stage, about the pairs that it learns from.
    Metric(
        name="preference/pairs",
        title="pairs",
        formula="number of pairs that the stage learns from",
        unit="pairs",
        healthy="many times preference.batch_size",
        meaning="A small set is memorised: sample more responses or problems, or take fewer epochs.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="preference/pass_rate",
        title="correct responses",
        formula="fraction of the sampled responses whose verdict is correct",
        unit="fraction",
        healthy="0.1 to 0.9",
        meaning="Rises from round to round while the policy learns. Near 0 or 1, few problems give a pair.",
        weight="responses",
    ),
    Metric(
        name="preference/paired_frac",
        title="problems with a pair",
        formula="fraction of problems with at least one pair",
        unit="fraction",
        healthy="over 0.3",
        meaning="The other problems teach nothing: all of their responses are right, or all are wrong. More samples "
        "per prompt raise it.",
        weight="problems",
    ),
    Metric(
        name="preference/margin",
        title="margin",
        formula="mean over pairs of gain(chosen) - gain(rejected), gain = log policy - log reference of a response; "
        "without a reference, of log policy(chosen) - log policy(rejected)",
        unit="nats",
        healthy="rises from 0",
        meaning="A margin that rises without end while eval/pass@1 does not is overfitting: use a larger beta, fewer "
        "epochs, or ipo, which bounds it.",
        weight="pairs",
    ),
    Metric(
        name="preference/accuracy",
        title="pair accuracy",
        formula="fraction of pairs with a margin above 0",
        unit="fraction",
        healthy="rises above 0.5",
        meaning="Near 1 after few steps, the pairs are easy to tell apart: sample new ones from the new policy.",
        weight="pairs",
    ),
    Metric(
        name="preference/chosen_logp",
        title="log-prob of chosen responses",
        formula="mean over pairs of log policy(chosen response), summed over its tokens",
        unit="nats",
        healthy="does not fall by more than a few nats",
        meaning="The known failure of DPO: the margin grows because the rejected responses fall faster, while the "
        "chosen ones fall too. Add the loss likelihood, or raise its weight.",
        weight="pairs",
    ),
    Metric(
        name="preference/rejected_logp",
        title="log-prob of rejected responses",
        formula="mean over pairs of log policy(rejected response), summed over its tokens",
        unit="nats",
        healthy="falls",
        meaning="Should fall faster than preference/chosen_logp.",
        weight="pairs",
    ),
    Metric(
        name="preference/chosen_length",
        title="length of chosen responses",
        formula="mean over pairs of the tokens of the chosen response",
        unit="tokens",
        healthy="near preference/rejected_length",
        meaning="A difference in length is learned as if it were quality: use balance_lengths, or a loss per token.",
        weight="pairs",
    ),
    Metric(
        name="preference/rejected_length",
        title="length of rejected responses",
        formula="mean over pairs of the tokens of the rejected response",
        unit="tokens",
        healthy="near preference/chosen_length",
        meaning="See preference/chosen_length.",
        weight="pairs",
    ),
    # Supervised fine-tuning: worked solutions of held-out problems, only with sft.heldout_every.
    Metric(
        name="sft/heldout_loss",
        title="held-out loss",
        formula="mean over response tokens of held-out demonstrations of -log policy",
        unit="nats",
        healthy="falls together with train/loss",
        meaning="A rise while train/loss falls is overfitting: take fewer steps, or more demonstrations.",
        weight="tokens",
    ),
    Metric(
        name="sft/heldout_accuracy",
        title="held-out token accuracy",
        formula="fraction of response tokens of held-out demonstrations that are the policy's most likely token, given "
        "the true tokens before them",
        unit="fraction",
        healthy="rises, then levels off",
        meaning="It can rise while eval/pass@1 does not: the tokens that decide an answer are few.",
        weight="tokens",
    ),
    # What the update did. "Loss tokens" are the response tokens that count in the loss.
    Metric(
        name="train/loss",
        title="loss",
        formula="sum over the loss tokens of a minibatch of loss x weight; mean over the updates of the step",
        unit="nats",
        healthy="SFT: falls. RL: near 0, with either sign",
        meaning="In RL its level says little, because advantages are centred. A jump in its magnitude means that "
        "something broke.",
        weight="updates",
    ),
    Metric(
        name="train/entropy",
        title="entropy",
        formula="mean over loss tokens of the policy's entropy at that position",
        unit="nats",
        healthy="falls with the errors of the policy: a fifth of its first value is healthy at an accuracy of 0.9",
        meaning="If it falls while the policy is still wrong and few groups have signal, exploration has ended, and "
        "learning with it: raise the upper clip or the entropy coefficient, or lower the learning rate. A sharp rise "
        "means that the policy falls apart.",
        weight="tokens",
    ),
    Metric(
        name="train/grad_norm",
        title="gradient norm",
        formula="L2 norm of the whole gradient before clipping; mean over the updates of the step",
        unit="1",
        healthy="the same order of magnitude throughout",
        meaning="Spikes precede collapse. If the norm is always above train.max_grad_norm, every update has the same "
        "length, whatever the gradient. Absent in a step that made no update.",
        weight="updates",
    ),
    Metric(
        name="train/lr",
        title="learning rate",
        formula="learning rate of the last update of the step",
        unit="1",
        healthy="follows the schedule of the recipe",
        meaning="Explains bends in other curves at the end of warm-up and during decay.",
        reduction=Reduction.LAST,
    ),
    Metric(
        name="train/clip_frac",
        title="clipped tokens",
        formula="fraction of loss tokens whose policy gradient was removed or bounded by a clip of the objective",
        unit="fraction",
        healthy="0 for on-policy tokens in a single update; under 0.2 with several updates or stale tokens",
        meaning="A rise means that updates move the policy further than the clip range allows: use fewer updates per "
        "step or a lower learning rate.",
        weight="tokens",
        high=0.2,
        at_start=0.0,
        advice="Updates leave the clip range. Use fewer updates per step or a lower learning rate.",
    ),
    Metric(
        name="train/ratio_mean",
        title="mean ratio",
        formula="mean over loss tokens of the importance ratio, exp(policy_logp - old_logp) at token level; old_logp "
        "of a stale token is its behavior_logp, unless a correction accounts for staleness",
        unit="1",
        healthy="0.99 to 1.01",
        meaning="Its expectation under the old policy is 1. A drift away from 1 means very stale tokens or log-probs "
        "that do not match.",
        weight="tokens",
        at_start=1.0,
    ),
    Metric(
        name="train/ratio_max",
        title="largest ratio",
        formula="largest importance ratio of a loss token in the step",
        unit="1",
        healthy="under 5",
        meaning="A single extreme token can dominate an update. Growth from step to step precedes a spike of "
        "train/grad_norm.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="train/kl_ref",
        title="KL to the reference",
        formula="mean over loss tokens of the KL estimate between policy and reference model (only if "
        "algorithm.kl_coef is not 0); in the updates of the step if the KL is in the loss, otherwise before them",
        unit="nats",
        healthy="grows slowly; 0 to 0.5",
        meaning="How far the policy has moved from where it started. A sharp rise without a rise in reward is drift: "
        "raise algorithm.kl_coef.",
        weight="tokens",
        at_start=0.0,
    ),
    Metric(
        name="train/kl_penalty",
        title="KL in the reward",
        formula="mean over rollouts of algorithm.kl_coef x the KL estimate, summed over the response: what the KL "
        "takes from rewards or advantages (only if algorithm.kl_in is not loss)",
        unit="reward",
        healthy="a small part of rollout/rewards",
        meaning="rollout/rewards minus this is what PPO maximises. If it is as large as the reward, the policy is held "
        "too tightly, or has drifted far.",
        weight="rollouts",
    ),
    Metric(
        name="train/kl_coef",
        title="coefficient of the KL",
        formula="coefficient of the KL in the step (only with algorithm.kl_control)",
        unit="1",
        healthy="levels off",
        meaning="It rises while the KL is above its target, and falls while it is below. A rise without end means that "
        "the policy drifts faster than the controller acts: lower horizon or the learning rate.",
        reduction=Reduction.LAST,
    ),
    Metric(
        name="train/approx_kl",
        title="KL of the update",
        formula="mean over loss tokens of -log(importance ratio), the k1 estimate of KL(old, policy)",
        unit="nats",
        healthy="0 in the first update of on-policy tokens; under 0.02",
        meaning="The size of the step in distribution. A rise at the same learning rate means a steeper landscape.",
        weight="tokens",
        at_start=0.0,
    ),
    Metric(
        name="train/tokens",
        title="loss tokens",
        formula="number of response tokens of the step that count in the loss, each counted once, however many epochs "
        "are made",
        unit="tokens",
        healthy="steady",
        meaning="A fall means short responses, or groups and tokens that filters and masks removed. The gradient gets "
        "noisier.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="train/early_stops",
        title="early stops",
        formula="1 if a minibatch passed algorithm.max_ratio, so that it and all later updates of the step were "
        "skipped; else 0",
        unit="count",
        healthy="0, occasionally 1",
        meaning="Frequent early stops mean that the learning rate or the number of updates per step is too high. The "
        "compute of the skipped minibatch is lost.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="train/skipped_steps",
        title="skipped updates",
        formula="number of updates of the step whose loss or gradient was nan or inf, so that they were not made",
        unit="count",
        healthy="0",
        meaning="A skipped update changes nothing. Its minibatch is stored in the folder `skipped`. Three in a row "
        "stop the run.",
        reduction=Reduction.SUM,
        high=0.0,
        worst_step=True,
        advice="Lower the learning rate, and look at the stored minibatch.",
    ),
    Metric(
        name="train/value_loss",
        title="critic error",
        formula="mean over loss tokens of (value - return)^2, with the critic's value just before its update (PPO)",
        unit="reward squared",
        healthy="falls, then follows the variance of the reward",
        meaning="A rise means that the critic does not keep up with the policy, and advantages get noisy.",
        weight="tokens",
    ),
    Metric(
        name="train/explained_variance",
        title="explained variance",
        formula="1 - var(return - value) / var(return) over the loss tokens of the step, with the values from before "
        "its first update; 0 if all returns are equal (PPO)",
        unit="1",
        healthy="over 0.3 once the critic has warmed up; at most 1",
        meaning="At 0 or below, the critic is no better than a constant, and PPO is REINFORCE with noise.",
        weight="tokens",
    ),
    # Sampler against trainer.
    Metric(
        name="align/mean_exp_gap",
        title="sampler-trainer gap",
        formula="mean of exp(|behavior_logp - old_logp|) over the response tokens that the policy to be updated has "
        "sampled; stale tokens are left out (see rollout/version_lag). With rollout.lag there are no others: those of "
        "one microbatch, from all over the batch, are then compared with the weights that sampled them",
        unit="1",
        healthy="1.00 to 1.05",
        meaning="Over 1.05 the sampler samples from another distribution than the trainer differentiates. Check "
        "precision, temperature, template and weight updates. Every step fails before its first update if this "
        "exceeds train.max_logprob_gap. A few tokens with a large gap can be the cause: see align/max_gap.",
        weight="tokens",
        high=1.05,
        worst_step=True,
        advice="The sampler samples from another distribution than the trainer differentiates.",
    ),
    Metric(
        name="align/max_gap",
        title="largest sampler-trainer gap",
        formula="largest |behavior_logp - old_logp| over the same tokens as align/mean_exp_gap",
        unit="nats",
        healthy="under 1",
        meaning="A single large gap with a small mean is a token with a tiny probability. Many large gaps are a fault.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="align/lag",
        title="drift over the lag",
        formula="mean of exp(|behavior_logp - old_logp|) over the stale response tokens, which earlier policies have "
        "sampled (only with algorithm.correction)",
        unit="1",
        healthy="under 1.2, steady",
        meaning="How far the policy has moved since these tokens were sampled. It grows with rollout.lag and "
        "train.lr. The correction weights of many tokens are then cut off.",
        weight="tokens",
    ),
    # Time and speed of one process.
    Metric(
        name="time/rollout_s",
        title="sampling",
        formula="wall time of sampling",
        unit="s",
        healthy="the largest part of the step",
        meaning="Grows with the response length.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="time/grade_s",
        title="grading",
        formula="wall time for which grading continued after the sampling had ended",
        unit="s",
        healthy="under 10 % of the step",
        meaning="A jump means answers that are hard to parse (see rollout/verdict/timeout), or too few workers.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="time/update_s",
        title="updating",
        formula="wall time of building the batch, updating the policy and handing its weights to the sampler",
        unit="s",
        healthy="steady",
        meaning="Grows with train/tokens.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="time/step_s",
        title="whole step",
        formula="wall time of the step without saving and evaluation: sampling, grading and updating in RL, rendering "
        "and updating in SFT",
        unit="s",
        healthy="steady",
        meaning="Compare it with the difference of `seconds` between two lines of metrics.jsonl: the rest is "
        "saving and evaluation.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="perf/rollout_tokens_per_s",
        title="sampling rate",
        formula="response tokens sampled in the step (also in rollouts that are still unfinished, and for greedy "
        "baselines) / time/rollout_s",
        unit="tokens/s",
        healthy="steady for the machine",
        meaning="A fall at equal response length means that another job uses the machine, or that a few long responses "
        "keep the batch nearly empty.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="perf/train_tokens_per_s",
        title="training rate",
        formula="prompt and response tokens of all minibatches (once per epoch; a prompt counts for each of its "
        "rollouts) / time/update_s",
        unit="tokens/s",
        healthy="steady for the machine",
        meaning="A fall means microbatches that are too small, or swapping.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="perf/peak_memory_gb",
        title="peak memory",
        formula="since the stage began: largest number of GPU bytes held by tensors, or on a CPU the rise of the "
        "process's peak resident memory; / 10^9",
        unit="GB",
        healthy="flat after some steps; on a GPU below the estimate of `ansatz explain`",
        meaning="A steady rise means longer responses, or a leak. Near the limit of the device, lower "
        "train.tokens_per_microbatch or rollout.engine.max_concurrent.",
        reduction=Reduction.MAX,
    ),
    Metric(
        name="perf/groups_from_ledger",
        title="groups from the ledger",
        formula="groups that had landed before the run was resumed and were not sampled again, since then (only with "
        "rollout.lag or workers)",
        unit="groups",
        healthy="0 without a resume",
        meaning="After a resume, about the groups that were sampled after the last checkpoint.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="perf/workers/<count>",
        title="events of workers",
        formula="since the run was started or resumed (only with cluster.workers): deaths and restarts of workers, "
        "lies (workers with other weights than they should have), groups that were reopened because a worker died or "
        "took too long, backups (second leases), late answers, duplicates (second answers), and redrawn_differs "
        "(second answers that differ from the first)",
        unit="count",
        healthy="0; some backups",
        meaning="They change the time of a run, and no result. Each death and each suspicion is an event of the run, "
        "with its cause. With redrawn_differs above 0, the engine's results depend on the batch.",
        reduction=Reduction.SUM,
    ),
    # The pool of problems, after the step. Only with data.curriculum.
    Metric(
        name="data/tried_frac",
        title="tried problems",
        formula="problems taken at least once / problems in the training set",
        unit="fraction",
        healthy="rises",
        meaning="If it stays flat below 1, the curriculum keeps to problems that it knows. Try thompson or a lower "
        "discount.",
        weight="problems",
    ),
    Metric(
        name="data/pass_rate",
        title="expected pass rate",
        formula="mean over tried problems of the posterior mean (prior + correct) / (2 prior + responses), discounted",
        unit="fraction",
        healthy="rises slowly",
        meaning="The policy's level on the training problems, independent of the curriculum's choice. "
        "rollout/accuracy stays near 1/2 when the curriculum does its work.",
        weight="problems",
    ),
    Metric(
        name="data/paused_frac",
        title="paused problems",
        formula="problems that are paused after pause_after_failed visits without a correct response / problems in the "
        "training set",
        unit="fraction",
        healthy="under 0.5, falling",
        meaning="A rise to most of the pool means that the problems are too hard for this policy.",
        weight="problems",
    ),
    Metric(
        name="data/dropped_frac",
        title="dropped problems",
        formula="problems dropped after drop_after_solved consecutive visits with only correct responses / problems in "
        "the training set",
        unit="fraction",
        healthy="rises, under 0.8",
        meaning="Near 1 the pool is used up: the remaining problems are hard or wrong, and dropped problems return to "
        "fill the step.",
        weight="problems",
    ),
    Metric(
        name="data/dynamic_sampling_rounds",
        title="dynamic sampling rounds",
        formula="extra rounds of sampling in the step that replaced groups without signal",
        unit="rounds",
        healthy="under data.curriculum.dynamic_sampling",
        meaning="At the limit, the step is not full of groups with signal. Read it together with "
        "data/groups_discarded.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="data/groups_discarded",
        title="discarded groups",
        formula="groups that were sampled in the step but left out of its update, because their rewards are all equal",
        unit="groups",
        healthy="under rollout.prompts_per_step",
        meaning="The price of a full update in sampling. A rise calls for other problems.",
        reduction=Reduction.SUM,
    ),
    Metric(
        name="data/groups_without_signal",
        title="groups without signal",
        formula="groups in the update of the step whose rewards are all equal, with data.curriculum. With dynamic "
        "sampling, these fill the places that were left when its rounds were used up",
        unit="groups",
        healthy="0 with dynamic sampling",
        meaning="Above 0 dynamic sampling gave up, and the update has less signal than its size suggests. Allow more "
        "rounds, or take problems of another difficulty.",
        reduction=Reduction.SUM,
    ),
    # Evaluations on held-out problems. They are in evaluations.jsonl and TensorBoard, not in metrics.jsonl.
    Metric(
        name="eval/<name>",
        title="held-out",
        formula="a number of an evaluation: pass@1 (mean over samples), greedy, pass@k, maj@k, mean_length, "
        "truncated_frac. A level is a suffix, as in eval/heldout/pass@1/3",
        unit="1",
        healthy="pass@1 rises; truncated_frac stays under 0.05",
        meaning="The numbers that count. pass@1 rising towards a flat pass@k means sharpening. If pass@k rises as "
        "well, the policy learns new abilities. A fall of pass@k is lost diversity.",
        weight="problems",
    ),
)


def find_metric(name: str) -> Metric | None:
    """The row of a name: the row with exactly this name, otherwise the first family that covers it, otherwise None."""
    covering = [metric for metric in METRICS if metric.covers(name)]
    return min(covering, key=lambda metric: metric.is_family, default=None)


def reduction_of(name: str) -> Reduction:
    """How measurements of the metric are merged. ValueError for a name without a row in the table."""
    metric = find_metric(name)
    if metric is None:
        check_known([name])
        raise AssertionError("check_known raises for a name without a row")
    return metric.reduction


def check_known(names: Iterable[str]) -> None:
    """ValueError that lists the names without a row in the table."""
    unknown = sorted({name for name in names if find_metric(name) is None})
    if unknown:
        hint = suggest(unknown[0], [metric.name for metric in METRICS if not metric.is_family])
        raise ValueError(
            f"undocumented metrics: {', '.join(unknown)}. Add a row to METRICS in ansatz/track/metrics.py and "
            f"regenerate docs/metrics.md, or fix the name.{hint if 'Did you mean' in hint else ''}"
        )


_INTRO = """# Metrics

Every number that a run emits. This page is generated from the table in `ansatz/track/metrics.py`
by `python -m ansatz.track.metrics docs/metrics.md`; a test keeps the two equal.

A training stage writes one line per step to `metrics.jsonl`, with `step` and `seconds` (since the
stage began). TensorBoard has the same names, and `report.html` draws them. Evaluations on held-out
problems are in `evaluations.jsonl`.

"Response tokens" are the tokens that the policy sampled, and "loss tokens" those of them that no
mask of the objective rejects. Prompt tokens and forced tokens count only where a row says so.

**Merged** says how the numbers of microbatches, minibatches and epochs become the number of the
step. A mean counts every token (or rollout, group, update) once, whichever part it was in.
"""


def metrics_markdown() -> str:
    """The text of docs/metrics.md: one section per prefix, one entry per metric, lines of at most 100 characters."""
    lines = [_INTRO.rstrip()]
    section = ""
    for metric in METRICS:
        prefix = metric.name.split("/")[0]
        if prefix != section:
            section = prefix
            lines += ["", f"## {prefix}"]
        lines += ["", f"### `{metric.name}`", "", *_entry(metric)]
    return "\n".join(lines) + "\n"


def _entry(metric: Metric) -> list[str]:
    warning = ""
    if metric.low is not None or metric.high is not None:
        bound = f"under {metric.low:g}" if metric.low is not None else f"over {metric.high:g}"
        span = "a single step" if metric.worst_step else f"the mean of {WINDOW} steps"
        warning = f" The watchdog and the report warn if {span} is {bound}{unless(metric.unless)}."
    merged = f"{metric.reduction} over {metric.weight}" if metric.weight else str(metric.reduction)
    items = (
        ("Formula", metric.formula),
        ("Unit", metric.unit),
        ("Merged", merged),
        ("Healthy", f"{metric.healthy}.{warning}"),
        ("When it changes", metric.meaning),
    )
    return [
        line
        for label, text in items
        for line in textwrap.wrap(
            f"- **{label}:** {text}", width=100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    ]


if __name__ == "__main__":
    files.write_text(Path(sys.argv[1]), metrics_markdown())
