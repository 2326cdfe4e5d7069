"""Evaluations of the same problems compared with the first, for the terminal, the report and the viewer.

Each side is a folder of `ansatz eval`, a run, or the responses of one evaluation of a run. Axes: P problems that both
have. Everything is paired by problem: a problem that is hard for both says nothing about either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, fsum
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from ansatz.config.load import parse_yaml
from ansatz.config.sampling import SamplingOptions
from ansatz.data.store import read_problems
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.estimators import bootstrap_interval, split_by
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.responses import Response, fields_of
from ansatz.evaluate.scores import modes_of
from ansatz.track.jsonl import Row
from ansatz.track.report_of_runs import differing_keys
from ansatz.track.rollout_rows import read_responses
from ansatz.track.runs import PipelineRun, read_pipeline
from ansatz.track.stored_evaluations import StoredEvaluation, stored_evaluations
from ansatz.types import UNGRADED


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison. name: the path that was given; for a run, also its evaluation. responses: [P][S]; empty
    for a run without stored responses. num_ungraded: problems that are left out of them, because no reward of the run
    says which responses are correct. seed: of the bootstrap. settings: the settings that can make scores differ
    besides the model. row: the evaluation's row of evaluations.jsonl; empty for a folder of `ansatz eval`. run: None
    for such a folder.
    """

    name: str
    responses: Sequence[Sequence[Response]]
    num_ungraded: int = 0
    seed: int
    settings: Mapping[str, Any]
    row: Row = field(default_factory=dict[str, Any])
    run: PipelineRun | None = None

    @property
    def num_problems(self) -> int:
        return len(self.responses) + self.num_ungraded

    @property
    def missing(self) -> str:
        """Return a sentence about missing responses or verdicts; empty if none are missing."""
        if self.responses:
            return ""
        if self.num_ungraded:
            return (
                f"{self.name}: no reward of the run says which responses are correct, so pass@1 cannot be "
                "compared. Run `ansatz eval` with both on the same problems, and compare its folders."
            )
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
    run = read_pipeline(folder) if (folder / "config.yaml").is_file() else None
    found = [] if run is None else stored_evaluations(run)
    evaluation = next((each for each in found if each.path.resolve() == path.resolve()), None)
    if run is None or evaluation is None:
        raise ConfigError(
            f"{path} is not a stored evaluation of a run. Give a run, a folder that `ansatz eval` wrote, or a file "
            "STAGE/evaluations/SPLIT-STEP.jsonl of a run."
        )
    return _side(run, str(path), evaluation)


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
    graded = {each.problem for each in stored if each.verdict.stage != UNGRADED}
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
        responses=[group for problem, group in groups.items() if problem in graded],
        num_ungraded=len(groups.keys() - graded),
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
        "template": section("evaluate").get("template") or section("data").get("template"),
        "dtype": section("model").get("dtype"),
        "environment": section("environment") or None,
        "rewards": section("rewards"),
    }


Pair = tuple[Sequence[Response], Sequence[Response]]


def paired(a: Sequence[Sequence[Response]], b: Sequence[Sequence[Response]]) -> list[Pair]:
    """Return the samples of each problem that both have, in the order of `a`.

    Raise ConfigError if there is none. Raise DataError if a problem has different questions or answers in the two.
    """
    b_by_id = {samples[0].id: samples for samples in b}
    pairs = [(samples, b_by_id[samples[0].id]) for samples in a if samples[0].id in b_by_id]
    if not pairs:
        raise ConfigError(
            f"the two evaluations have no problem in common (they start with {a[0][0].id!r} and {b[0][0].id!r}). "
            "Compare evaluations on the same problems."
        )
    for left, right in pairs:
        if (left[0].question, left[0].answer) != (right[0].question, right[0].answer):
            raise DataError(
                f"problem {left[0].id!r} is not the same in both evaluations (answers {left[0].answer!r} and "
                f"{right[0].answer!r}). Compare evaluations on the same version of the problems."
            )
    return pairs


def comparison(pairs: Sequence[Pair], *, mode: str, seed: int, num_changed: int = 10) -> dict[str, Any]:
    """Return how B compares with A in one mode.

    Keys: num_problems, a and b (pass@1), difference (b - a) with its 95 % paired bootstrap interval, wins_a, wins_b and
    ties (numbers of problems where A, B or neither gets the higher fraction of correct responses), p_value (see
    `sign_test`), by_level and by_subject (the same for each), and changed: at most `num_changed` problems, those that
    changed most.
    """
    return {
        **_numbers(pairs, mode=mode, seed=seed),
        "by_level": _parts(pairs, lambda response: response.level, mode=mode, seed=seed),
        "by_subject": _parts(pairs, lambda response: response.subject, mode=mode, seed=seed),
        "changed": _list_changed(pairs, mode=mode)[:num_changed],
    }


def sign_test(wins_a: int, wins_b: int) -> float:
    """Return the exact two-sided p-value of the split of untied problems under a fair coin; 1 if all problems are tied.

    With one sample per problem it is McNemar's exact test (https://doi.org/10.1007/BF02295996).
    """
    count, fewer = wins_a + wins_b, min(wins_a, wins_b)
    tail = sum(comb(count, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / 2**count)


def _numbers(pairs: Sequence[Pair], *, mode: str, seed: int) -> dict[str, Any]:
    a_P = [_correct_frac(left, mode) for left, _ in pairs]
    b_P = [_correct_frac(right, mode) for _, right in pairs]
    change_P = [b - a for a, b in zip(a_P, b_P, strict=True)]
    wins_a, wins_b = sum(change < 0 for change in change_P), sum(change > 0 for change in change_P)
    return {
        "num_problems": len(pairs),
        "a": fmean(a_P),
        "b": fmean(b_P),
        "difference": fsum(change_P) / len(pairs),
        "difference_interval": list(bootstrap_interval(change_P, seed=seed)),
        "wins_a": wins_a,
        "wins_b": wins_b,
        "ties": len(pairs) - wins_a - wins_b,
        "p_value": sign_test(wins_a, wins_b),
    }


def _parts(pairs: Sequence[Pair], label: Callable[[Response], str], *, mode: str, seed: int) -> dict[str, Any]:
    parts = split_by(pairs, lambda pair: label(pair[0][0]))
    return {name: _numbers(part, mode=mode, seed=seed) for name, part in parts.items()}


def _list_changed(pairs: Sequence[Pair], *, mode: str) -> list[dict[str, Any]]:
    rows = [
        {
            "id": left[0].id,
            "question": left[0].question,
            "a": _correct_frac(left, mode),
            "b": _correct_frac(right, mode),
        }
        for left, right in pairs
    ]
    moved = [row for row in rows if row["a"] != row["b"]]
    return sorted(moved, key=lambda row: -abs(row["b"] - row["a"]))  # stable: ties stay in the suite's order


def _correct_frac(samples: Sequence[Response], mode: str) -> float:
    return sum(response.verdicts[mode].correct for response in samples) / len(samples)


NUM_CHANGED = 20
"""Problems that changed most, which pages of several runs show."""


def compare_sides(paths: Sequence[Path], *, mode: str, num_changed: int) -> list[dict[str, Any]]:
    """Return each path but the first compared with the first: the numbers of `comparison` in a mode (empty: the
    first one), the folders, and `warnings` about other differences. If one of the two has no stored responses or no
    verdicts, `missing` says so, and there are only the two scores that the runs have logged. recipes: of two runs, a
    sentence for each key that differs, and one for the numbers of steps."""
    first, *others = (read_side(path) for path in paths)
    return [_compare(first, other, mode=mode, num_changed=num_changed) for other in others]


def _compare(a: Side, b: Side, *, mode: str, num_changed: int) -> dict[str, Any]:
    names = {"folder_a": a.name, "folder_b": b.name, "recipes": _compare_recipes(a, b)}
    if missing := [side.missing for side in (a, b) if side.missing]:
        return {**names, "missing": missing, "rows": [side.row for side in (a, b)]}
    mode = mode or modes_of(a.responses)[0]
    for side in (a, b):
        if mode not in (modes := modes_of(side.responses)):
            raise ConfigError(
                f"--mode = {mode!r}: {side.name} has verdicts of {', '.join(modes)}. Choose one of these."
            )
    pairs = paired(a.responses, b.responses)
    numbers = comparison(pairs, mode=mode, seed=a.seed, num_changed=num_changed)
    warnings = _differences(a.settings, b.settings)
    if len(pairs) < max(a.num_problems, b.num_problems):
        count = f"A has {a.num_problems}, B has {b.num_problems}"
        warnings.append(f"only the {len(pairs)} problems with verdicts in both count; {count}")
    return {**names, "mode": mode, "warnings": warnings, **numbers}


def _compare_recipes(a: Side, b: Side) -> list[str]:
    if a.run is None or b.run is None:
        return []
    keys = [f"{key}: A {left}, B {right}" for key, (left, right) in differing_keys([a.run, b.run])]
    steps = [
        ", ".join(f"{stage.name} {stage.last_step}" for stage in run.stages if stage.metrics) or "none"
        for run in (a.run, b.run)
    ]
    trained = f"steps: {steps[0]} in both" if steps[0] == steps[1] else f"steps: A {steps[0]}; B {steps[1]}"
    return [*(keys or ["The recipes are the same."]), trained]


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return settings other than the model that differ and can cause a difference in scores."""
    keys = ["template", *SamplingOptions.model_fields, "min_thinking_budget", "wait"]
    keys += ["environment", "dtype", "engine", "rewards"]
    if "files" in a and "files" in b:  # digests, which a run has in its record instead
        keys.append("files")
    return [f"{key}: A {a.get(key)!r}, B {b.get(key)!r}" for key in keys if a.get(key) != b.get(key)]


def conclusion(numbers: Mapping[str, Any]) -> str:
    """Return a sentence about the difference. Interval and test must agree: with few problems the interval is too
    narrow, and the sign test ignores by how much a problem differs."""
    low, high = numbers["difference_interval"]
    if (low > 0 or high < 0) and numbers["p_value"] < 0.05:
        return f"{'B' if low > 0 else 'A'} is better: the interval of the difference excludes 0, and p < 0.05."
    return "No difference shown: that needs an interval of the difference that excludes 0, and p < 0.05."


def compare_runs(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Return each run but the first compared with the first, as `compare_sides` does, and its `conclusion`. One that
    cannot be compared has only `missing`, which says why."""
    out = list[dict[str, Any]]()
    for other in runs[1:]:
        try:
            (numbers,) = compare_sides([runs[0], other], mode="", num_changed=NUM_CHANGED)
        except (ConfigError, DataError) as error:
            numbers = {"missing": [f"{other} is not compared with {runs[0]}: {error}"]}
        out.append(numbers if "missing" in numbers else {**numbers, "conclusion": conclusion(numbers)})
    return out
