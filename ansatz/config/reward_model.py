"""The `reward_model` section of a recipe: the stage that trains a reward model on responses of the policy."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ansatz.config.fields import Count, FractionBelowOne, Int, Positive, Rate
from ansatz.config.sampling import SamplingOptions

PROCESS_ONLY = ("labels", "step_rollouts", "slips")


class RewardModelSection(SamplingOptions):
    """Train a reward model with the architecture of the policy on graded responses of the policy. Sampling options that
    are not given are as in `rollout`, except the number of samples. The optimizer, the clipping of gradients and the
    microbatches are those of `train`. When `stages` lists the stage again, the model of the round before is trained on
    with responses of the newest policy."""

    kind: Literal["bradley_terry", "correctness", "process"] = "bradley_terry"
    """What the model learns. bradley_terry: to score each correct response above each wrong one to the same problem.
    correctness: the probability that a response is correct. process: the probability of each reasoning step (a line of
    the response) that it is right. The first two are sequence classifiers, process is a token classifier."""
    path: str | None = None
    """The model that training starts from: a folder or a model of the hub, with the vocabulary of the policy. null: the
    policy, or in later rounds the reward model of the round before."""
    extra_layers: Count = 2
    """Decoder layers that are added to a policy that becomes a reward model. Only they, the last norm and the score
    head are trained (LLaMA Pro, arXiv:2401.02415); of a reward model that training starts from, its last layers. They
    compare the token that the policy expected with the one that was written. 0: all layers are trained. Default with
    `model.path`: 0."""
    extra_width: Annotated[Int, Field(ge=2)] = 64
    """Channels that are added to the residual stream with these layers. Half of them keep the token that was read,
    which the layers of a small policy hide; to the others the new layers write."""
    labels: Literal["exact", "hard", "soft"] = "exact"
    """Where the labels of steps come from; only for process. exact: the generator's own steps (source word_problems).
    hard and soft: `step_rollouts` completions from each step (Math-Shepherd); the label of a step is whether one of
    them is correct, or the fraction of them that is."""
    step_rollouts: Positive = 8
    """Completions from each step, for the labels hard and soft."""
    problems: Count = 1000
    """Problems of data.train that are sampled, in their order; 0: all of them."""
    batch: Positive = 64
    """Problems sampled together; a kill loses at most one batch."""
    steps: Positive = 100
    """Number of optimizer steps."""
    batch_size: Positive = 32
    """Problems in one step, each with all of its responses."""
    lr: Rate = 1e-3
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-5."""
    warmup_steps: Count = 10
    """Steps over which the learning rate rises linearly from near 0."""
    decay_steps: Count = 0
    """Steps at the end over which the learning rate falls linearly to near 0; 0: no decay."""
    lm_coef: Rate = 0.0
    """Weight of the language-modelling loss of correct responses, next to the loss of the labels (arXiv:2110.14168,
    sec. 4.2). It needs `extra_layers: 0`, because otherwise the policy's layers do not change. 0: none."""
    replay: FractionBelowOne = 0.1
    """In later rounds, the fraction of the problems that comes with its responses from earlier rounds."""
    heldout_problems: Positive = 100
    """Problems of data.heldout, from the first on, that the finished model is evaluated on."""
    heldout_samples: Positive = 16
    """Responses to each of them; the curves of best-of-n and of votes end at this n."""
    slips: dict[str, Any] | None = None
    """Problems whose worked solutions contain planted slips, to measure how well a process model finds the first wrong
    step: {source: word_problems, split: heldout, slip_rate: 0.5, ...}. null: not measured."""

    @model_validator(mode="after")
    def settings_have_an_effect(self) -> RewardModelSection:
        if self.lm_coef and self.extra_layers:
            raise ValueError(
                f"lm_coef = {self.lm_coef} has no effect with extra_layers = {self.extra_layers}, because the layers "
                "that predict tokens are not trained; remove lm_coef, or set extra_layers: 0"
            )
        if self.kind != "process":
            for name in PROCESS_ONLY:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has no effect with kind: {self.kind}; remove it, or set kind: process")
        elif self.labels == "exact" and self.step_rollouts != type(self).model_fields["step_rollouts"].default:
            raise ValueError("step_rollouts has no effect with labels: exact; remove it, or set labels: hard")
        return self

    def completed(self, rollout: SamplingOptions) -> RewardModelSection:
        """The section with the sampling options of `rollout`, except the number of samples, that it does not give."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        options = {
            name: getattr(rollout, name) for name in SamplingOptions.model_fields if name != "samples_per_prompt"
        }
        return RewardModelSection(**{**options, **given})
