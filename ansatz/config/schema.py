"""The schema of a recipe: one frozen pydantic model for each section. Unknown keys are errors.

Components (data sources, rewards, components of the objective) are named here and carry their settings as a mapping.
Their signatures say which settings they accept, so nothing is declared twice. docs/config.md is generated from the
docstrings of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, model_validator

from ansatz.config.chat import Template
from ansatz.config.fields import Count, Float, LearningRate, Positive, Rate, Section, Temperature, as_mapping
from ansatz.config.sampling import AsRollout, SamplingOptions
from ansatz.config.stage import StageDeclaration, stage_name
from ansatz.config.watchdog import WatchdogSection
from ansatz.trust import require

SectionT = TypeVar("SectionT", bound=BaseModel)

FIRST_STAGES = ("problems", "model")
"""Every run begins with these, so a recipe does not list them."""
REWARD_MODEL = "reward_model"
"""The value of `train.critic.path` for the newest reward model of the run, and the name of the stage that trains it."""


class ModelSection(Section):
    """The model that training starts from."""

    path: str | None = None
    """The model: a Hugging Face folder (config.json, weights, tokenizer), a GGUF file, or a model of the hub, such as
    Qwen/Qwen2.5-1.5B-Instruct or, with a branch, tag or commit, Qwen/Qwen2.5-1.5B-Instruct@main. The config.yaml of a
    run names the commit. null: build the model of `model.tiny` with random weights."""
    dtype: Literal["auto", "float32", "bfloat16", "portable"] = "auto"
    """Type that the model computes in. auto: bfloat16 if the device multiplies it natively, otherwise float32. The
    master weights of the optimizer are float32 in either case. portable: float32 on an x86-64 CPU, restricted to AVX2,
    so that other processors can repeat the run."""
    tiny: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Sizes of the model that is built. Takes effect only if `model.path` is null."""
    toy: bool | tuple[str, ...] = False
    """true: try the recipe at toy size, in a minute on any machine. The architecture of `model.path` gets random
    weights, and numbers of steps, prompts and tokens are reduced. The config.yaml of a run lists the reductions
    here."""
    lora: dict[str, Any] | None = None
    """Train low-rank adapters with these settings instead of the weights. null: train every weight."""
    quantize: Literal["nf4"] | None = None
    """nf4: the frozen weights under the adapters are stored in 4 bits (QLoRA), which takes the package bitsandbytes and
    one training stage. null: they keep the type of `model.dtype`."""
    checkpointing: bool = False
    """Activation checkpointing: the backward pass computes the activations of each layer again instead of keeping
    them. Takes less memory and more time, and changes no number."""
    compile: bool = False
    """Run the layers through torch.compile during updates."""

    @property
    def built(self) -> bool:
        """Whether the model is built with random weights instead of loaded from `path`."""
        return self.path is None or bool(self.toy)


class DataSection(Section):
    """The problems and their form for the model. `sft`, `train` and `heldout` each name a source with its settings:
    {source: NAME, split: SPLIT, ...}."""

    template: Template = "tiny"
    """Prompt template that turns a problem into a prompt. {name: chat, system: TEXT, arguments: {...}} is
    the tokenizer's chat template with a system prompt and with arguments, such as {enable_thinking: true}. auto, the
    default with `model.path`: the template of the run if the model is a checkpoint of one, otherwise chat if the
    tokenizer has a chat template, otherwise boxed. The choice is printed, and is written to the run's config.yaml."""
    sft: dict[str, Any] | None = None
    """Problems with worked solutions, for supervised fine-tuning. null: no SFT stage."""
    train: dict[str, Any]
    """Problems of reinforcement learning and of rejection sampling."""
    heldout: dict[str, Any]
    """Problems of the evaluations, from the first on as many as `evaluate.problems` says. Several sets are {NAME:
    {source: ..., ...}, ...}, each with its own scores; they are evaluated in turns."""
    order: Literal["shuffled", "file"] = "shuffled"
    """Order of the problems and demonstrations of an epoch. shuffled: a random one for each epoch. file: as in the
    source, in every epoch; it excludes `data.curriculum`."""
    unfit: Literal["error", "drop"] = "error"
    """Rows that cannot be used, because a field is missing, a gold answer cannot be read, or a prompt or demonstration
    is too long. error: the run stops and lists them. drop: they are left out, and the run's report lists them."""
    curriculum: dict[str, Any] | None = None
    """Choose the problems of each RL step by the outcomes so far, and optionally replace groups without signal
    (dynamic sampling). null: every problem once per epoch, in random order."""

    @model_validator(mode="before")
    @classmethod
    def heldout_sets_are_parts(cls, data: Any) -> Any:
        """Read several held-out sets as a mixture that takes each of them as a whole."""
        sets = as_mapping(as_mapping(data).get("heldout"))
        if not sets or "source" in sets or not all(isinstance(each, Mapping) for each in sets.values()):
            return data
        for name, each in sets.items():
            if "source" not in each:
                raise ValueError(f"heldout.{name}.source is missing; name it, as in {{source: jsonl, path: FILE}}")
        parts = [{"split": "heldout", **each, "name": name} for name, each in sets.items()]
        return {**data, "heldout": {"source": "mixture", "split": "heldout", "whole": True, "parts": parts}}


class RolloutSection(SamplingOptions):
    """The sampling of responses in RL."""

    prompts_per_step: Annotated[Positive, Field(le=1_000_000)] = 32
    """Problems in one RL step, at most 1,000,000. A step makes prompts_per_step x samples_per_prompt rollouts."""
    max_prompt_tokens: Positive = 256
    """Longest prompt in tokens. A problem with a longer one is refused before training. Default with `model.path`:
    1024."""
    max_response_tokens: Positive = 96
    """Longest response in tokens, end token included. With `model.path` there is no default, except 2048 for recipes
    that learn from given responses only."""
    partial_rollout_tokens: Count = 0
    """Partial rollouts: a response that has not ended after N tokens is paused, and the next step resumes it with the
    new weights. 0: every response ends in the step that began it."""
    lag: Count = 0
    """Largest age, in steps, of the weights that sample a step, compared with the weights that it updates. With
    workers, the rollouts of the next N steps are sampled while a step is updated. 0: both weights are the same. 1 or
    more needs `algorithm.correction: truncate`. More than 8 is refused, because training gets worse then, whatever the
    correction."""
    engine: dict[str, Any] = Field(default_factory=lambda: {"name": "native"})
    """The engine that samples, with its settings: {name: native} or {name: vllm, ...}."""

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


class CriticSection(Section):
    """The critic of objectives that use one, such as ppo. Without a critic, no key here takes effect."""

    path: str | None = None
    """The model that the critic's transformer starts from: a folder or a model of the hub, with the vocabulary of the
    policy, or `reward_model`: the newest reward model of the run. If this has extra layers, only they, the last norm
    and the value head are trained. null: the policy at the start of RL. The value head starts at 0."""
    lr: LearningRate = 1e-3
    """Learning rate of the critic, with the schedule of `train.lr`. Default with `model.path`: 1e-5."""
    steps_alone: Count = 0
    """RL steps at the start that update only the critic, so that the policy does not follow an untrained one. The
    policy's warm-up begins after them."""


class ScheduleSection(Section):
    """The keys of every section whose stage trains: the number of steps, and the learning rate of each."""

    steps: Count
    lr: LearningRate
    warmup_steps: Count
    decay_steps: Count


class DecaySection(Section):
    """The fall of the learning rate over the `decay_steps` of a stage, of RL and of every other."""

    shape: Literal["linear", "cosine"] = "linear"
    """linear, or cosine: half a period of a cosine."""
    floor: Annotated[Float, Field(ge=0, lt=1)] = 0.0
    """The fraction of the learning rate that it falls to."""


class TrainSection(ScheduleSection):
    """The updates of RL. SFT uses the optimizer, `max_grad_norm` and `tokens_per_microbatch` as well."""

    steps: Count = 100
    """Number of RL steps. 0: no RL stage."""
    lr: LearningRate = 1e-4
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-6."""
    warmup_steps: Count = 5
    """Steps of linear warm-up, from a learning rate near 0."""
    decay_steps: Count = 0
    """Steps of decay at the end, as `train.decay` says; 0: no decay."""
    decay: DecaySection = DecaySection()
    updates_per_step: Positive = 1
    """Minibatches that the prompts of a step are divided into, with one optimizer step on each."""
    epochs_per_step: Positive = 1
    """Number of times that the rollouts of a step are used. Each epoch after the first deals the prompts into
    minibatches in another order. A step makes updates_per_step x epochs_per_step optimizer steps."""
    tokens_per_microbatch: Positive = 16384
    """The largest number of tokens, prompts included, in one forward and backward pass. On a CPU, several microbatches
    can run in parallel: with a small model, each has this limit; with a larger one, they share it. The limit bounds the
    memory and changes no result beyond rounding."""
    optimizer: dict[str, Any] = Field(default_factory=lambda: {"name": "adamw"})
    """The optimizer with its settings: {name: adamw, betas: [0.9, 0.99]}. Also used by SFT and for the critic."""
    max_grad_norm: Rate = 1.0
    """The gradient is scaled down to this norm if it is larger; 0: never."""
    critic: CriticSection = CriticSection()
    reference_update_interval: Count = 0
    """Every N steps the current policy becomes the reference of the KL term (iterative GRPO). 0: the reference stays
    the policy that the stage began with."""
    max_logprob_gap: Annotated[Float, Field(ge=1)] = 1.05
    """Largest allowed mean over tokens of exp(|behavior_logp - old_logp|), which compares sampler and trainer. Every
    step checks it before its first update, and stops the run if they disagree by more. 1: they must agree exactly."""

    @property
    def optimizer_steps_per_step(self) -> int:
        return self.updates_per_step * self.epochs_per_step


class EvaluateSection(AsRollout):
    """Held-out evaluation: `samples_per_prompt` responses and one greedy response to each problem. Options for the form
    of a response (max_response_tokens, min_response_tokens, stop, thinking_budget, closing) are as in `rollout` unless
    they are given here. The other sampling options use the defaults below."""

    AS_ROLLOUT: ClassVar = ("max_response_tokens", "min_response_tokens", "stop", "thinking_budget", "closing")

    problems: Positive = 200
    """Number of problems, from the first of `data.heldout` on."""
    k: Positive = 8
    """The k of pass@k and maj@k, at most `evaluate.samples_per_prompt`."""
    temperature: Annotated[Temperature, Field(gt=0)] = 1.0
    """Divides the logits. Each problem also gets one response at temperature 0."""
    every: Count = 25
    """Also evaluate during RL, every N steps; 0: only before and after each stage."""
    template: Template | None = None
    """Prompt template of evaluations, as `data.template`. null: the template of training."""
    rewards: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """Rewards whose means are measured on held-out problems only, as in `rewards`; they do not train."""

    @model_validator(mode="after")
    def k_fits(self) -> EvaluateSection:
        if self.k > self.samples_per_prompt:
            raise ValueError(
                f"k = {self.k}: pass@k needs at least that many samples, "
                f"got evaluate.samples_per_prompt = {self.samples_per_prompt}"
            )
        return self


class SaveSection(Section):
    """The files that a run writes besides its metrics."""

    every: Positive = 25
    """Write a checkpoint every N steps of SFT and of RL. The last step of a stage always gets one."""
    keep: Positive = 2
    """Newest checkpoints of a stage that are kept. `save.best` and rollbacks of the watchdog keep others besides."""
    best: bool | str = True
    """Also keep the checkpoint with the best held-out pass@1 (mean over samples), and write one after every evaluation
    of RL that is better than all before it. `ansatz export --best` exports it. The name of a held-out set, or of a
    source of a mixture: only its problems decide."""
    optimizer: Literal["all", "last", "unfinished"] = "all"
    """Checkpoints that keep the state for resuming a stage: optimizer state, critic and reference. all: every one.
    last: the newest of each stage, and the ones that a rollback may return to. unfinished: the same, and none of a
    finished stage; a finished run keeps its models alone, without float32 master weights, and cannot be extended."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights in the model folder of a checkpoint. auto: the precision of the model that the run
    starts from. Below float32, the checkpoint holds the float32 master weights too, in its subfolder training/; a
    resumed run and the next stage use these."""
    grace: Annotated[Float, Field(ge=0)] = 30.0
    """Seconds that a step may still take when a signal asks the run to stop. After that the step is dropped, and the
    state before it is saved, unless the weights are already changing."""
    samples: bool = True
    """Write the rollouts of every RL step as JSON lines, to rl/samples, and the responses of every evaluation, to
    STAGE/evaluations."""
    samples_keep: Count = 1000
    """Newest steps whose rollouts are kept; 0: all."""
    tensorboard: bool = True
    """Write the metrics as TensorBoard events too."""


class ClusterSection(Section):
    """Worker processes that sample rollouts for RL, with Ray (the extra `ray`). No key of this section
    changes a result, and all of them may differ when a run is resumed. Times are in seconds."""

    workers: Annotated[Count, Field(le=4096)] = 0
    """Processes that sample, each with its own model. They sample the next steps while a step is updated if
    `rollout.lag` is 1 or more. 0: everything runs in one process."""
    threads: Annotated[Positive, Field(le=1024)] = 1
    """CPU threads of each worker."""
    gpus: Annotated[Float, Field(ge=0)] = 0.0
    """GPUs that Ray reserves for each worker."""
    min_workers: Annotated[Count, Field(le=4096)] = 0
    """The run starts if the cluster can hold this many workers, and stops when fewer are left; the others start as
    soon as there is room. A worker that dies is replaced, at most five times in an hour. 0: there must be room for all
    at the start, and later for at least one."""
    trainers: Annotated[Count, Field(le=4096)] = 0
    """Ranks that train together in processes of their own, with the weights sharded over them. Their number changes a
    result only by rounding; the same number gives the same bits. 0: training runs in the run's own process."""
    min_trainers: Annotated[Count, Field(le=4096)] = 0
    """The smallest number of ranks to train on when there is no room for all, for example after a node is lost. 0: as
    many as `trainers`, so that the bits of a run stay the same."""
    shard_size: Annotated[Count, Field(le=4096)] = 0
    """Ranks that share one copy of the weights (hybrid sharding). Each group of this many ranks holds its own copy, and
    the groups only add up their gradients: less traffic between nodes, more memory. 0: one copy, sharded over all
    ranks. The same happens if this does not divide the number of ranks that are left after a loss."""
    trainer_threads: Annotated[Positive, Field(le=1024)] = 1
    """CPU threads of each rank."""
    trainer_gpus: Annotated[Float, Field(ge=0)] = 0.0
    """GPUs that Ray reserves for each rank."""
    address: str = ""
    """Address of a Ray cluster that runs already, such as auto or 10.0.0.1:6379. Empty: start one on this machine."""
    lease: Annotated[Float, Field(gt=0)] = 60.0
    """Least time for a worker to sample a group before another worker gets it. Once 20 groups have landed, the limit is
    four times the 99th percentile of their times if that is longer; before that, five sixths of `stall`."""
    start: Annotated[Float, Field(gt=0)] = 300.0
    """Time for a worker to start, and to load weights. A probe of its health must generate a few tokens within a
    thirtieth of this."""
    stall: Annotated[Float, Field(gt=0)] = 600.0
    """If workers sample nothing and no step ends for this long, the run prints who waits for whom, with all stacks.
    After twice this time it saves if possible, and ends. Five sixths of it limit one call of a trainer's ranks, such as
    the update of a step, before they start again from the last checkpoint. The run also waits that long for nodes if
    some have left and fewer than min_workers fit."""

    @model_validator(mode="after")
    def times_nest(self) -> ClusterSection:
        for shorter in ("lease", "start"):
            if getattr(self, shorter) >= self.stall:
                raise ValueError(
                    f"{shorter} = {getattr(self, shorter):g} must be less than stall = {self.stall:g}; "
                    "otherwise the wider limit passes before the narrower one can help"
                )
        if self.workers and self.min_workers > self.workers:
            raise ValueError(f"min_workers = {self.min_workers} is more than workers = {self.workers}")
        if self.trainers and self.min_trainers > self.trainers:
            raise ValueError(f"min_trainers = {self.min_trainers} is more than trainers = {self.trainers}")
        if self.trainers and self.shard_size and self.trainers % self.shard_size:
            raise ValueError(f"shard_size = {self.shard_size} does not divide trainers = {self.trainers}")
        return self

    @property
    def probe(self) -> float:
        """The seconds within which a worker must generate a few tokens."""
        return self.start / 30

    @property
    def patience(self) -> float:
        """The seconds to wait for nodes, and for one call of the ranks."""
        return self.stall * 5 / 6

    @property
    def shards(self) -> int:
        """The number of shards that the ranks divide the weights into."""
        return self.shard_size or self.trainers


class Config(Section):
    """A whole recipe."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
    """Name of the run folder: letters, digits, underscores, hyphens and dots; the first character is a letter, a digit
    or an underscore."""
    seed: Count = 0
    """Seed of everything random: weights, order of problems, sampling. The same recipe with the same seed and number
    of threads gives the same run, bit for bit, on the same machine."""
    out: str = "runs"
    """Folder that holds the run folders; the run is written to out/name."""
    threads: Annotated[Count, Field(le=1024)] = 0
    """CPU threads of torch; 0: one for each core. Bit-identical repetition needs the same number."""
    grader_workers: Annotated[Positive, Field(le=1024)] = 1
    """Groups that are graded at the same time, and processes for the algebra of grading."""
    stages: tuple[str | dict[str, Any], ...] | None = None
    """The training stages in the order of the run, such as [sft, rl]. A stage can be listed several times: each entry
    continues with the model of the one before, in a folder of its own (rl, rl_2, ...). An entry can also be {stage: rl,
    train: {steps: 30}}: the sections of stages, the sections rollout, algorithm, teacher, train, rewards and watchdog,
    and sft, train, template and curriculum of data that it contains change the recipe for this entry. A stage of your
    own is path/file.py:Class. When a run is resumed, entries can be added at the end. null: every stage that its
    section gives something to do, in the order sft, rejection, preference, reward_model, rl."""
    data: DataSection
    model: ModelSection = ModelSection()
    rollout: RolloutSection = RolloutSection()
    environment: dict[str, Any] | None = None
    """The counterpart of a response while it is sampled, in training and in evaluations, with its settings:
    {name: calculator, turns: 4, timeout_s: 5}. null: a response is one turn."""
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"preset": "grpo"})
    """The objective of RL: a preset, and the components that replace its own."""
    teacher: dict[str, Any] | None = None
    """The teacher of RL with its [settings](settings_models.md#teacher), if `algorithm.kl_to` is teacher: {path:
    FOLDER}, {prompt: TEXT}, or several by source, {by_source: {SOURCE: {path: FOLDER}}}. A model that is built gets
    its tokenizer. null: none."""
    train: TrainSection = TrainSection()
    rewards: dict[str, dict[str, Any]] = Field(default_factory=lambda: {"math_answer": {}})
    """The rewards by name, each with its settings and its `weight` (default 1.0). The reward of a rollout is their
    weighted sum."""
    evaluate: EvaluateSection = EvaluateSection()
    save: SaveSection = SaveSection()
    watchdog: WatchdogSection = WatchdogSection()
    cluster: ClusterSection = ClusterSection()

    declarations: ClassVar[tuple[StageDeclaration, ...]] = ()
    """The stages that a recipe of this class can use; see `config.recipe.recipe_class`."""
    _found_in: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def complete_sections(self) -> Config:
        """Fill in the options that sections take from `rollout`: a resolved config says everything."""
        for name in type(self).model_fields:
            section = getattr(self, name)
            if not isinstance(section, AsRollout):
                continue
            try:
                completed = section.completed(self.rollout)
            except ValidationError as error:
                message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"{name}.{message} (what {name} leaves out is as in rollout)") from error
            object.__setattr__(self, name, completed)
        return self

    @model_validator(mode="after")
    def stages_have_names(self) -> Config:
        trainable = [each.name for each in self.declarations if each.name not in FIRST_STAGES]
        if self.stages is not None and not self.stages:
            raise ValueError(
                "stages = []: nothing would be trained. List at least one stage, or leave stages out, which runs every "
                "stage that has something to do"
            )
        for place, entry in enumerate(self.stages or (), start=1):
            if (name := self._name_of(entry)) not in trainable and ":" not in name:
                raise ValueError(
                    f"stages, entry {place} = {entry!r}: expected one of {', '.join(trainable)}, a stage of your own "
                    "as path/file.py:Class, or a mapping such as {stage: rl, train: {steps: 30}}"
                )
        return self

    @property
    def found_in(self) -> Path | None:
        """The file of a recipe that came along with a model or a run; None for the user's own."""
        return self._found_in

    def mark_found(self, file: Path | None) -> None:
        self._found_in = file

    @property
    def run_dir(self) -> Path:
        return Path(self.out) / self.name

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages of this recipe, in order. Without a list, a stage without work is left out."""
        if self.stages is not None:
            return (*FIRST_STAGES, *map(self._name_of, self.stages))
        return tuple(each.name for each in self.declarations if each.has_work(self))

    @property
    def models_of_stages(self) -> dict[tuple[str, str], str]:
        """The models that the sections of stages name, by section and key."""
        return {
            (stage.name, key): path
            for stage in self.declarations
            for key in stage.models
            if (path := getattr(getattr(self, stage.name), key, None)) is not None
        }

    def declaration(self, name: str) -> StageDeclaration:
        """Return the declaration of a stage of the recipe. Raise UntrustedCodeError for a stage in a file, if the
        recipe was found: such a stage is not known."""
        if ":" in name:
            require(name, kind="stage")
        return next(each for each in self.declarations if each.name == name)

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the section of a stage that runs, by its class."""
        return next(getattr(self, each.name) for each in self.declarations if each.section is kind)

    def with_section(self, section: BaseModel) -> Config:
        """Return the recipe with another section of a stage."""
        name = next(each.name for each in self.declarations if each.section is type(section))
        return self.model_copy(update={name: section})

    def _name_of(self, entry: str | Mapping[str, Any]) -> str:
        """Return the name of the stage that an entry of `stages` names, itself or by its file."""
        name = stage_name(entry)
        return next((each.name for each in self.declarations if each.runs == name), name)


def flat_keys(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a resolved config by dotted name: {"train.lr": 1e-4, ...}."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flat_keys(value, f"{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            flat[name] = value
    return flat
