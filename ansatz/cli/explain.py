"""`ansatz explain RECIPE`: the resolved recipe, the arithmetic of a step and of its memory, the objective in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ansatz.cli.recipe import Overlays, TrustCode, note
from ansatz.config import Config, load_recipe
from ansatz.config.load import dump
from ansatz.config.packaged import is_packaged, recipe_path
from ansatz.errors import ConfigError, ModelError
from ansatz.files import check_ordinary_files
from ansatz.links import read_text
from ansatz.track.checked_rows import read_metrics
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.models.plan import Hardware
    from ansatz.objectives.objective import Objective


def explain(
    context: typer.Context,
    recipe: Annotated[
        Path, typer.Argument(help="A recipe file, the folder that holds it, a run, or an installed recipe.")
    ],
    overlay: Overlays = None,
    trust_code: TrustCode = False,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory of a GPU (24GiB), of several (8x80GiB), or of several nodes (16x8x80GiB). Exit code 1 if the "
            "recipe does not fit. Default: as in the recipe's comment."
        ),
    ] = None,
    run: Annotated[Path | None, typer.Option(help="A run folder: also show the memory that it measured.")] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also print the whole recipe, the memory by part, and where other projects' defaults differ."
        ),
    ] = False,
) -> None:
    """Resolve a recipe and print the arithmetic of a step, its memory, and the objective; with --full, all its keys.

    Refuses every recipe that `ansatz train` refuses before it loads weights, unless the reason is a folder that is in
    use, a full disk, or a cluster without room. Nothing is downloaded: models and data sets of the hub that are not on
    this machine are listed. Of an installed recipe, files may be missing too.
    """
    trusts = trust_code or None
    config = load_recipe(recipe, overlays=overlay or [], overrides=context.obj, note=note, trust_code=trusts)

    from ansatz.loop.start_checks import explained
    from ansatz.models.plan import parse_hardware
    from ansatz.models.process_memory import PARTS
    from ansatz.objectives.build import build_objective

    sources, missing = explained(config, elsewhere=is_packaged(recipe_path(recipe)))
    config = sources.config
    objective = build_objective(config.algorithm, max_response_tokens=config.rollout.max_response_tokens)
    hardware = parse_hardware(memory) if memory else _find_hardware(recipe, overlay or [], config)
    memory_text, fits = memory_arithmetic(config, objective, hardware, run)
    by_part = full or memory is not None or run is not None
    parts = {
        "Arithmetic of a step": arithmetic_of_stages(config),
        "Memory": memory_text if by_part else _without(PARTS, memory_text),
        "Objective": objectives_of_stages(config, full=full),
        **({"Recipe": dump(config).rstrip()} if full else {}),
    }
    for title, text in parts.items():
        say(f"# {title}\n{text}\n")
    for text in sources.shown if full else ():
        say(f"# The first {text}\n")
    for sentence in sources.notes:
        say(f"Note: {sentence}")
    for sentence in missing:
        say(f"Not checked: {sentence}")
    if not full:
        say("--full also prints the whole recipe, the memory by part, and other projects' defaults.")
    if memory and not fits:
        raise typer.Exit(code=1)


def _without(head: str, text: str) -> str:
    """Return the text without the line that begins with `head`, and without the rest of its paragraph."""
    paragraphs = [f"\n{paragraph}".partition(f"\n{head}")[0].strip("\n") for paragraph in text.split("\n\n")]
    return "\n\n".join(filter(None, paragraphs))


def objectives_of_stages(config: Config, *, full: bool = False) -> str:
    """Describe the objective of each stage of the recipe, in the order of the stages. full: compare RL with the
    defaults of other projects."""
    from ansatz.loop.stages.plan import planned_stages
    from ansatz.objectives.projects.comparison import list_other_defaults

    stage_of_text: dict[str, str] = {}
    paragraphs: list[str] = []
    for entry in planned_stages(config):
        if text := entry.stage.explain(entry.config):
            first = stage_of_text.setdefault(text, entry.title)
            if full and entry.stage.name == "rl":
                longest = entry.config.rollout.max_response_tokens
                others = list_other_defaults(entry.stage.objective(entry.config), max_response_tokens=longest)
                text = "\n".join([text, "", *others])
            shown = text if first == entry.title else f"as stage {first}, from the model of the stage before it"
            paragraphs.append(f"Stage {entry.title}:\n{shown}")
    return "\n\n".join(paragraphs)


def _find_hardware(recipe: Path, overlays: Sequence[Path], config: Config) -> Hardware | None:
    """Return the hardware that the last of the files names in its comment. None for a toy run, which fits any
    machine."""
    from ansatz.models.plan import hardware_in

    if config.model.toy:
        return None
    named = [hardware_in(read_text(recipe_path(path))) for path in (recipe, *overlays)]
    return next((hardware for hardware in reversed(named) if hardware is not None), None)


_OLD_GPUS = (
    "On a GPU without native bfloat16 (compute capability below 8.0, such as T4 and V100), models compute in float32: "
    "add --model.dtype float32."
)


def memory_arithmetic(
    config: Config, objective: Objective, hardware: Hardware | None, run: Path | None
) -> tuple[str, bool]:
    """Return the tables of memory and the peak that a run measured, or the reason why memory is not known. And whether
    it fits, or may fit."""
    from ansatz.models.plan import workload_of
    from ansatz.models.process_memory import fits, memory_table, process_plans

    try:
        work = workload_of(config, objective, hardware=hardware)
    except ModelError as error:
        return f"not known: {error}", True
    plans = process_plans(config, work, hardware)
    measured = [] if run is None else [measured_memory(run)]
    assumed = [_OLD_GPUS] if hardware is not None and config.model.dtype == "auto" else []
    text = "\n".join([memory_table(plans, hardware=hardware), *assumed, *measured])
    return text, hardware is None or fits(plans, hardware)


def measured_memory(run: Path) -> str:
    """Return the highest perf/peak_memory_gb of a run's RL stage."""
    check_ordinary_files(run / "rl")
    rows = read_metrics(run / "rl" / "metrics.jsonl")
    peaks = [row["perf/peak_memory_gb"] for row in rows if "perf/peak_memory_gb" in row]
    if not peaks:
        raise ConfigError(f"--run {run}: its rl/metrics.jsonl has no perf/peak_memory_gb. Give a run with an RL stage.")
    return f"measured by {run.name}: {max(peaks) * 1e9 / 2**30:.2f} GiB peak (perf/peak_memory_gb)"


def arithmetic_of_stages(config: Config) -> str:
    """Return the arithmetic of each stage of RL, under its name if there are several."""
    from ansatz.loop.stages.plan import planned_stages

    stages = [entry for entry in planned_stages(config) if entry.stage.name == "rl"]
    names = [f"Stage {entry.title}:\n" if len(stages) > 1 else "" for entry in stages]
    texts = [f"{name}{step_arithmetic(entry.config)}" for name, entry in zip(names, stages, strict=True)]
    return "\n\n".join(texts) or "The recipe has no stage of RL."


def step_arithmetic(config: Config) -> str:
    """Return prompts x samples = rollouts, the largest number of tokens, optimizer steps; for a step and for the whole
    stage."""
    rollout, train = config.rollout, config.train
    responses = rollout.rollouts_per_step * rollout.max_response_tokens
    prompts = rollout.prompts_per_step * rollout.max_prompt_tokens
    lines = [
        f"{rollout.prompts_per_step} prompts x {rollout.samples_per_prompt} samples = "
        f"{rollout.rollouts_per_step} rollouts",
        f"at most {rollout.rollouts_per_step} x {rollout.max_response_tokens} = {responses:,} response tokens "
        f"and {prompts:,} prompt tokens",
        f"{train.updates_per_step} minibatches x {train.epochs_per_step} epochs = "
        f"{train.optimizer_steps_per_step} optimizer steps on them, in microbatches of at most "
        f"{train.tokens_per_microbatch:,} tokens",
        f"{train.steps} steps = {train.steps * rollout.rollouts_per_step:,} rollouts, "
        f"{train.steps * train.optimizer_steps_per_step:,} optimizer steps",
    ]
    return "\n".join(lines)
