"""`ansatz eval MODEL --suite S`: how good a model is on a suite; `ansatz eval --rescore DIR`: grade responses again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.responses import model_name, sample_into
from ansatz.cli.sampling_options import ModelSampling, takes_sampling
from ansatz.errors import ConfigError


@takes_sampling(temperature=0.7, top_p=0.95)
def eval(
    model: Annotated[Path | None, typer.Argument(help="A Hugging Face model folder, such as a checkpoint.")] = None,
    suite: Annotated[str, typer.Option(help="A suite's name, or a JSONL file with problem and answer.")] = "",
    suites: Annotated[Path | None, typer.Option(help="Folder that holds SUITE/test.jsonl.")] = None,
    problems: Annotated[int, typer.Option(min=0, help="Evaluate on N problems, evenly spaced; 0: all.")] = 0,
    *,
    sampling: ModelSampling,
    thinking_budgets: Annotated[
        str, typer.Option(help="Evaluate once per thinking budget, such as 64,256,0 (0: no limit).")
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder to write. Default: evals/MODEL/SUITE.")] = None,
    rescore: Annotated[Path | None, typer.Option(help="Grade the responses in this folder again; no model.")] = None,
) -> None:
    """Sample responses to each problem, grade them in three modes from strict to lenient, and print the scores.

    Writes OUT/rollouts.jsonl as problems finish and OUT/results.json at the end. The same command resumes an
    interrupted evaluation and ends with the same bytes. With --thinking-budgets, each budget gets a folder
    OUT/budget-N, and OUT/budgets.json and budgets.svg compare them.
    """
    from ansatz.cli.eval_tables import budgets_table, results_tables

    if rescore is not None:
        if model is not None or suite:
            raise ConfigError(f"--rescore {rescore} takes model and suite from that folder; leave the others out.")
        parts = _rescored(rescore)
    elif model is None or not suite:
        from ansatz.evaluate.suites import SUITES

        raise ConfigError(
            f"give a model folder and --suite, or --rescore DIR. Suites: {', '.join(SUITES)}, or a .jsonl file."
        )
    else:
        evaluation = Evaluation(model=model, suite=suite, suites=suites, problems=problems, sampling=sampling, out=out)
        if thinking_budgets:
            parts = [budgets_table(evaluation.run_budgets(thinking_budgets))]
        else:
            parts = results_tables(evaluation.run())

    from rich.console import Console

    console = Console(markup=False)  # names of levels, subjects and suites can contain brackets
    for part in parts:
        console.print(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What to evaluate on what. suites: folder of suite files. problems: how many, evenly spaced; 0: all."""

    model: Path
    suite: str
    suites: Path | None
    problems: int
    sampling: ModelSampling
    out: Path | None

    def run(self) -> dict[str, Any]:
        """Run the evaluation in `out`, or resume it; returns what results.json holds."""
        from ansatz.evaluate.folder import EvaluationFolder
        from ansatz.evaluate.suites import load_suite

        suite = load_suite(self.suite, folder=self.suites)
        folder = EvaluationFolder(self.out or self._default_folder(suite.card.name))
        card = {**dataclasses.asdict(suite.card), "sha256": suite.sha256, "as_on_card": suite.as_on_card}
        problems = suite.evenly_spaced(self.problems)
        sample_into(folder, self.model, problems, self.sampling, about={"suite": card}, source=self.suite)
        return folder.write_results()

    def run_budgets(self, budgets: str) -> dict[str, Any]:
        """Run or resume one evaluation per thinking budget; returns what budgets.json holds."""
        from ansatz.evaluate.budgets import budget_folder, budget_folders, parse_budgets, write_curve
        from ansatz.evaluate.suites import load_suite

        if self.sampling.options.thinking_budget:
            raise ConfigError("--thinking-budget and --thinking-budgets exclude each other. Give one of them.")
        numbers = parse_budgets(budgets)
        name = load_suite(self.suite, folder=self.suites).card.name
        base = self.out or self._default_folder(f"{name}-budgets")
        for budget in numbers:
            print(f"thinking budget {budget or 'none'}")
            options = self.sampling.options.model_copy(update={"thinking_budget": budget})
            sampling = dataclasses.replace(self.sampling, options=options)
            dataclasses.replace(self, sampling=sampling, out=budget_folder(base, budget)).run()
        return write_curve(base, budget_folders(base))

    def _default_folder(self, name: str) -> Path:
        return Path("evals") / model_name(self.model) / name


def _rescored(path: Path) -> list[Any]:
    """The tables of a folder, or of a curve's folders, after their responses have been graded again."""
    from ansatz.cli.eval_tables import budgets_table, results_tables
    from ansatz.evaluate.budgets import budget_folders, write_curve
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET
    from ansatz.rewards.pool import WorkerPool

    curve = budget_folders(path)
    pool = WorkerPool(ALGEBRA_TARGET)
    try:
        for folder in curve or [EvaluationFolder(path)]:
            folder.grade_again(pool=pool)
    finally:
        pool.close()
    if curve:
        return [budgets_table(write_curve(path, curve))]
    return results_tables(EvaluationFolder(path).write_results())
