"""The schema of a recipe: one frozen pydantic model a section; unknown keys are errors.

Components (data sources, rewards, objective components) are named here and carry their settings as a mapping; what they
accept is read from their own signatures, so nothing is declared twice. Derived numbers are properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "should be a number")
    return value


Int = Annotated[int, BeforeValidator(_no_bool)]
Float = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]
Positive = Annotated[Int, Field(gt=0)]
Count = Annotated[Int, Field(ge=0)]
Rate = Annotated[Float, Field(ge=0)]
Decay = Annotated[Float, Field(ge=0, lt=1)]
Share = Annotated[Float, Field(gt=0, le=1)]
Part = Annotated[Float, Field(ge=0, le=1)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


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


class RolloutSection(Section):
    prompts_per_step: Positive = 32
    samples_per_prompt: Positive = 8
    max_prompt_tokens: Positive = 256
    max_response_tokens: Positive = 96
    min_response_tokens: Count = 0
    """So many tokens from the first on are no end tokens."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """A response ends where its text holds one of these."""
    partial_rollout_tokens: Count = 0
    """Partial rollouts: a response that has drawn so many tokens in a step goes on in the next, under the weights of
    then; 0: each ends in the step that it began in."""
    thinking_budget: Count = 0
    """After so many tokens without </think> it is forced in, and the answer begins; 0: off."""
    temperature: Rate = 1.0
    top_k: Count = 0
    """0: off."""
    top_p: Share = 1.0
    min_p: Part = 0.0
    """Tokens less likely than this times the likeliest are never drawn; 0: off."""
    engine: dict[str, Any] = Field(default_factory=lambda: {"name": "native"})
    """{name: native | vllm, ...settings of that engine}: `rollout.engines` lists them with their settings."""

    @property
    def rollouts_per_step(self) -> int:
        return self.prompts_per_step * self.samples_per_prompt

    @model_validator(mode="after")
    def a_response_may_end(self) -> RolloutSection:
        if self.min_response_tokens >= self.max_response_tokens:
            raise ValueError(
                f"min_response_tokens = {self.min_response_tokens}: no response could end within "
                f"rollout.max_response_tokens = {self.max_response_tokens}; make it smaller"
            )
        if self.thinking_budget >= self.max_response_tokens:
            raise ValueError(
                f"thinking_budget = {self.thinking_budget}: it leaves no room for an answer within "
                f"rollout.max_response_tokens = {self.max_response_tokens}; make it smaller"
            )
        return self

    @model_validator(mode="after")
    def training_needs_a_distribution(self) -> RolloutSection:
        if self.temperature == 0:
            raise ValueError("temperature = 0: every response would be the same; training needs more, such as 1.0")
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


class EvaluateSection(Section):
    problems: Positive = 200
    samples_per_prompt: Positive = 8
    k: Positive = 8
    """pass@k and maj@k; at most `samples_per_prompt`."""
    temperature: Annotated[Float, Field(gt=0)] = 1.0
    top_p: Share = 1.0
    every: Count = 25
    """Also during RL, each so many steps; 0: only before and after each stage."""

    @model_validator(mode="after")
    def k_fits(self) -> EvaluateSection:
        if self.k > self.samples_per_prompt:
            raise ValueError(
                f"k = {self.k}: pass@k needs at least that many samples, "
                f"got evaluate.samples_per_prompt = {self.samples_per_prompt}"
            )
        return self


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
    """Between sft and rl: right responses are sampled, chosen and taught (settings: `loop.rejection`'s
    RejectionSettings). null: no such stage."""
    train: TrainSection = TrainSection()
    rewards: dict[str, dict[str, Any]] = Field(default_factory=lambda: {"math_answer": {}})
    evaluate: EvaluateSection = EvaluateSection()
    save: SaveSection = SaveSection()

    @property
    def run_dir(self) -> Path:
        return Path(self.out) / self.name

    @property
    def stages(self) -> tuple[str, ...]:
        """The pipeline, in order."""
        return (
            "problems",
            "model",
            *(("sft",) if self.data.sft is not None and self.sft.steps else ()),
            *(("rejection",) if self.rejection is not None else ()),
            *(("rl",) if self.train.steps else ()),
        )


def count_keys(section: type[BaseModel]) -> int:
    """Leaf keys of a section and its subsections: the size of what a user has to know."""
    total = 0
    for info in section.model_fields.values():
        kind = info.annotation
        total += count_keys(kind) if isinstance(kind, type) and issubclass(kind, BaseModel) else 1
    return total


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
