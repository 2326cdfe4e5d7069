"""The schema of a recipe: one frozen pydantic model for each section. Unknown keys are errors.

Components (data sources, rewards, components of the objective) are named here and carry their settings as a mapping.
What they accept is read from their signatures, so nothing is declared twice. docs/config.md is generated from the
docstrings of the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, model_validator

from ansatz.config.chat import Template
from ansatz.config.fields import Count, Float, LearningRate, Positive, Rate, Section, Temperature
from ansatz.config.reward_model import RewardModelSection
from ansatz.config.sampling import SamplingOptions
from ansatz.config.watchdog import WatchdogSection

STAGES = ("problems", "model", "sft", "rejection", "preference", "reward_model", "rl")
"""Every stage that a run can have. Each is a module `loop.stages.<name>`. Without `stages`, this is their order."""
FIRST_STAGES = ("problems", "model")
"""Every run begins with these, so a recipe does not list them."""
OPTIONAL_SECTIONS = ("rejection", "preference", "reward_model")
"""Sections without which their stage does not run."""


class ModelSection(Section):
    """The model that training starts from."""

    path: str | None = None
    """The model: a folder in Hugging Face format (config.json, weights, tokenizer), or a model of the hub, such as
    Qwen/Qwen2.5-1.5B-Instruct or, with a branch, tag or commit, Qwen/Qwen2.5-1.5B-Instruct@main. The config.yaml of a
    run names the commit. null: build the model of `model.tiny` with random weights."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type that the model computes in. auto: bfloat16 if the device multiplies it natively, otherwise float32. The
    master weights of the optimizer are float32 in either case."""
    tiny: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Sizes of the model that is built. Has an effect only if `model.path` is null."""
    toy: bool | tuple[str, ...] = False
    """true: try the recipe at toy size, in a minute on any machine. The architecture of `model.path` gets random
    weights, and numbers of steps, prompts and tokens are reduced. The config.yaml of a run lists here what was
    reduced."""
    lora: dict[str, Any] | None = None
    """Train low-rank adapters with these settings instead of the weights. null: train every weight."""
    quantize: Literal["nf4"] | None = None
    """nf4: the frozen weights under the adapters have 4 bits (QLoRA), which takes the package bitsandbytes and one
    training stage. null: they have the type of `model.dtype`."""
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
    """The problems and how they are shown to the model. `sft`, `train` and `heldout` each name a source with its
    settings: {source: NAME, split: SPLIT, ...}."""

    template: Template = "tiny"
    """Prompt template that turns a problem into a prompt. {name: chat, system: TEXT, arguments: {...}} is
    the tokenizer's chat template with a system prompt and with arguments, such as {enable_thinking: true}. auto, the
    default with `model.path`: the template of the run that the model is a checkpoint of, otherwise chat if the
    tokenizer has a chat template, otherwise boxed. The choice is printed, and is written to the run's config.yaml."""
    sft: dict[str, Any] | None = None
    """Problems with worked solutions, for supervised fine-tuning. null: no SFT stage."""
    train: dict[str, Any]
    """Problems of reinforcement learning and of rejection sampling."""
    heldout: dict[str, Any]
    """Problems of the evaluations, from the first on as many as `evaluate.problems` says."""
    unfit: Literal["error", "drop"] = "error"
    """Rows that cannot be used, because a field is missing, a gold answer cannot be read, or a prompt or demonstration
    is too long. error: the run stops and lists them. drop: they are left out, and the run's report lists them."""
    curriculum: dict[str, Any] | None = None
    """Choose the problems of each RL step by the outcomes so far, and optionally replace groups without signal
    (dynamic sampling). null: every problem once per epoch, in random order."""


class RolloutSection(SamplingOptions):
    """How RL samples responses."""

    prompts_per_step: Annotated[Positive, Field(le=1_000_000)] = 32
    """Problems in one RL step, at most 1,000,000. The step has prompts_per_step x samples_per_prompt rollouts."""
    max_prompt_tokens: Positive = 256
    """Longest prompt in tokens. A problem with a longer one is refused before training. Default with `model.path`:
    1024."""
    max_response_tokens: Positive = 96
    """Longest response in tokens, end token included. With `model.path` there is no default, except 2048 for recipes
    that learn from given responses only."""
    partial_rollout_tokens: Count = 0
    """Partial rollouts: a response that has not ended after N tokens is paused, and the next step resumes it with the
    new weights. 0: every response ends in the step in which it began."""
    lag: Count = 0
    """How many steps old the weights may be that a step is sampled with, beyond those that it updates. With workers,
    the rollouts of the next N steps are sampled while a step is updated. 0: every step is sampled with the weights that
    it updates. 1 or more needs `algorithm.correction: truncate`; more than 8 also needs `rollout.long_lag: true`."""
    long_lag: bool = False
    """Accept a `rollout.lag` above 8, with which training gets worse whatever the correction."""
    publish_every: Positive = 1
    """Samplers get new weights every N steps only, so that they wait for weights less often. The weights of a step are
    then up to N - 1 steps older than `rollout.lag` says, and the same correction is needed."""
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
    """The critic of objectives that have one, such as ppo. Without a critic, none of this has an effect."""

    path: str | None = None
    """The model that the critic's transformer starts from: a folder or a model of the hub, with the vocabulary of the
    policy, or `reward_model`: the newest reward model of the run. Of a reward model with extra layers, only these, the
    last norm and the value head are trained. null: the policy at the start of RL. The value head starts at 0."""
    lr: LearningRate = 1e-3
    """Learning rate of the critic, with the schedule of `train.lr`. Default with `model.path`: 1e-5."""
    steps_alone: Count = 0
    """RL steps at the start that update only the critic, so that the policy does not follow an untrained one. The
    policy's warm-up begins after them."""


class TrainSection(Section):
    """The updates of RL. SFT uses the optimizer, `max_grad_norm` and `tokens_per_microbatch` as well."""

    steps: Count = 100
    """Number of RL steps. 0: no RL stage."""
    lr: LearningRate = 1e-4
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-6."""
    warmup_steps: Count = 5
    """Steps over which the learning rate rises linearly from near 0."""
    decay_steps: Count = 0
    """Steps at the end over which the learning rate falls linearly to near 0; 0: no decay."""
    updates_per_step: Positive = 1
    """Minibatches that the prompts of a step are divided into, with one optimizer step on each."""
    epochs_per_step: Positive = 1
    """How often the rollouts of a step are used. Each epoch after the first deals the prompts into minibatches in
    another order. A step has updates_per_step x epochs_per_step optimizer steps."""
    tokens_per_microbatch: Positive = 16384
    """Most tokens, prompts included, that one forward and backward pass computes. Bounds the memory and changes no
    result beyond rounding."""
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


class SftSection(Section):
    """Supervised fine-tuning on the worked solutions of `data.sft`. The optimizer, the clipping of gradients and the
    microbatches are those of `train`."""

    steps: Count = 350
    """Number of optimizer steps. 0: no SFT stage."""
    epochs: Count = 0
    """Passes over the demonstrations, which replace `sft.steps`: as many steps as it takes to see each demonstration
    that often, the last step filled up from another pass. 0: the stage has `sft.steps` steps."""
    batch_size: Positive = 64
    """Demonstrations in one step."""
    responses: Literal["last", "all"] = "last"
    """Which responses of a conversation are taught. last: the one to the last question; the earlier ones are context.
    all: every response to a user or a tool, in one pass over the conversation, and no token of the other turns. A chat
    template that renders earlier responses differently, as those do that drop their thoughts, is refused."""
    weights: Literal["token", "sequence"] = "token"
    """What counts the same in the loss of a step. token: every response token, so long demonstrations count for more.
    sequence: every demonstration, whatever its length."""
    heldout_every: Count = 0
    """Every N steps and after the last, measure loss and token accuracy on the worked solutions of the problems of
    `data.heldout` that the evaluations use. 0: never."""
    lr: LearningRate = 2e-3
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-5."""
    warmup_steps: Count = 20
    """Steps over which the learning rate rises linearly from near 0."""
    decay_steps: Count = 0
    """Steps at the end over which the learning rate falls linearly to near 0; 0: no decay."""

    @property
    def trains(self) -> bool:
        return self.steps > 0 or self.epochs > 0

    def resolved(self, num_demonstrations: int) -> SftSection:
        """The section with the number of steps that `epochs` takes on that many demonstrations."""
        if self.epochs == 0:
            return self
        return self.model_copy(update={"steps": -(-self.epochs * num_demonstrations // self.batch_size)})


class EvaluateSection(SamplingOptions):
    """Held-out evaluation: `samples_per_prompt` responses and one greedy response to each problem. What describes the
    form of a response (max_response_tokens, min_response_tokens, stop, thinking_budget, closing) is as in `rollout`
    unless it is given here. The other sampling options have the defaults below."""

    AS_ROLLOUT: ClassVar = ("max_response_tokens", "min_response_tokens", "stop", "thinking_budget", "closing")

    problems: Positive = 200
    """Number of problems, from the first of `data.heldout` on."""
    k: Positive = 8
    """The k of pass@k and maj@k, at most `evaluate.samples_per_prompt`."""
    temperature: Annotated[Temperature, Field(gt=0)] = 1.0
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
    """What a run writes besides its metrics."""

    every: Positive = 25
    """Write a checkpoint every N steps of SFT and of RL. The last step of a stage always gets one."""
    keep: Positive = 2
    """Newest checkpoints of a stage that are kept. `save.best` and rollbacks of the watchdog keep others besides."""
    best: bool = True
    """Also keep the checkpoint with the best held-out pass@1 (mean over samples), and write one after every evaluation
    of RL that is better than all before it. `ansatz export --best` exports it."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the weights in the model folder of a checkpoint. auto: the precision of the model that the run
    starts from. Below float32, the checkpoint holds the float32 master weights too, in its subfolder training/; a
    resumed run and the next stage use these."""
    grace: Annotated[Float, Field(ge=0)] = 30.0
    """Seconds that a step may still take when a signal asks the run to stop. After that the step is dropped, and the
    state before it is saved, unless the weights are already changing."""
    exact: bool = True
    """With `rollout.lag`, checkpoints hold the older weights that sample the next steps, as many versions as the lag.
    false: they do not, and a resumed run samples these steps with its newest weights, so it gives another result than
    an uninterrupted one."""
    samples: bool = True
    """Write the rollouts of every RL step as JSON lines, to rl/samples, and the responses of every evaluation, to
    STAGE/evaluations."""
    samples_keep: Count = 1000
    """Newest steps whose rollouts are kept; 0: all."""
    tensorboard: bool = True
    """Write the metrics as TensorBoard events too."""


class ClusterSection(Section):
    """Worker processes that sample rollouts for RL, with Ray (`pip install 'ansatz-rl[ray]'`). No key of this section
    changes a result, and all of them may differ when a run is resumed. Times are in seconds."""

    workers: Annotated[Count, Field(le=4096)] = 0
    """Processes that sample, each with a model of its own. They sample the next steps while a step is updated if
    `rollout.lag` is 1 or more. 0: everything runs in one process."""
    threads: Annotated[Positive, Field(le=1024)] = 1
    """CPU threads of each worker."""
    gpus: Annotated[Float, Field(ge=0)] = 0.0
    """GPUs that Ray reserves for each worker."""
    min_workers: Annotated[Count, Field(le=4096)] = 0
    """The run starts if this many workers have room on the cluster, and stops when fewer are left; the others start as
    soon as there is room. A worker that dies is replaced, at most five times in an hour. 0: all must have room at the
    start, and later at least one."""
    trainers: Annotated[Count, Field(le=4096)] = 0
    """Ranks that train together in processes of their own, with the weights sharded over them. Their number changes a
    result only by rounding; the same number gives the same bits. 0: training runs in the run's own process."""
    min_trainers: Annotated[Count, Field(le=4096)] = 0
    """The smallest number of ranks to train on when there is no room for all, for example after a node is lost. 0: as
    many as `trainers`, so that the bits of a run stay the same."""
    shard_size: Annotated[Count, Field(le=4096)] = 0
    """Ranks over which the weights are sharded (hybrid sharding). Groups of this many ranks have a copy of the weights
    each, and only add up their gradients: less traffic between nodes, more memory. 0: one copy, sharded over all ranks,
    as also where this does not divide the ranks that are left after a loss."""
    trainer_threads: Annotated[Positive, Field(le=1024)] = 1
    """CPU threads of each rank."""
    trainer_gpus: Annotated[Float, Field(ge=0)] = 0.0
    """GPUs that Ray reserves for each rank."""
    address: str = ""
    """Address of a Ray cluster that runs already, such as auto or 10.0.0.1:6379. Empty: start one on this machine."""
    probe: Annotated[Float, Field(gt=0)] = 10.0
    """Time that a worker has to generate a few tokens when its health is probed."""
    lease: Annotated[Float, Field(gt=0)] = 60.0
    """Time that a worker has at least to sample a group before another worker gets it. Once durations are known, the
    limit is four times their 99th percentile if that is longer."""
    start: Annotated[Float, Field(gt=0)] = 300.0
    """Time that a worker has to start, and to load weights."""
    patience: Annotated[Float, Field(gt=0)] = 500.0
    """If nodes have left and fewer than min_workers have room, the run waits this long for nodes, and then stops."""
    update: Annotated[Float, Field(gt=0)] = 500.0
    """Time that the ranks of a trainer have for one call, such as the update of a step or a checkpoint. After that,
    all of them are started again from the last checkpoint."""
    stall: Annotated[Float, Field(gt=0)] = 600.0
    """If nothing is sampled and no step ends for this long, the run prints who waits for whom, with all stacks. After
    twice this time it saves if possible, and ends."""

    @model_validator(mode="after")
    def times_nest(self) -> ClusterSection:
        times = [("probe", "lease"), ("lease", "stall"), ("start", "stall"), ("patience", "stall")]
        for shorter, longer in [*times, *([("update", "stall")] if self.trainers else [])]:
            if getattr(self, shorter) >= getattr(self, longer):
                raise ValueError(
                    f"{shorter} = {getattr(self, shorter):g} must be less than {longer} = {getattr(self, longer):g}; "
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
    def shards(self) -> int:
        """Into how many shards the ranks divide the weights."""
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
    """The training stages in the order in which they run, such as [sft, rl]. A stage can be listed several times: each
    entry continues with the model of the one before, in a folder of its own (rl, rl_2, ...). An entry can also be
    {stage: rl, train: {steps: 30}}: the sections sft, rollout, algorithm, rejection, preference, reward_model, train
    and watchdog that it contains change the recipe for this entry. When a run is resumed, entries can be added at the
    end. null: every stage that its section gives something to do, in the order sft, rejection, preference,
    reward_model, rl."""
    data: DataSection
    model: ModelSection = ModelSection()
    sft: SftSection = SftSection()
    rollout: RolloutSection = RolloutSection()
    environment: dict[str, Any] | None = None
    """What a response interacts with while it is sampled, in training and in evaluations, with its settings:
    {name: calculator, turns: 4, timeout_s: 5}. null: a response is one turn."""
    algorithm: dict[str, Any] = Field(default_factory=lambda: {"preset": "grpo"})
    """The objective of RL: a preset, and the components that replace its own."""
    rejection: dict[str, Any] | None = None
    """Rejection sampling, between SFT and RL: sample responses, keep correct ones, and fine-tune on them. null: no such
    stage."""
    preference: dict[str, Any] | None = None
    """Preference optimisation: learn from pairs of a chosen and a rejected response, with DPO and its relatives. null:
    no such stage. See [algorithms](algorithms.md#preferences)."""
    reward_model: RewardModelSection | None = None
    """Train a reward model on responses of the policy. null: no such stage."""
    train: TrainSection = TrainSection()
    rewards: dict[str, dict[str, Any]] = Field(default_factory=lambda: {"math_answer": {}})
    """The rewards by name, each with its settings and its `weight` (default 1.0). The reward of a rollout is their
    weighted sum."""
    evaluate: EvaluateSection = EvaluateSection()
    save: SaveSection = SaveSection()
    watchdog: WatchdogSection = WatchdogSection()
    cluster: ClusterSection = ClusterSection()

    @model_validator(mode="after")
    def complete_evaluate(self) -> Config:
        """A resolved config says everything, so `evaluate` gets the values that it takes from `rollout`."""
        try:
            evaluate = self.evaluate.completed(self.rollout)
        except ValidationError as error:
            message = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
            raise ValueError(f"evaluate.{message} (what evaluate leaves out is as in rollout)") from error
        object.__setattr__(self, "evaluate", evaluate)
        return self

    @model_validator(mode="after")
    def complete_reward_model(self) -> Config:
        """The same for the sampling options of `reward_model`."""
        if self.reward_model is not None:
            object.__setattr__(self, "reward_model", self.reward_model.completed(self.rollout))
        return self

    @model_validator(mode="after")
    def stages_have_names(self) -> Config:
        trainable = [name for name in STAGES if name not in FIRST_STAGES]
        if self.stages is not None and not self.stages:
            raise ValueError(
                "stages = []: nothing would be trained. List at least one stage, or leave stages out, which runs every "
                "stage that has something to do"
            )
        for place, entry in enumerate(self.stages or (), start=1):
            name = stage_name(entry)
            if name not in trainable:
                raise ValueError(
                    f"stages, entry {place} = {entry!r}: expected one of {', '.join(trainable)}, or a mapping such as "
                    "{stage: rl, train: {steps: 30}}"
                )
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.out) / self.name

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The stages of this recipe, in order. Without a list, a stage that has nothing to do is left out."""
        listed = None if self.stages is None else [stage_name(entry) for entry in self.stages]
        return (*FIRST_STAGES, *(filter(self.has_work, STAGES[len(FIRST_STAGES) :]) if listed is None else listed))

    def has_work(self, stage: str) -> bool:
        """Whether the recipe has the sections, and more than 0 steps, of a training stage."""
        if stage == "sft":
            return self.data.sft is not None and self.sft.trains
        return self.train.steps > 0 if stage == "rl" else getattr(self, stage) is not None


def stage_name(entry: str | Mapping[str, Any]) -> str:
    """The name in an entry of `stages`; empty if it has none."""
    return entry if isinstance(entry, str) else str(entry.get("stage", ""))


def section_at(names: Sequence[str]) -> type[BaseModel] | None:
    """The section of a recipe with these names, from the outermost on; None if the key is not a section."""
    section: type[BaseModel] = Config
    for name in names:
        info = section.model_fields.get(name)
        kinds = [info.annotation, *get_args(info.annotation)] if info else []  # the second of `Section | None`
        inner = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if inner is None:
            return None
        section = inner
    return section


def recipe_keys(*names: str) -> list[str]:
    """The dotted names of all keys in a section of a recipe; without names, of the whole recipe. The settings of
    components have no schema and are left out."""
    section, keys = section_at(names), list[str]()
    for key, field in section.model_fields.items() if section is not None else ():
        inner = section_at([*names, key])
        keys += [] if inner is field.annotation else [".".join([*names, key])]
        keys += recipe_keys(*names, key) if inner is not None else []
    return keys


def suggest_keys(last: str, known: Iterable[str], *, option: str = "") -> str:
    """ " Did you mean train.lr or sft.lr?" with the keys whose last part is this one, those of RL first; empty if there
    are none. option: what stands in front of each key."""
    same = [key for key in known if key.rpartition(".")[2] == last.replace("-", "_")]
    same.sort(key=lambda key: key.partition(".")[0] not in ("train", "rollout", "algorithm"))
    *others, end = [f"{option}{key}" for key in same] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{end}?" if same else ""


def flat_keys(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train.lr": 1e-4, ...}: a resolved config by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flat_keys(value, f"{name}.")  # pyright: ignore[reportUnknownArgumentType]
        else:
            flat[name] = value
    return flat
