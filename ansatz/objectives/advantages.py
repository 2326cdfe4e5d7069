"""Advantages of rollouts: how much better a response is than expected for its prompt.

Axes: N rollouts, S groups, K reward components; `group_N` labels the prompt of each rollout with any integers. Every
token of a rollout gets the rollout's advantage; `token_advantages` has the components that distinguish tokens.

Components with `group_N` give 0, never NaN, for a group of equal rewards (except `prior_mean`). They sum to 0 over a
group (except `prior_mean`, `leave_one_out_std`, `gdpo` with that as its normalizer, `best_gap`, `opo` and
`log_partition`), and a constant added to all rewards changes nothing (except in `mean_ratio`, `pass_at_k` and `gpg`).
`single: keep` is an exception to all three.

"Unbiased" below means: the expected gradient equals the gradient of the mean reward, up to a positive constant.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ansatz.objectives import segments
from ansatz.objectives.components import Function, formula
from ansatz.registry import Registry, settings_of

ADVANTAGES: Registry[Function] = Registry("advantage")
Single = Literal["zero", "keep"]

_DIVIDING = ("group_zscore", "leave_one_out_std")  # normalizers of `gdpo` that divide by a std
_SINGLE = {"single": {"keep": "; a prompt's only rollout keeps its reward"}}


@ADVANTAGES.register("reward", "raw")
@formula("A = r")
def reward(reward_N: Tensor) -> Tensor:
    """The reward itself, no baseline: unbiased, most variance (REINFORCE, Williams 1992)."""
    return reward_N.clone()


@ADVANTAGES.register("zero")
@formula("A = 0")
def zero(reward_N: Tensor) -> Tensor:
    """No reward: the policy learns only from a KL in the advantage, to a teacher."""
    return torch.zeros_like(reward_N)


@ADVANTAGES.register("filtered_bc")
@formula("A = 1 where r > {solved}, else 0")
def filtered_bc(reward_N: Tensor, *, solved: float = 0.5) -> Tensor:
    """Right answers are imitated, wrong ones ignored: online rejection-sampling fine-tuning (arXiv:2402.03300 sec.
    5.2)."""
    return (reward_N > solved).to(reward_N.dtype)


@ADVANTAGES.register("group_mean", "dr_grpo", "centered", "reinforce_baseline")
@formula("A = r - mean reward of the prompt", notes=_SINGLE)
def group_mean(reward_N: Tensor, group_N: Tensor, *, single: Single = "zero") -> Tensor:
    """The reward minus the mean of its group: unbiased, scaled by (n - 1) / n (Dr. GRPO, arXiv:2503.20783).

    single: the advantage of the only rollout of a group: "zero", or "keep", its reward unchanged.
    """
    index_N, num_groups = segments.renumbered(group_N)
    return _keep_singles(segments.centered(reward_N, index_N, num_groups), reward_N, index_N, num_groups, single)


@ADVANTAGES.register("group_zscore", "grpo", "group_norm", "standard")
@formula(
    "A = (r - mean reward of the prompt) / (std of the {std_over}'s rewards (ddof {ddof}) + {eps})",
    notes={"single": {"keep": "; a prompt's only rollout has r / (1 + {eps})"}},
)
def group_zscore(
    reward_N: Tensor,
    group_N: Tensor,
    *,
    ddof: int = 1,
    eps: float = 1e-4,
    std_over: Literal["group", "batch"] = "group",
    single: Single = "zero",
) -> Tensor:
    """(r - mean) / (std + eps) (GRPO, arXiv:2402.03300 sec. 4.1.2; the paper fixes neither ddof nor eps).

    Biased: prompts that are almost always or almost never solved weigh more. std_over: "group", or "batch" to divide
    all groups by the std of all rewards, which is unbiased for a fixed batch. single: as in `group_mean`.
    """
    index_N, num_groups = segments.renumbered(group_N)
    centered_N = segments.centered(reward_N, index_N, num_groups)
    if std_over == "batch":
        std_N = _batch_deviation(reward_N, ddof)
    else:
        std_N = segments.deviation(centered_N, index_N, num_groups, ddof=ddof)[index_N]
    return _keep_singles(_divided(centered_N, std_N + eps), reward_N / (1 + eps), index_N, num_groups, single)


@ADVANTAGES.register("group_smoothed")
@formula(
    "A = (r - mean) / (s + {eps}), s^2 the prompt's variance shrunk to the batch's, as if by {strength} more rollouts"
)
def group_smoothed(reward_N: Tensor, group_N: Tensor, *, strength: float = 4.0, eps: float = 1e-6) -> Tensor:
    """(r - mean) / (s + eps), s^2 = (n var(group) + strength var(batch)) / (n + strength), both with ddof 0.

    A remedy for the uneven scaling of `group_zscore`. With strength 0 it is the z-score; for strength -> inf all
    prompts are divided alike, which is unbiased for a fixed batch.
    """
    index_N, num_groups = segments.renumbered(group_N)
    centered_N = segments.centered(reward_N, index_N, num_groups)
    size_N = segments.count(index_N, num_groups)[index_N].to(reward_N.dtype)
    group_variance_N = segments.deviation(centered_N, index_N, num_groups, ddof=0)[index_N] ** 2
    batch_variance_N = _batch_deviation(reward_N, 0) ** 2
    variance_N = (size_N * group_variance_N + strength * batch_variance_N) / (size_N + strength)
    return _divided(centered_N, variance_N.sqrt() + eps)


@ADVANTAGES.register("prior_mean")
@formula(
    "A = r - (sum of the prompt's other rewards + {strength} x mean reward of other prompts) / (others + {strength})"
)
def prior_mean(reward_N: Tensor, group_N: Tensor, *, strength: float = 1.0) -> Tensor:
    """The reward minus a leave-one-out baseline with `strength` pseudo-rollouts at the mean reward of other prompts.

    A remedy for groups of equal rewards: a prompt that is always solved is still pushed up while most of the batch is
    not. Unbiased, because the baseline never sees the reward of the rollout itself. With a single prompt, equal rewards
    give 0.
    """
    index_N, num_groups = segments.renumbered(group_N)
    size_N = segments.count(index_N, num_groups)[index_N]
    total_N = segments.total(reward_N, index_N, num_groups)[index_N]
    others_N = len(reward_N) - size_N
    prior_N = (reward_N.sum() - total_N) / others_N.clamp(min=1)
    weight_N = strength * (others_N > 0).to(reward_N.dtype)
    baseline_N = (total_N - reward_N + weight_N * prior_N) / (size_N - 1 + weight_N).clamp(min=1e-12)
    return torch.where(size_N - 1 + weight_N > 0, reward_N - baseline_N, torch.zeros_like(reward_N))


@ADVANTAGES.register("leave_one_out", "rloo")
@formula("A = r - mean of the prompt's other rewards", notes=_SINGLE)
def leave_one_out(reward_N: Tensor, group_N: Tensor, *, single: Single = "zero") -> Tensor:
    """The reward minus the mean of the others, n / (n - 1) (r - mean): unbiased (RLOO, arXiv:2402.14740).

    single: as in `group_mean`.
    """
    index_N, num_groups = segments.renumbered(group_N)
    size_N = segments.count(index_N, num_groups)[index_N]
    advantage_N = segments.centered(reward_N, index_N, num_groups) * size_N / (size_N - 1).clamp(min=1)
    return _keep_singles(advantage_N, reward_N, index_N, num_groups, single)


@ADVANTAGES.register("leave_one_out_std")
@formula(
    "A = (r - mean) / (std (ddof {ddof}) + {eps}), both of the prompt's other rewards; undivided where that std is 0"
)
def leave_one_out_std(reward_N: Tensor, group_N: Tensor, *, ddof: int = 1, eps: float = 1e-6) -> Tensor:
    """The reward standardised by the others of its group (NeMo-RL's default).

    Biased, and it does not sum to 0: the only success of a group is not divided, because the others have std 0.
    """
    index_N, num_groups = segments.renumbered(group_N)
    # In float32, the spread below would be the rounding error of a difference of nearly equal sums.
    centered_N = segments.centered(reward_N.double(), index_N, num_groups)
    others_N = segments.count(index_N, num_groups)[index_N] - 1
    squares_N = segments.total(centered_N**2, index_N, num_groups)[index_N]
    mean_N = -centered_N / others_N.clamp(min=1)  # of the others' centred rewards: all of them sum to 0
    spread_N = squares_N - centered_N**2 - others_N * mean_N**2
    uniform_N = _others_are_equal(reward_N, index_N, num_groups)
    std_N = (spread_N.clamp(min=0) / (others_N - ddof).clamp(min=1)).sqrt()
    advantage_N = (centered_N - mean_N) / torch.where(uniform_N, torch.ones_like(std_N), std_N + eps)
    return advantage_N.to(reward_N.dtype)


@ADVANTAGES.register("mean_ratio", "max_rl", "maxrl")
@formula(
    "A = (r - mean reward of the prompt) / (mean + {eps}), 0 where the mean is {signed}",
    words={"signed": {False: "not positive", True: "0"}},
    notes=_SINGLE,
)
def mean_ratio(
    reward_N: Tensor, group_N: Tensor, *, eps: float = 1e-6, signed: bool = False, single: Single = "zero"
) -> Tensor:
    """(r - mean) / (mean + eps): the gradient of log pass rate, to first order of maximum likelihood (MaxRL,
    arXiv:2602.02710).

    For rewards >= 0; a mean <= 0 gives 0. signed: also divide by negative means, which flips the sign. single: as in
    `group_mean`.
    """
    index_N, num_groups = segments.renumbered(group_N)
    mean_N = segments.mean(reward_N, index_N, num_groups)[index_N]
    usable_N = mean_N != 0 if signed else mean_N > 0
    divisor_N = torch.where(usable_N, mean_N + eps, torch.ones_like(mean_N))
    advantage_N = segments.centered(reward_N, index_N, num_groups) / divisor_N * usable_N
    return _keep_singles(advantage_N, reward_N, index_N, num_groups, single)


@ADVANTAGES.register("batch_zscore")
@formula("A = (r - mean reward of the batch) / (std of the batch's rewards (ddof {ddof}) + {eps})")
def batch_zscore(reward_N: Tensor, *, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """The reward whitened over all rollouts of the step, which also works with one rollout per prompt (REINFORCE++,
    arXiv:2501.03262).

    Unbiased up to scale for a large batch; hard prompts are pushed down as a whole.
    """
    whole_N = torch.zeros_like(reward_N, dtype=torch.long)
    return _divided(segments.centered(reward_N, whole_N, 1), _batch_deviation(reward_N, ddof) + eps)


@ADVANTAGES.register("pass_at_k", "passk")
@formula("A = (share of draws of {k} that a rollout's success (r > {solved}) saves) / std: the gain in pass@{k}")
def pass_at_k(reward_N: Tensor, group_N: Tensor, *, k: int = 4, solved: float = 0.5) -> Tensor:
    """The advantage of a rollout in a random draw of k that counts as solved if any of them is (arXiv:2508.10751).

    solved: a reward above this is a success. Groups smaller than k, and draws that are always or never solved, give 0.
    """
    index_N, num_groups = segments.renumbered(group_N)
    correct_N = reward_N > solved
    size_N = segments.count(index_N, num_groups)[index_N]
    wrong_N = segments.total((~correct_N).to(reward_N.dtype), index_N, num_groups)[index_N]
    fails_N = torch.ones_like(reward_N)  # becomes C(wrong, k) / C(size, k): no success in a draw
    others_fail_N = torch.ones_like(reward_N)  # the other k - 1 of a draw that contains this incorrect rollout
    for drawn in range(k):
        fails_N = fails_N * ((wrong_N - drawn) / (size_N - drawn).clamp(min=1)).clamp(min=0)
        if drawn:
            others_fail_N = others_fail_N * ((wrong_N - drawn) / (size_N - drawn).clamp(min=1)).clamp(min=0)
    rate_N = 1 - fails_N
    std_N = (rate_N * fails_N).sqrt()
    # The mean reward of the draws with this rollout, minus that of all draws: 1 - rate if it is correct.
    gain_N = torch.where(correct_N, fails_N, fails_N - others_fail_N)
    usable_N = (std_N > 0) & (size_N >= k)
    return torch.where(
        usable_N, gain_N / torch.where(usable_N, std_N, torch.ones_like(std_N)), torch.zeros_like(gain_N)
    )


@ADVANTAGES.register("best_gap", "grpo_passk")
@formula(
    "A = {divide_by_std} for the prompt's best rollout, 0 for the others",
    words={
        "divide_by_std": {
            False: "r_best - r_second",
            True: "(r_best - r_second) / (std of the prompt's rewards (ddof {ddof}) + {eps})",
        }
    },
)
def best_gap(
    reward_N: Tensor, group_N: Tensor, *, divide_by_std: bool = False, ddof: int = 1, eps: float = 1e-6
) -> Tensor:
    """Leave-one-out advantage of the best rollout of the group (arXiv:2503.19595); 0 if several share the best reward.

    divide_by_std: by std + eps of the group.
    """
    index_N, num_groups = segments.renumbered(group_N)
    other_N = _largest_other(reward_N, index_N, num_groups)
    gap_N = torch.where(other_N.isfinite(), (reward_N - other_N).clamp(min=0), torch.zeros_like(reward_N))
    if not divide_by_std:
        return gap_N
    centered_N = segments.centered(reward_N, index_N, num_groups)
    return _divided(gap_N, segments.deviation(centered_N, index_N, num_groups, ddof=ddof)[index_N] + eps)


@ADVANTAGES.register("opo", "length_weighted")
@formula("A = r - length-weighted mean reward of the prompt", notes=_SINGLE)
def opo(reward_N: Tensor, group_N: Tensor, length_N: Tensor, *, single: Single = "zero") -> Tensor:
    """The reward minus sum(length r) / sum(length): the baseline of least variance if gradients grow with length
    (arXiv:2505.23585).

    single: as in `group_mean`.
    """
    index_N, num_groups = segments.renumbered(group_N)
    length_N = length_N.to(reward_N.dtype)
    weighted_S = segments.total(length_N * reward_N, index_N, num_groups)
    baseline_N = (weighted_S / segments.total(length_N, index_N, num_groups).clamp(min=1))[index_N]
    distance_N = segments.centered(reward_N, index_N, num_groups).abs()
    uneven_N = segments.largest(distance_N, index_N, num_groups)[index_N] > 0
    advantage_N = torch.where(uneven_N, reward_N - baseline_N, torch.zeros_like(reward_N))
    return _keep_singles(advantage_N, reward_N, index_N, num_groups, single)


@ADVANTAGES.register("remax", "greedy_baseline")
@formula("A = r - reward of a greedy rollout of the prompt")
def remax(reward_N: Tensor, baseline_N: Tensor) -> Tensor:
    """The reward minus baseline_N, the reward of a greedy rollout of the prompt: unbiased (ReMax, arXiv:2310.10505)."""
    return reward_N - baseline_N


@ADVANTAGES.register("gpg")
@formula(
    "A = (r - mean reward of the prompt) x rollouts / rollouts with a reward that is not 0",
    notes={"single": {"keep": "; a prompt's only rollout has r instead of r - mean"}},
)
def gpg(reward_N: Tensor, group_N: Tensor, *, single: Single = "zero") -> Tensor:
    """The centred reward, scaled up for rollouts without a signal as in verl; the paper (GPG, arXiv:2504.02546) divides
    by the number of rollouts of prompts with unequal rewards instead."""
    return group_mean(reward_N, group_N, single=single) * len(reward_N) / (reward_N != 0).sum().clamp(min=1)


@ADVANTAGES.register("log_partition")
@formula("A = r - {tau} log mean exp(r / {tau}) over the prompt")
def log_partition(reward_N: Tensor, group_N: Tensor, *, tau: float = 1.0) -> Tensor:
    """The reward minus tau log Z, the exact baseline of mirror descent (Kimi k1.5, arXiv:2501.12599).

    For tau -> inf the baseline is the group mean.
    """
    index_N, num_groups = segments.renumbered(group_N)
    best_N = segments.largest(reward_N, index_N, num_groups)[index_N]
    shifted_N = reward_N - best_N
    return shifted_N - tau * segments.mean((shifted_N / tau).exp(), index_N, num_groups)[index_N].log()


@ADVANTAGES.register("gdpo", "normalize_then_sum")
@formula(
    "A = weighted sum over reward components of their {normalizer} within the prompt",
    words={"normalizer": lambda name: f"{name} (ddof {{ddof}}, eps {{eps}})" if name in _DIVIDING else name},
    notes={"component_weights": ", weights {component_weights}", **_SINGLE},
)
def gdpo(
    component_NK: Tensor,
    group_N: Tensor,
    *,
    component_weights: tuple[float, ...] | None = None,
    normalizer: Literal["group_zscore", "group_mean", "leave_one_out", "leave_one_out_std"] = "group_zscore",
    ddof: int = 1,
    eps: float = 1e-4,
    single: Single = "zero",
) -> Tensor:
    """Normalise each reward component over the group before adding them up, so that none dominates (GDPO,
    arXiv:2601.05242).

    component_weights: one per reward, in the order of the recipe, but with rewards that take verdicts last; None means
    1 for all. normalizer: the advantage taken of each component; ddof and eps are for those that divide by a std,
    single is as in `group_mean`. Usually followed by `whiten`. A reward that does not apply to a rollout (nan) adds
    nothing to its advantage.
    """
    settings = {"ddof": ddof, "eps": eps, "single": single}
    function = ADVANTAGES.get(normalizer)
    taken = {name: settings[name] for name in settings.keys() & settings_of(function)}

    def advantage_of(reward_N: Tensor) -> Tensor:
        applies_N = ~reward_N.isnan()
        advantage_N = torch.zeros_like(reward_N)
        if applies_N.any():
            advantage_N[applies_N] = function(reward_N[applies_N], group_N[applies_N], **taken)
        return advantage_N

    weights = component_weights or (1.0,) * component_NK.shape[1]
    columns = zip(weights, component_NK.unbind(1), strict=True)
    return torch.stack([weight * advantage_of(reward_N) for weight, reward_N in columns]).sum(0)


def _divided(value_N: Tensor, divisor_N: Tensor) -> Tensor:
    """Return value / divisor, and the value itself where the divisor is 0: without spread and eps, 0 / 0 would be
    nan."""
    return value_N / torch.where(divisor_N > 0, divisor_N, torch.ones_like(divisor_N))


def _others_are_equal(reward_N: Tensor, index_N: Tensor, num_groups: int) -> Tensor:
    """Tell for each rollout whether the other rewards of its group are equal, up to the rounding of float32."""
    largest_N, smallest_N = (sign * _largest_other(sign * reward_N, index_N, num_groups) for sign in (1, -1))
    return largest_N - smallest_N <= 1e-6 * segments.largest(reward_N.abs(), index_N, num_groups)[index_N]


def _largest_other(value_N: Tensor, index_N: Tensor, num_groups: int) -> Tensor:
    """Return for each entry the largest value of the others of its group, -inf if there are none."""
    largest_N = segments.largest(value_N, index_N, num_groups)[index_N]
    is_largest_N = value_N == largest_N
    second_N = segments.largest(value_N.masked_fill(is_largest_N, -torch.inf), index_N, num_groups)[index_N]
    is_alone_N = is_largest_N & (segments.total(is_largest_N.long(), index_N, num_groups)[index_N] == 1)
    return torch.where(is_alone_N, second_N, largest_N)


def _batch_deviation(reward_N: Tensor, ddof: int) -> Tensor:
    """Return the std of all rewards, repeated for each rollout."""
    whole_N = torch.zeros_like(reward_N, dtype=torch.long)
    return segments.deviation(segments.centered(reward_N, whole_N, 1), whole_N, 1, ddof=ddof)[whole_N]


def _keep_singles(advantage_N: Tensor, reward_N: Tensor, index_N: Tensor, num_groups: int, single: Single) -> Tensor:
    if single != "keep":
        return advantage_N
    return torch.where(segments.count(index_N, num_groups)[index_N] == 1, reward_N, advantage_N)
