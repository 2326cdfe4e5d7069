"""TrainSample: one rollout or demonstration as the trainer takes it, before it joins a batch.

Fields that come from a `Rollout` keep their names. `StepTokens` finds the tokens of a response at which reasoning steps
end: rewards know steps by characters, training knows them by tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ansatz.prompts.render import Demonstration
from ansatz.types import Group, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSample:
    """A response, the log-probs of the policy that sampled it, and its reward.

    token_ids: the response. behavior_logps: the sampler's log-prob of each token (nats).
    num_candidates: number of tokens that were left to sample from after top-k, top-p and min-p, for each response
    token; empty if it was always the whole vocabulary.
    min_response_tokens: end-of-sequence tokens were masked out for the first N response tokens.
    sampled_mask: False where a token was forced (the end of a thought, a tool's output) or is not the assistant's, and
    so is not taught; empty if all are.
    versions: the policy version that sampled each token; empty if that was not recorded, which counts as the policy
    that is to be updated.
    group: a number that the samples of one prompt share. truncated: the response did not come to its own end.
    components: `Score.parts` without the names: the unweighted rewards in the order of the recipe, but with rewards
    that take verdicts at the end; nan for one that does not apply.
    steps: (index of the response token that ends a reasoning step, the step's reward). Without steps, the whole
    response is one step with the whole reward.
    Example: `TrainSample(prompt_ids=[5], token_ids=[7, 2], behavior_logps=[-0.1, -0.2], group=0, reward=1.0)`.
    """

    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    behavior_logps: Sequence[float]
    group: int
    reward: float
    num_candidates: Sequence[int] = ()
    min_response_tokens: int = 0
    sampled_mask: Sequence[bool] = ()
    versions: Sequence[int] = ()
    truncated: bool = False
    components: Sequence[float] = ()
    steps: Sequence[tuple[int, float]] = ()

    @classmethod
    def from_rollout(
        cls,
        rollout: Rollout,
        *,
        group: int,
        reward: float,
        components: Sequence[float] = (),
        steps: Sequence[tuple[int, float]] = (),
    ) -> TrainSample:
        return cls(
            prompt_ids=rollout.prompt.token_ids,
            token_ids=rollout.token_ids,
            behavior_logps=rollout.behavior_logps,
            group=group,
            reward=reward,
            num_candidates=rollout.num_candidates,
            min_response_tokens=rollout.min_response_tokens,
            sampled_mask=rollout.sampled_mask,
            versions=rollout.token_versions,
            truncated=rollout.truncated,
            components=components,
            steps=steps,
        )

    @classmethod
    def from_demonstration(cls, demonstration: Demonstration, *, group: int, reward: float = 1.0) -> TrainSample:
        """Make a sample of a response to learn from. Nobody sampled it, so its behaviour log-probs are 0."""
        return cls(
            prompt_ids=demonstration.prompt.token_ids,
            token_ids=demonstration.response_ids,
            behavior_logps=[0.0] * len(demonstration.response_ids),
            sampled_mask=demonstration.assistant_mask,
            group=group,
            reward=reward,
        )


def samples_of_groups(groups: Sequence[Group], step_tokens: StepTokens | None = None) -> list[TrainSample]:
    """Return a sample of every scored rollout that a reward applies to; its `group` is the group's index in `groups`.

    step_tokens: finds the last token of each rewarded step; None: every response counts as a single step.
    """
    return [
        TrainSample.from_rollout(
            member.rollout,
            group=index,
            reward=member.score.value,
            components=tuple(member.score.parts.values()),
            steps=() if step_tokens is None else step_tokens(member.rollout, member.score.steps),
        )
        for index, group in enumerate(groups)
        for member in group.learned
    ]


Decode = Callable[[Sequence[int]], str]
"""Returns the text of tokens, without special ones. It must be the function that made `Rollout.text`."""


class StepTokens:
    """Turns (end in characters, reward) into (index of the token that ends the step, reward).

    The lengths of single tokens are kept, because most texts are their tokens' texts one after the other. For other
    texts, such as one with a character of several tokens, prefixes are decoded.
    Example: `StepTokens(special_tokens(tokenizer).read).find_ends(rollout)`.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._length: dict[int, int] = {}

    def __call__(self, rollout: Rollout, steps: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
        """Return the steps by token. A step ends at the first token that completes the step's text. The last step
        ends at the last token of the response, so that an end token belongs to it. Rewards of steps that end at the
        same token are added."""
        if not steps:
            return []
        rewards = dict[int, float]()
        upto = self.find_ends(rollout)
        for end, reward in steps:
            index = min(bisect_left(upto, end), rollout.num_tokens - 1)
            index = rollout.num_tokens - 1 if end >= len(rollout.text) else index
            rewards[index] = rewards.get(index, 0.0) + reward
        return sorted(rewards.items())

    def find_ends(self, rollout: Rollout) -> list[int]:
        """Return the number of characters of the text up to the end of each token."""
        for token in rollout.token_ids:
            if token not in self._length:
                self._length[token] = len(self._decode([token]))
        upto = list(accumulate(self._length[token] for token in rollout.token_ids))
        if upto and upto[-1] != len(rollout.text):
            upto = [len(self._decode(rollout.token_ids[: count + 1])) for count in range(rollout.num_tokens)]
            upto = list(accumulate(upto, max))  # rising: half a character can have a longer text than all
        return upto
