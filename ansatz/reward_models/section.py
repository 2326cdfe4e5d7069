"""The training of a reward model on responses with labels, as a stage of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ansatz.config.fields import Count, FractionBelowOne, Int, LearningRate, Positive, Rate, StepEnd
from ansatz.config.sampling import AsRollout, SamplingOptions
from ansatz.config.schema import REWARD_MODEL
from ansatz.config.stage import StageDeclaration, is_missing
from ansatz.config.stages.core import UPDATES

PROCESS_ONLY = ("step_end", "labels", "step_rollouts", "slips")
SAMPLED_ONLY = ("labels", "step_rollouts")


class RewardModelSection(AsRollout):
    """Train a reward model with the architecture of the policy on graded responses of the policy, or on given ones.
    Sampling options that are not given are as in `rollout`, except the number of samples. The optimizer, the clipping
    of gradients and the microbatches are taken from `train`. When `stages` lists the stage again, the model of the
    round before is trained on with responses of the newest policy."""

    AS_ROLLOUT: ClassVar = tuple(name for name in SamplingOptions.model_fields if name != "samples_per_prompt")

    kind: Literal["bradley_terry", "correctness", "process"] = "bradley_terry"
    """The goal of the model. bradley_terry: to score each correct response above each wrong one to the same problem.
    correctness: the probability that a response is correct. process: the probability of each reasoning step that it is
    right. The first two are sequence classifiers, process is a token classifier."""
    path: str | None = None
    """The model that training starts from: a folder or a model of the hub, with the vocabulary of the policy. null: the
    policy, or in later rounds the reward model of the round before."""
    extra_layers: Count = 2
    """Decoder layers that are added to a policy that becomes a reward model. Only they, the last norm and the score
    head are trained (LLaMA Pro, arXiv:2401.02415). If training starts from a reward model, its last layers are trained.
    They compare the token that the policy expected with the one that was written. 0: all layers are trained, or with
    `model.lora` their adapters. Default with `model.path`: 0."""
    extra_width: Annotated[Int, Field(ge=2)] = 64
    """Channels that are added to the residual stream with these layers. Half of them keep the token that was read,
    which the layers of a small policy hide; to the others the new layers write."""
    data: dict[str, Any] | None = None
    """The data of the model instead of responses of the policy: {source: file, path: ...} or {source: hub,
    dataset: ...}, with the settings of [preference.pairs](settings_preference.md). For bradley_terry pairs
    of a chosen and a rejected response, for correctness responses with a label, for process responses with a label for
    each step ([shapes](reward_models.md#given-data)). null: responses of the policy."""
    heldout_data: dict[str, Any] | None = None
    """Rows of the same kind that the finished model is measured on. null: none."""
    step_end: StepEnd = "line"
    """Where a reasoning step ends, together with the line ends after it; only for process. line, or blank_line: steps
    are paragraphs. sentence: at a full stop, question mark or exclamation mark before a space, and at the end of a
    line; abbreviations are not known. {marker: TEXT}: right after this text, which is a part of the step."""
    labels: Literal["exact", "hard", "soft"] = "exact"
    """The source of the labels of steps; only for process. exact: the generator's own steps (source word_problems).
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
    lr: LearningRate = 1e-3
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-5."""
    warmup_steps: Count = 10
    """Steps of linear warm-up, from a learning rate near 0."""
    decay_steps: Count = 0
    """Steps of decay at the end, as `train.decay` says; 0: no decay."""
    lm_coef: Rate = 0.0
    """Weight of the language-modelling loss of correct responses, next to the loss of the labels (arXiv:2110.14168,
    sec. 4.2). It needs `extra_layers: 0`, because otherwise the policy's layers do not change. 0: none."""
    replay: FractionBelowOne = 0.1
    """In later rounds, the fraction of the problems that comes with its responses from earlier rounds."""
    heldout_problems: Count = 100
    """Problems of data.heldout, from the first on. The finished model is evaluated on the policy's responses to them.
    0: none."""
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
                if self._is_set(name):
                    raise ValueError(f"{name} has no effect with kind: {self.kind}; remove it, or set kind: process")
        elif self.data is None and self.labels == "exact" and self._is_set("step_rollouts"):
            raise ValueError("step_rollouts has no effect with labels: exact; remove it, or set labels: hard")
        if self.data is not None:
            for name in SAMPLED_ONLY:
                if self._is_set(name):
                    raise ValueError(f"{name} has no effect with data, whose labels are given; remove it, or data")
        if self.step_end != "line":
            if self.data is None and self.kind == "process" and self.labels == "exact":
                raise ValueError(
                    f"step_end = {self.step_end!r} with labels: exact, which are of lines; set step_end: line, labels: "
                    "hard, or data"
                )
            if self.slips is not None:
                raise ValueError(f"step_end = {self.step_end!r} with slips, which are in lines; remove one of the two")
        return self

    def _is_set(self, name: str) -> bool:
        """Tell whether a key has another value than its default."""
        return getattr(self, name) != type(self).model_fields[name].default


def _toy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the replacements of given rows that are on the hub or in missing files."""
    missing = [key for key in ("data", "heldout_data") if settings.get(key) and is_missing(settings[key])]
    return dict.fromkeys(missing) | ({"step_end": "line"} if "data" in missing else {})


def _learns_from_given(settings: Mapping[str, Any]) -> bool:
    return settings.get("data") is not None


DECLARATION = StageDeclaration(
    name=REWARD_MODEL,
    runs="ansatz.reward_models.stage:RewardModelStage",
    section=RewardModelSection,
    caps={
        "problems": 16,
        "samples_per_prompt": 4,
        "steps": 3,
        "batch_size": 4,
        "warmup_steps": 1,
        "decay_steps": 1,
        "heldout_problems": 4,
        "heldout_samples": 4,
    },
    toy=_toy,
    own_model={"lr": 1e-5, "extra_layers": 0},
    models=("path",),
    learns_from_given=_learns_from_given,
    reads=("data.train", "data.template", "rollout", "rewards", *UPDATES),
)
