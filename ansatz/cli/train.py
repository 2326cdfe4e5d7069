"""`ansatz train RECIPE`: run a recipe's pipeline; `ansatz train --resume RUN`: resume an interrupted run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz import process
from ansatz.cli.recipe import Overlays, TrustCode, note
from ansatz.cli.view import viewing
from ansatz.config import load_recipe
from ansatz.config.schema import Config
from ansatz.errors import ClusterLost, ConfigError, DataError, RunInterrupted
from ansatz.json_text import read_object
from ansatz.repeat.portable import restrict_instructions
from ansatz.trust import TrustedText, refuse_found
from ansatz.visible import say


class LastingOutput:
    """A text stream that sends everything to the null device after its first write or flush that fails."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._discard_from_now_on()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard_from_now_on()

    def _discard_from_now_on(self) -> None:
        """Lead the stream's file descriptor, which it keeps, to the null device, so that the text in its buffer causes
        no error."""
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outlive_readers() -> Iterator[None]:
    """Let standard output and standard error outlive their readers until the block ends."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = LastingOutput(sys.stdout), LastingOutput(sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def train(
    context: typer.Context,
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe file, the folder that holds it, or an installed recipe.")
    ] = None,
    overlay: Overlays = None,
    resume: Annotated[Path | None, typer.Option(help="A run folder to resume or (--train.steps N) extend.")] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume with a recipe that differs from the run's, and record it.")
    ] = False,
    trust_code: TrustCode = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete a run folder of the same name first.")] = False,
    view: Annotated[
        bool, typer.Option("--view", help="Serve pages about the run to a browser on this machine while it trains.")
    ] = False,
    bundle: Annotated[
        str, typer.Option(help="RL steps whose updates are stored as step bundles in rl/bundles, such as 3,17.")
    ] = "",
    track: Annotated[
        list[str] | None, typer.Option(help="Send what the run writes to wandb, trackio or mlflow; can be repeated.")
    ] = None,
) -> None:
    """Train a model with a recipe. Any key can be set on the command line: --train.lr 3e-4 --model.path DIR.

    Writes runs/NAME (metrics, rollouts, checkpoints, summary.json, report.html) and prints its evaluations. SIGTERM,
    SIGHUP, SIGUSR1 and Ctrl-C save the run and end it with exit code 75; a second one ends it at once.
    """
    overrides: dict[str, str] = context.obj
    trusts, steps = trust_code or None, steps_of(bundle)
    if resume is not None:
        if recipe is not None or overlay or fresh:
            raise ConfigError(f"--resume {resume} takes its recipe from that folder; leave the other arguments out.")
        from ansatz.loop.run_folder import resume_config

        config = resume_config(resume, overrides, trust_code=trusts)
    elif allow_changes:
        raise ConfigError("--allow-changes has no effect without --resume RUN. Leave it out.")
    elif recipe is None:
        raise ConfigError(
            "no recipe given; name one, such as tiny_arithmetic_think_cpu (see `ansatz recipes`), or --resume RUN."
        )
    else:
        config = load_recipe(recipe, overlays=overlay or [], overrides=overrides, note=note, trust_code=trusts)
        if Path(config.out).is_absolute() or ".." in Path(config.out).parts:
            refuse_found(config.out, kind="out")
    restrict_instructions(config.model.dtype)
    with outlive_readers():
        # At once: to import PyTorch and transformers takes seconds, and to look at the data too.
        say(f"{config.name}: loads PyTorch, checks recipe and data, and writes to {config.run_dir}", flush=True)
        check_bundles(steps, config, resume=resume is not None)
        with following(config.run_dir, track or []), viewing(config.run_dir) if view else nullcontext() as address:
            if address is not None:
                say(f"To look at the run while it trains: {address}", flush=True)
            _run(config, steps, resume=resume is not None, fresh=fresh, allow_changes=allow_changes)


@contextmanager
def following(folder: Path, trackers: Sequence[str], *, group: str = "") -> Iterator[None]:
    """Send the output of the runs in a folder to trackers while the block runs, from processes of their own."""
    from ansatz.track.follow import Follower

    followers = [Follower(folder, TrustedText(tracker), group=group) for tracker in trackers]
    yield
    for follower in followers:
        say(follower.finish())


def steps_of(text: str) -> frozenset[int]:
    """Read the steps of --bundle. Raise ConfigError for anything else than numbers with commas between them."""
    numbers = [number.strip() for number in text.split(",")] if text else []
    if not all(number.isdecimal() and 0 < len(number) < 10 and int(number) > 0 for number in numbers):
        raise ConfigError(f"--bundle {text!r:.60}: expected steps from 1 on, with commas between them, such as 3,17.")
    return frozenset(map(int, numbers))


def check_bundles(steps: frozenset[int], config: Config, *, resume: bool) -> None:
    """Raise ConfigError for a step of --bundle that the run, or the rest of it, does not make, and for ranks."""
    if not steps:
        return
    from ansatz.loop.stages.plan import planned_stages
    from ansatz.loop.stages.rl import RlStage
    from ansatz.train.checkpoint import latest, step_of

    if config.cluster.trainers:
        raise ConfigError("--bundle stores updates of a trainer in one process. Set cluster.trainers to 0.")
    made = set[int]()
    for entry in planned_stages(config):
        if isinstance(entry.stage, RlStage):
            last = latest(config.run_dir / entry.folders[0]) if resume else None
            made |= {*range(1 if last is None else step_of(last) + 1, entry.config.train.steps + 1)}
    if missing := steps - made:
        advice = f"Give steps from {min(made)} to {max(made)}." if made else "Leave --bundle out."
        raise ConfigError(f"--bundle has {min(missing)}, a step of RL that this run does not make. {advice}")


def write_bundles(steps: frozenset[int], trainer: Any, folder: Path, tracker: Any) -> None:
    """Let the trainer of an RL stage store the updates of these steps in folders of their own."""
    if not steps:
        return
    numbers = Counter[int]()

    def store(update: Any) -> None:
        path = folder / "bundles" / f"step-{update.step:06d}-{numbers[update.step]}"
        numbers[update.step] += 1
        update.write(path)
        tracker.event(update.step, "bundle", f"The update is stored in {path}. To look at it: ansatz audit {path}")

    trainer.bundles = dict.fromkeys(steps, store)


def _run(config: Config, steps: frozenset[int], **options: bool) -> None:
    from ansatz.links import check_no_links
    from ansatz.loop.pipeline import run_pipeline
    from ansatz.repeat.card import write_card
    from ansatz.track.base import LOG
    from ansatz.track.console import SafeConsole, open_console, results_table
    from ansatz.track.report import write_report

    if options["resume"]:
        check_no_links(config.run_dir / LOG)  # of which a failing write ends no run

    def report(run: Path) -> None:
        write_report(run)
        write_card(run, config)

    console = SafeConsole()
    if isinstance(config.model.toy, tuple):
        reduced = f"{len(config.model.toy)} reduced keys, which model.toy in the run's config.yaml lists"
        console.print(f"model.toy: random weights of the same architecture, and {reduced}", soft_wrap=True)
    try:
        advice = "The run ended in the middle. Remove the call and continue from the last checkpoint, with --resume."
        with process.report_exits(advice):
            run_dir = run_pipeline(
                config,
                console=open_console(console, log=config.run_dir / LOG),
                report=report,
                watch_trainer=partial(write_bundles, steps),
                **options,
            )
    except (RunInterrupted, ClusterLost) as end:
        say(f"ansatz: {end}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        # Without waiting for threads: a reward that never returns would keep the process alive. And without what Ray
        # does at exit, which waits for its head.
        os._exit(os.EX_TEMPFAIL)
    summary = read_object(run_dir / "summary.json", error=DataError, advice="Resume the run, which writes it again.")
    console.print(results_table(summary["evaluations"]))
    console.print(f"{summary['seconds']:.0f} s. Model: {summary['model']}", soft_wrap=True)
    console.print(f"Report to open: {run_dir / 'report.html'}", soft_wrap=True)
    console.print(f"What it wrote: ansatz view {run_dir}", soft_wrap=True)
