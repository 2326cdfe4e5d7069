"""Runs a recipe: the stages that it names, one after the other; the output of each feeds the next.

    runs/NAME/config.yaml  run.json  rendered.txt  summary.json  report.html
    runs/NAME/problems/    {sft,train,heldout}.jsonl, train-DIGEST.jsonl of an entry with other data
    runs/NAME/model/  sft/  rejection_1/ ...  rl/    see `loop.stages`, `track.tracker` and `train.checkpoint`
    runs/NAME/rl_2/ ...                              of a stage that the recipe lists more than once

A finished stage leaves done.json. A resumed run skips stages that are done and continues an unfinished one from its
last checkpoint.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from ansatz.config.schema import FIRST_STAGES, Config
from ansatz.errors import ConfigError, RunStopped
from ansatz.files import write_text
from ansatz.links import hold
from ansatz.locks import folder_lock
from ansatz.loop.builders import graders_of
from ansatz.loop.context import Output, RunContext
from ansatz.loop.held_run import ORIGIN, HeldRun, record_or_verify_inputs
from ansatz.loop.interrupts import Interrupts
from ansatz.loop.model_recipe import with_commits
from ansatz.loop.run_folder import check_run_dir, prepare_run_dir, read_done, write_config, write_done
from ansatz.loop.run_record import RunRecord, read_record, recorded_end, resumed_record
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.plan import PlannedStage, check_order, last_reader, planned_stages
from ansatz.loop.stages.problems import check_best
from ansatz.loop.stages.stage import Stage
from ansatz.loop.start_checks import check_inputs, check_recipe, check_start
from ansatz.loop.watch import RolledBack
from ansatz.loop.workplace import workplace_of
from ansatz.models.threads import set_threads
from ansatz.registry import blaming
from ansatz.track.base import ConsoleSink
from ansatz.track.jsonl import read_jsonl
from ansatz.track.runs import SHOWN_TEXTS
from ansatz.train.checkpoint import check_resumable, keep_weights, latest, list_checkpoints, loop_state


def run_pipeline(
    config: Config,
    *,
    resume: bool = False,
    fresh: bool = False,
    allow_changes: bool = False,
    console: ConsoleSink | None = None,
    report: Callable[[Path], object] | None = None,
    watch_trainer: Callable[[Any, Path, Any], object] = lambda trainer, folder, tracker: None,
) -> Path:
    """Run the rest of the recipe and return the run folder.

    resume: continue in an existing folder. fresh: delete an existing run first. allow_changes: resume with a recipe
    that differs from the run's. report: reports on the run folder when the run is complete or its watchdog has stopped
    it, such as `track.report.write_report`. watch_trainer: called with each trainer of RL, its folder and tracker.
    Raises ConfigError if the folder exists and neither `resume` nor `fresh` is set, or if another process uses it, and
    RunInterrupted if a signal ended the run; it can be resumed. Everything is checked before anything is written.

    Example: `run_pipeline(load_recipe("recipes/tiny_arithmetic_grpo_cpu.yaml"), fresh=True)`.
    """
    run_dir, notes = hold(config.run_dir), list[str]()
    interrupts = Interrupts(run_dir, grace_s=config.save.grace)
    with interrupts.installed():
        sources = RunSources(config)
        if resume:
            check_recipe(config)
        else:
            check_run_dir(run_dir, fresh=fresh)
            notes, _ = check_start(sources, has_space=fresh)  # the old run that is deleted makes room
            config = sources.config = with_commits(sources.config)  # names of the hub get their current commits
        workplace = workplace_of(config.cluster)
        workplace.check_room(config)
        set_threads(config.threads)
        # Rewards by a reward model that the run has yet to train are added for RL (`RunContext.rl_grader`).
        grader, for_evaluation = graders = graders_of(config)
        context = RunContext(sources, workplace, graders, console=console, interrupts=interrupts)
        stages, context.watch_trainer = planned_stages(config), watch_trainer
        with folder_lock(run_dir) as lock, grader, for_evaluation, closing(workplace):
            if resume:
                record = _prepare_resume(context, stages, allow_changes=allow_changes)
            else:
                record = prepare_run_dir(run_dir, config, fresh=fresh)
                notes += [f"The first {text}" for text in sources.shown]
            _announce(context, stages, notes)  # now that there is a folder for its log
            context.held = HeldRun(lock, record.identities)
            write_config(config, run_dir)
            if not resume:
                write_text(run_dir / SHOWN_TEXTS, "\n\n".join(sources.shown) + "\n")
            with recorded_end(run_dir, record):
                try:
                    _run_stages(context, stages)
                except RunStopped:
                    if report is not None:
                        report(run_dir)
                    raise
                write_text(run_dir / "summary.json", json.dumps(_summary(context), indent=2))
            if report is not None:
                report(run_dir)
    return run_dir


def _prepare_resume(context: RunContext, stages: Sequence[PlannedStage], *, allow_changes: bool) -> RunRecord:
    """Check that the rest of a run can be continued. Write and return its record."""
    config, run_dir = context.config, context.config.run_dir
    _check_resumable(stages, run_dir)
    is_done = [_is_done(entry, run_dir) for entry in stages]
    read_by = partial(last_reader, stages, is_done)
    record = resumed_record(read_record(run_dir), config, allow_changes=allow_changes, read_by=read_by)
    check_order(run_dir, stages)
    if is_done[0]:  # the stage problems, whose own checks are skipped below
        for entry in stages:
            context.sources.at(entry.config).check_stored()
        check_best(context.sources)
    check_inputs(context.sources, [entry for entry, done in zip(stages, is_done, strict=True) if not done])
    record.write(run_dir)  # last, so that a run that is refused keeps its end
    return record


def _announce(context: RunContext, stages: Sequence[PlannedStage], notes: Sequence[str]) -> None:
    if context.console is not None:
        for note in notes:
            context.console.note(note)
        context.console.plan(*_plan(context.config, stages))


def _plan(config: Config, planned: Sequence[PlannedStage]) -> tuple[str, dict[str, int | None]]:
    """Return a line about the plan of the run, and the steps of each training stage; None: the data decide."""
    stages: dict[str, int | None] = {}
    for entry in planned[len(FIRST_STAGES) :]:
        stages |= dict.fromkeys(entry.folders, entry.stage.num_steps(entry.config))
    listed = [f"{name} ({steps} steps)" if steps else name for name, steps in stages.items()]
    rollout, model = config.rollout, config.model
    of_rl = f" A step of RL has {rollout.prompts_per_step} prompts x {rollout.samples_per_prompt} responses."
    text = (
        f"plan: {'a tiny model with random weights' if model.path is None else model.path}; {', then '.join(listed)}."
        f"{of_rl if 'rl' in stages else ''} Each step says how long is left."
    )
    return text, stages


def _run_stages(context: RunContext, stages: Sequence[PlannedStage]) -> None:
    for entry in stages:
        with context.at(entry.config) as of_entry:
            for name in entry.folders:
                output = _run_stage(entry.stage, of_entry, context.config.run_dir / name)
                policy = entry.stage.policy_of(entry.config, output) if entry.stage.makes_policy else None
                of_entry.add_output(Output(entry.stage.name, name, output), policy=policy)
        if entry.stage.name == "model":
            # The problems and the model are complete now: their digests belong to the run's identity from here on.
            context.held.seal(record_or_verify_inputs(context.config.run_dir))
    if context.config.save.optimizer == "unfinished":
        for output in context.outputs:
            for path in list_checkpoints(context.config.run_dir / output.folder):
                keep_weights(path, exact=False)


def _check_resumable(stages: Sequence[PlannedStage], run_dir: Path) -> None:
    """Raise CheckpointError if an unfinished stage would be resumed from a checkpoint without optimizer state."""
    for entry in stages:
        for folder in (run_dir / name for name in entry.folders):
            if _finished(entry.stage, entry.config, folder) is None and (newest := latest(folder)) is not None:
                check_resumable(newest)


def _is_done(entry: PlannedStage, run_dir: Path) -> bool:
    return all(_finished(entry.stage, entry.config, run_dir / name) is not None for name in entry.folders)


def _finished(stage: Stage, config: Config, folder: Path) -> dict[str, Any] | None:
    """Return the content of done.json; None if there are steps to do, perhaps because a finished run is extended."""
    done, steps = read_done(folder), stage.steps(config)
    if done is None or steps is None or done["steps"] in (None, steps):
        return done
    if done["steps"] > steps:
        raise ConfigError(
            f"{folder} has finished {done['steps']} steps, but the recipe now asks for {steps}. A run can be extended, "
            f"not shortened: set train.steps to {done['steps']} or more."
        )
    return None


def _run_stage(stage: Stage, context: RunContext, folder: Path) -> str:
    """Run the stage in its folder unless it is done. Return the path of its output, which lies in the folder."""
    done = _finished(stage, context.config, folder)
    context.held.begin(folder)  # marks the folder as this run's, or checks that it is
    if done is not None:
        output = folder / done["output"]
        # ORIGIN: the run and stage that made a checkpoint. A copied folder is noticed by it.
        context.held.check(loop_state(output).get(ORIGIN), folder, what=output)
    else:
        start, before = time.perf_counter(), stage.seconds_before(folder)
        write_config(context.config, folder)
        done = {"output": str(_run_to_the_end(stage, context, folder).relative_to(folder))}
        seconds = before + time.perf_counter() - start
        write_done(folder, **done, seconds=seconds, steps=stage.steps(context.config))
    if context.config.save.optimizer == "unfinished":
        for path in list_checkpoints(folder):
            keep_weights(path)
    return str(folder / done["output"])


def _run_to_the_end(stage: Stage, context: RunContext, folder: Path) -> Path:
    """Run the stage, and run it again from its newest checkpoint each time that its watchdog rolls it back."""
    while True:
        try:
            if stage.declaration.runs.startswith("ansatz."):
                return stage.run(context, folder)
            with blaming(f"stage {stage.declaration.runs!r}"):
                return stage.run(context, folder)
        except RolledBack:
            pass
        gc.collect()  # frees the model of the attempt that was left, before another is loaded
        if context.interrupts.signal is not None:
            context.interrupts.leave("The watchdog has just rolled back.")


def _summary(context: RunContext) -> dict[str, Any]:
    folders = [context.config.run_dir / output.folder for output in context.outputs]
    evaluations = [row for folder in folders for row in read_jsonl(folder / "evaluations.jsonl")]
    seconds = sum(done["seconds"] for folder in folders if (done := read_done(folder)) is not None)
    return {"seconds": round(seconds, 3), "model": context.model, "evaluations": evaluations}
