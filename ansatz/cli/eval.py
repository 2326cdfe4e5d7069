"""`ansatz eval MODEL --suite S`: how good a model is on a suite, or several; `--rescore DIR`: grade responses again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.responses import check_ids, fill, model_name
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.errors import ConfigError

if TYPE_CHECKING:
    from ansatz.cli.opened_model import OpenedModel
    from ansatz.evaluate.suites import LoadedSuite


@takes_sampling(temperature=0.7, top_p=0.95)
def eval(
    model: Annotated[
        Path | None, typer.Argument(help="A Hugging Face model folder, such as a checkpoint, or a model of the hub.")
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            help="Names of suites, or problem files (.jsonl, .json, .csv, .tsv or .parquet), separated by commas."
        ),
    ] = "",
    suites: Annotated[
        Path | None, typer.Option(help="Folder that holds SUITE/test.jsonl. Without it suites come from the hub.")
    ] = None,
    problems: Annotated[int, typer.Option(min=0, help="Evaluate on N problems, evenly spaced; 0: all.")] = 0,
    *,
    sampling: ModelSampling,
    rewards: Annotated[
        str,
        typer.Option(
            help="Grade with a reward such as countdown, program, code_tests or judge, or with those of a YAML file, "
            "instead of the verifier's three modes."
        ),
    ] = "",
    thinking_budgets: Annotated[
        str, typer.Option(help="Evaluate once per thinking budget, such as 64,256,0 (0: no limit).")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write; with several suites, OUT/SUITE. Default: evals/MODEL/SUITE."),
    ] = None,
    rescore: Annotated[Path | None, typer.Option(help="Grade the responses in this folder again; no model.")] = None,
) -> None:
    """Sample responses to each problem, grade them in three modes from strict to lenient, and print the scores.

    Writes OUT/rollouts.jsonl as problems finish and OUT/results.json at the end. The same command resumes an
    interrupted evaluation and ends with the same bytes. With --thinking-budgets, each budget gets a folder
    OUT/budget-N, and OUT/budgets.json and budgets.svg compare them.
    """
    if rescore is not None:
        if model is not None or suite:
            raise ConfigError(f"--rescore {rescore} takes model and suite from that folder; leave the others out.")
        parts = _rescored(rescore)
    elif model is None or not suite:
        from ansatz.evaluate.suites import SUITES

        raise ConfigError(
            f"give a model folder and --suite, or --rescore DIR. Suites: {', '.join(SUITES)}, or a problem file."
        )
    else:
        loaded = _load_suites(suite, suites)
        evaluation = Evaluation(model=model, problems=problems, sampling=sampling, rewards=rewards, out=out)
        parts = evaluation.run(loaded, thinking_budgets)

    from rich.console import Console

    console = Console(markup=False)  # names of levels, subjects and suites can contain brackets
    for part in parts:
        console.print(part)


def _load_suites(names: str, folder: Path | None) -> list[LoadedSuite]:
    """The suites of a list with commas. ConfigError if two have the same name, and so the same folder of results."""
    from ansatz.evaluate.suites import load_suite

    loaded = [load_suite(name.strip(), folder=folder) for name in names.split(",") if name.strip()]
    seen: set[str] = set()
    for suite in loaded:
        if suite.card.name in seen:
            raise ConfigError(f"--suite {names}: two suites are called {suite.card.name!r}. Evaluate them separately.")
        seen.add(suite.card.name)
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How to evaluate. problems: how many of each suite, evenly spaced; 0: all. rewards: see `eval_rewards`; empty: the
    verifier, except for suites without gold answers."""

    model: Path
    problems: int
    sampling: ModelSampling
    rewards: str
    out: Path | None

    def run(self, suites: Sequence[LoadedSuite], budgets: str) -> list[Any]:
        """Evaluate on the suites, or resume; returns what is to be printed."""
        from ansatz.cli.eval_tables import budgets_table, results_tables, suite_notes, suites_table
        from ansatz.cli.opened_model import open_model

        for suite in suites:
            check_ids(suite.problems, source=suite.card.file or suite.card.name)
        numbers = self._budgets(budgets)
        with open_model(self.model, self.sampling) as opened:
            if numbers:
                return [budgets_table(self._run_budgets(suite, opened, numbers, suites)) for suite in suites]
            results = [
                self._run_suite(suite, opened, self.sampling, self._folder(suite.card.name, suites)) for suite in suites
            ]
        if len(results) == 1:
            return results_tables(results[0])
        return [suites_table(results), *(note for result in results for note in suite_notes(result))]

    def _run_suite(
        self, suite: LoadedSuite, opened: OpenedModel, sampling: ModelSampling, path: Path
    ) -> dict[str, Any]:
        """Run the evaluation in a folder, or resume it; returns what results.json holds."""
        from ansatz.cli.eval_rewards import grading
        from ansatz.environments.base import bind_environment, check_environment_reward
        from ansatz.evaluate.folder import EvaluationFolder

        folder = EvaluationFolder(path)
        name = suite.card.name
        card = {**dataclasses.asdict(suite.card), "sha256": suite.sha256, "as_on_card": suite.as_on_card}
        problems = suite.evenly_spaced(self.problems)
        with grading(self.rewards, suite=name, problems=problems) as (about, make_grader):
            check_environment_reward(about.get("rewards", ()), bind_environment(opened.environment))
            settings = {"suite": card, **about}
            fill(folder, opened, problems, sampling, about=settings, source=name, make_grader=make_grader)
        return folder.write_results()

    def _budgets(self, budgets: str) -> list[int]:
        from ansatz.evaluate.budgets import parse_budgets

        if budgets and self.sampling.options.thinking_budget:
            raise ConfigError("--thinking-budget and --thinking-budgets exclude each other. Give one of them.")
        return parse_budgets(budgets) if budgets else []

    def _run_budgets(
        self, suite: LoadedSuite, opened: OpenedModel, budgets: Sequence[int], suites: Sequence[LoadedSuite]
    ) -> dict[str, Any]:
        """Run or resume one evaluation per thinking budget; returns what budgets.json holds."""
        from ansatz.evaluate.budgets import budget_folder, budget_folders, write_curve

        base = self._folder(f"{suite.card.name}-budgets", suites)
        for budget in budgets:
            print(f"thinking budget {budget or 'none'}")
            options = self.sampling.options.model_copy(update={"thinking_budget": budget})
            sampling = dataclasses.replace(self.sampling, options=options)
            self._run_suite(suite, opened, sampling, budget_folder(base, budget))
        return write_curve(base, budget_folders(base))

    def _folder(self, name: str, suites: Sequence[LoadedSuite]) -> Path:
        if self.out is None:
            return Path("evals") / model_name(self.model) / name
        return self.out if len(suites) == 1 else self.out / name


def _rescored(path: Path) -> list[Any]:
    """The tables of a folder, or of a curve's folders, after their responses have been graded again."""
    from ansatz.cli.eval_tables import budgets_table, results_tables
    from ansatz.evaluate.budgets import budget_folders, write_curve
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.locks import folder_lock
    from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET
    from ansatz.rewards.pool import WorkerPool

    curve = budget_folders(path)
    for folder in curve or [EvaluationFolder(path)]:
        if "suite" not in folder.settings():
            raise ConfigError(f"{folder.path} was not written by `ansatz eval`: its settings.json names no suite.")
    pool = WorkerPool(ALGEBRA_TARGET)
    try:
        for folder in curve or [EvaluationFolder(path)]:
            folder.settings()  # of another folder, refuses it before a lock file is made in it
            with folder_lock(folder.path):
                folder.grade_again(pool=pool)
    finally:
        pool.close()
    if curve:
        return [budgets_table(write_curve(path, curve))]
    return results_tables(EvaluationFolder(path).write_results())
