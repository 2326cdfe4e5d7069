"""The schema of a recipe: one frozen pydantic model a section; unknown keys are errors.

Components (data sources, rewards, objective components) are named here and carry their settings as a mapping; what they
accept is read from their own signatures, so nothing is declared twice. Derived numbers are properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from ansatz.config.fields import Count, Float, Positive, Rate, Section
from ansatz.config.sampling import SamplingOptions

STAGES = ("problems", "model", "sft", "rejection", "rl")
"""Every stage that a run can have, in order. Each is a module `loop.stages.<name>`."""


class ModelSection(Section):
    path: str | None = None
    """A Hugging Face folder; null builds `tiny` from nothing."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute type. auto: bfloat16 where the device does it natively, else float32. Master weights stay float32."""
    tiny: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Settings of `models.tiny.build_tiny_model`, used when path is null: vocab_size, hidden_size, num_layers ..."""
    toy: bool | tuple[str, ...] = False
    """true: a toy run of the recipe (see `config.toy`): the architecture of path with random weights, little work.
    In a run's own config: what that changed."""
    lora: dict[str, Any] | None = None
    """Train low-rank adapters alone (settings: `models.lora.add_adapters`); null: every weight."""
    checkpointing: bool = False
    """A layer's activations are computed again in the backward pass: less memory, more time, the same numbers."""
    compile: bool = False
    """The update's layers by torch.compile."""

    @property
    def built(self) -> bool:
        """Whether the model is built with random weights, rather than loaded from path."""
        return self.path is None or bool(self.toy)


class DataSection(Section):
    """Each of sft, train and heldout: {source: NAME, ...settings of that source}. sft null: no SFT stage."""

    template: str = "tiny"
    sft: dict[str, Any] | None = None
    train: dict[str, Any]
    heldout: dict[str, Any]
    curriculum: dict[str, Any] | None = None
    """RL takes problems by what came of them before (settings: `data.curriculum.CurriculumSettings`), and may sample
    further ones for those without a signal. null: epoch after epoch."""


class RolloutSection(SamplingOptions):
    prompts_per_step: Positive = 32
    max_prompt_tokens: Positive = 256
    max_response_tokens: Positive = 96
    """Longest response in tokens, end token included."""
    partial_rollout_tokens: Count = 0
    """Partial rollouts: a response that has not ended after N tokens is paused, and the next step resumes it with the
    new weights. 0: every response ends in the step in which it began."""
    engine: dict[str, Any] = Field(default_factory=lambda: {"name": "native"})
    """{name: native | vllm, ...settings of that engine}: `rollout.engines` lists them with their settings."""

    @property
    def rollouts_per_step(self) -> int:
        return self.prompts_per_step * self.samples_per_prompt

    @model_validator(mode="after")
    def temperature_fits(self) -> RolloutSection:
        if self.temperature == 0:
            raise ValueError(
                "temperature = 0 makes every response identical, so there is nothing to learn from; "
                "use a value above 0, such as 1.0"
            )
        return self


class TrainSection(Section):
    steps: Count = 100
    lr: Rate = 1e-4
    warmup_steps: Count = 5
    decay_steps: Count = 0
    """Over the last so many steps the rate falls to 0."""
    updates_per_step: Positive = 1
    """The step's prompts are dealt into this many minibatches; one optimiser step on each."""
    epochs_per_step: Positive = 1
    """How often the step's rollouts are gone through."""
    tokens_per_microbatch: Positive = 16384
    """Bounds memory and changes no number."""
    optimizer: dict[str, Any] = Field(default_factory=lambda: {"name": "adamw"})
    """{name: adamw | adamw_8bit | adamw_offload, betas, weight_decay}: `train.optimizers`; also of SFT and critic."""
    max_grad_norm: Rate = 1.0
    """0: no clipping."""
    critic_lr: Rate = 1e-3
    """Of the critic, for algorithms that have one."""
    reference_update_interval: Count = 0
    """Each so many steps the reference of the KL becomes the policy (iterative GRPO); 0: it stays the stage's start."""
    max_logprob_gap: Annotated[float, Field(ge=1)] = 1.05
    """The first step is refused when exp(mean |behavior_logp - old_logp|) is over this."""

    @property
    def optimizer_steps_per_step(self) -> int:
        return self.updates_per_step * self.epochs_per_step


class SftSection(Section):
    """Slices, optimizer and gradient clipping are those of `train`."""

    steps: Count = 350
    batch_size: Positive = 64
    lr: Rate = 2e-3
    warmup_steps: Count = 20
    decay_steps: Count = 0
    """Over the last so many steps the rate falls to 0."""


class EvaluateSection(SamplingOptions):
    """Sampling options that the recipe leaves out: the defaults below, and for the form of a response (`AS_ROLLOUT`)
    the values of `rollout`."""

    AS_ROLLOUT: ClassVar = ("max_response_tokens", "min_response_tokens", "stop", "thinking_budget", "closing")

    problems: Positive = 200
    k: Positive = 8
    """pass@k and maj@k; at most `samples_per_prompt`."""
    temperature: Annotated[Float, Field(gt=0)] = 1.0
    """Divides the logits. Each problem also gets one response at temperature 0."""
    every: Count = 25
    """Also evaluate during RL, every N steps; 0: only before and after each stage."""

    @model_validator(mode="after")
    def k_fits(self) -> EvaluateSection:
        if self.k > self.samples_per_prompt:
            raise ValueError(
                f"k = {self.k}: pass@k needs at least that many samples, "
                f"got evaluate.samples_per_prompt = {self.samples_per_prompt}"
            )
        return self

    def completed(self, rollout: RolloutSection) -> EvaluateSection:
        """The section with the form of a response as in `rollout`, where the recipe does not give another."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return EvaluateSection(**{name: getattr(rollout, name) for name in self.AS_ROLLOUT} | given)


class SaveSection(Section):
    every: Positive = 25
    keep: Positive = 2
    """Newest checkpoints that stay; a stage's last one always does."""
    samples: bool = True
    """Rollouts of every step as JSONL."""
    tensorboard: bool = True


class Config(Section):
    """A whole recipe."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
    """The run folder's name: letters, digits, _ - and dots, none of the last two first."""
    seed: Count = 0
    out: str = "runs"
    """Folder that holds run folders; the run is out/name."""
    threads: Count = 0
    """CPU threads of torch; 0: as many as there are cores. Bit-identical repetition needs the same number."""
    grader_workers: Positive = 1
    data: DataSection
    model: ModelSection = ModelSection()
    sft: SftSection = SftSection()
    rollout: RolloutSection = RolloutSection()
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"preset": "grpo"})
    """A preset row and what of it is replaced: `objectives.presets.KEYS` lists what may stand here."""
    rejection: dict[str, Any] | None = None
    """Between sft and rl: right responses are sampled, chosen and taught (settings: `loop.stages.rejection`'s
    RejectionSettings). null: no such stage."""
    train: TrainSection = TrainSection()
    rewards: dict[str, dict[str, Any]] = Field(default_factory=lambda: {"math_answer": {}})
    evaluate: EvaluateSection = EvaluateSection()
    save: SaveSection = SaveSection()

    @model_validator(mode="after")
    def evaluate_is_complete(self) -> Config:
        """A resolved config says everything, so `evaluate` gets the values that it takes from `rollout`."""
        try:
            evaluate = self.evaluate.completed(self.rollout)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"evaluate.{message} (what evaluate leaves out is as in rollout)") from error
        object.__setattr__(self, "evaluate", evaluate)
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.out) / self.name

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of this recipe, in order. A stage without steps or without its section is left out."""
        used = {
            "sft": self.data.sft is not None and self.sft.steps > 0,
            "rejection": self.rejection is not None,
            "rl": self.train.steps > 0,
        }
        return tuple(name for name in STAGES if used.get(name, True))


def count_keys(section: type[BaseModel]) -> int:
    """Leaf keys of a section and its subsections: the size of what a user has to know.

    A sampling option means the same in every section that takes it, so it counts once.
    """
    own, shared = _leaf_keys(section)
    return own + len(shared)


def _leaf_keys(section: type[BaseModel]) -> tuple[int, set[str]]:
    """How many keys the section and its subsections have apart from sampling options, and the names of those."""
    shared = set(SamplingOptions.model_fields) if issubclass(section, SamplingOptions) else set[str]()
    own = 0
    for name, info in section.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            further, also_shared = _leaf_keys(kind)
            own, shared = own + further, shared | also_shared
        else:
            own += name not in shared
    return own, shared


def flat_keys(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train.lr": 1e-4, ...}: a resolved config by dotted name."""
    out: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            out |= flat_keys(value, f"{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            out[name] = value
    return out
