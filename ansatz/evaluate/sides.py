"""What can be compared: a folder of `ansatz eval`, a run, or the responses of one evaluation of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ansatz.config.load import parse_yaml
from ansatz.config.sampling import SamplingOptions
from ansatz.data.store import read_problems
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.responses import Response, fields_of
from ansatz.track.jsonl import Row
from ansatz.track.rollout_rows import read_responses
from ansatz.track.runs import PipelineRun, read_pipeline
from ansatz.track.stored_evaluations import StoredEvaluation, stored_evaluations


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison. name: what was given, and of a run, which evaluation. responses: [P][S]; empty for a
    run without stored responses. seed: of the bootstrap. settings: what can make scores differ besides the model.
    row: the evaluation's row of evaluations.jsonl; empty for a folder of `ansatz eval`. run: None for such a folder.
    """

    name: str
    responses: Sequence[Sequence[Response]]
    seed: int
    settings: Mapping[str, Any]
    row: Row = field(default_factory=dict[str, Any])
    run: PipelineRun | None = None

    @property
    def missing(self) -> str:
        """Return a sentence about what is missing; empty if nothing is."""
        if self.responses:
            return ""
        return (
            f"{self.name} has no stored responses (the run is of an older version, or save.samples was false), so it "
            "cannot be paired problem by problem. Run `ansatz eval` with both on the same problems, and compare its "
            "folders."
        )


def read_side(path: Path) -> Side:
    """Return the side that a path names. Of a run, its last evaluation counts. Raise ConfigError if the path names
    none."""
    if path.is_file():
        return _of_file(path)
    if (path / "settings.json").is_file():
        return _of_folder(path)
    if (path / "config.yaml").is_file():
        return _of_run(path)
    raise ConfigError(
        f"{str(path)!r} is neither a run (config.yaml is missing) nor a folder that `ansatz eval` wrote (settings.json "
        "is missing). Give one of these, or a file STAGE/evaluations/SPLIT-STEP.jsonl of a run."
    )


def _of_folder(path: Path) -> Side:
    folder = EvaluationFolder(path)
    settings, responses = folder.settings(), folder.responses()
    return Side(name=str(path), responses=responses, seed=settings["seed"], settings=settings)


def _of_file(path: Path) -> Side:
    folder = path.resolve().parents[2] if len(path.resolve().parents) > 2 else path
    found = [] if not (folder / "config.yaml").is_file() else stored_evaluations(read_pipeline(folder))
    evaluation = next((each for each in found if each.path.resolve() == path.resolve()), None)
    if evaluation is None:
        raise ConfigError(
            f"{path} is not a stored evaluation of a run. Give a run, a folder that `ansatz eval` wrote, or a file "
            "STAGE/evaluations/SPLIT-STEP.jsonl of a run."
        )
    return _side(read_pipeline(folder), str(path), evaluation)


def _of_run(path: Path) -> Side:
    run = read_pipeline(path)
    if stored := stored_evaluations(run):
        last = stored[-1]
        return _side(run, f"{path} ({last.title})", last)
    rows = run.evaluations()
    if not rows:
        raise ConfigError(f"{path} has not been evaluated yet: wait for its first evaluation, or evaluate its model.")
    last = rows[-1]
    name = f"{path} ({last['stage']}, step {last['step']})"
    return Side(name=name, responses=(), seed=int(last.get("seed", 0)), settings=_settings(run), row=last, run=run)


def _side(run: PipelineRun, name: str, evaluation: StoredEvaluation) -> Side:
    place = (evaluation.stage, evaluation.step, evaluation.split)
    rows = [row for row in run.evaluations() if (row["stage"], row["step"], row["split"]) == place]
    problems = {each.id: each for each in read_problems(run.folder / "problems" / f"{evaluation.split}.jsonl")}
    stored = [each for each in read_responses(evaluation.path) if not each.greedy]
    if unknown := next((each.problem for each in stored if each.problem not in problems), None):
        raise DataError(
            f"{evaluation.path} has a response to {unknown!r:.80}, which the run does not have. Restore the file."
        )
    groups: dict[str, list[Response]] = {}
    for each in stored:
        response = Response(
            **fields_of(problems[each.problem]),
            sample=each.sample,
            response=each.text,
            tokens=each.tokens,
            finish=each.finish,
            verdicts={"reward": each.verdict},
        )
        groups.setdefault(each.problem, []).append(response)
    return Side(
        name=name,
        responses=list(groups.values()),
        seed=stored[0].seed if stored else 0,
        settings=_settings(run),
        row=rows[-1] if rows else {},
        run=run,
    )


def _settings(run: PipelineRun) -> dict[str, Any]:
    """Return the settings of a run's evaluations, under the names that `ansatz eval` stores."""
    recipe = parse_yaml(run.config_text, where=str(run.folder / "config.yaml"))
    sections = cast("Mapping[str, Any]", recipe) if isinstance(recipe, Mapping) else {}

    def section(name: str) -> Mapping[str, Any]:
        value = sections.get(name)
        return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}

    return {
        **SamplingOptions().model_dump(mode="json"),
        **section("evaluate"),
        "template": section("data").get("template"),
        "dtype": section("model").get("dtype"),
        "rewards": section("rewards"),
    }
