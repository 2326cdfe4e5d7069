"""`ansatz eval MODEL --suite S`: how good a model is on a suite; `ansatz eval --rescore DIR`: grade responses anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.rows import Batch, Device, Dtype, MaxTokens, Temperature, Template, Threads, TopP
from ansatz.cli.sampling_options import SamplingOptions, model_name, sample_into
from ansatz.errors import ConfigError


def eval(
    model: Annotated[Path | None, typer.Argument(help="A Hugging Face model folder, such as a checkpoint.")] = None,
    suite: Annotated[str, typer.Option(help="A suite's name, or a JSONL file with problem and answer.")] = "",
    suites: Annotated[Path | None, typer.Option(help="Folder that holds SUITE/test.jsonl.")] = None,
    k: Annotated[int, typer.Option(min=1, help="Responses a problem.")] = 8,
    temperature: Temperature = 0.7,
    top_p: TopP = 0.95,
    max_tokens: MaxTokens = 0,
    problems: Annotated[int, typer.Option(min=0, help="So many, spread through the suite; 0: all.")] = 0,
    template: Template = "boxed",
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling noise and the bootstrap.")] = 0,
    batch: Batch = 32,
    device: Device = None,
    dtype: Dtype = "auto",
    threads: Threads = 0,
    budgets: Annotated[str, typer.Option(help="Thinking budgets in tokens, such as 64,256,0 (0: no bound).")] = "",
    closing: Annotated[str, typer.Option(help="Text that is forced in where a budget ends a thought.")] = "</think>",
    out: Annotated[Path | None, typer.Option(help="Folder to write; evals/MODEL/SUITE if not given.")] = None,
    rescore: Annotated[Path | None, typer.Option(help="Grade the responses of this folder anew; no model.")] = None,
) -> None:
    """Sample k responses a problem, grade them strictly and leniently, and print what that says about the model.

    Writes OUT/rollouts.jsonl as problems are done and OUT/results.json at the end. Run again, it goes on where it
    stopped and ends with the same bytes. With --budgets each budget has such a folder OUT/budget-N, and their curve
    stands in OUT/budgets.json and budgets.svg.
    """
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
        how = SamplingOptions(
            k=k,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            seed=seed,
            template=template,
            batch=batch,
            device=device,
            dtype=dtype,
            threads=threads,
            closing=closing,
        )
        where = {"out": out, "problems": problems}
        if budgets:
            parts = [budgets_table(evaluate_budgets(model, suite, suites, budgets=budgets, how=how, **where))]
        else:
            parts = results_tables(evaluate_model(model, suite, suites, how=how, **where))

    from rich.console import Console

    for part in parts:
        Console().print(part)


def evaluate_model(
    model: Path, suite: str, folder_of_suites: Path | None, *, out: Path | None, problems: int, how: SamplingOptions
) -> dict[str, Any]:
    """Runs, or goes on with, the evaluation in `out`; returns what results.json holds."""
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.evaluate.suites import load_suite

    loaded = load_suite(suite, folder=folder_of_suites)
    folder = EvaluationFolder(out or Path("evals") / model_name(model) / loaded.card.name)
    sample_into(folder, model, loaded.spread(problems), how, about={"suite": _card_fields(loaded)}, of=suite)
    return folder.write_results()


def evaluate_budgets(
    model: Path,
    suite: str,
    folder_of_suites: Path | None,
    *,
    budgets: str,
    out: Path | None,
    problems: int,
    how: SamplingOptions,
) -> dict[str, Any]:
    """Runs, or goes on with, an evaluation for each thinking budget; returns what budgets.json holds."""
    from ansatz.evaluate.budgets import budget_folder, budget_folders, parse_budgets, write_curve
    from ansatz.evaluate.suites import load_suite

    numbers = parse_budgets(budgets)
    name = load_suite(suite, folder=folder_of_suites).card.name
    base = out or Path("evals") / model_name(model) / f"{name}-budgets"
    for budget in numbers:
        print(f"thinking budget {budget or 'none'}")
        place = budget_folder(base, budget)
        bounded = dataclasses.replace(how, thinking_budget=budget)
        evaluate_model(model, suite, folder_of_suites, out=place, problems=problems, how=bounded)
    return write_curve(base, budget_folders(base))


def budgets_table(curve: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    name = curve["settings"]["suite"]["name"]
    table = Table(title=f"{name} by thinking budget, %", title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    modes = [name for name, value in curve["rows"][0].items() if isinstance(value, dict) and "pass@1" in value]
    for head in ("budget", "mean tokens", "closed by force", "cut off", *modes):
        table.add_column(head, justify="right")
    for row in curve["rows"]:
        shares = (row["finishes"].get("budget", 0.0), row["truncated_frac"])
        scores = ("{} [{}, {}]".format(*map(_percent, _with_interval(row[mode]))) for mode in modes)
        length = f"{row['mean_length']:.1f}"
        table.add_row(str(row["budget"] or "none"), length, *map(_percent, shares), *scores)
    return table


def _with_interval(numbers: Mapping[str, Any]) -> list[float]:
    return [numbers["pass@1"], *numbers["pass@1_interval"]]


def results_tables(results: Mapping[str, Any]) -> list[Any]:
    """What a person sees: the three readings side by side, then levels and subjects under the strict one."""
    from rich import box
    from rich.table import Table

    settings, scores = results["settings"], results["scores"]
    modes = [name for name, value in scores.items() if isinstance(value, dict) and "pass@1" in value]
    suite = settings["suite"]
    title = (
        f"{suite['name']}: {scores['num_problems']} problems x {settings['k']}, temperature {settings['temperature']}"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("%", *modes):
        table.add_column(head, justify="right")
    table.add_row("pass@1", *(_percent(scores[mode]["pass@1"]) for mode in modes))
    table.add_row("95 %", *("{} to {}".format(*map(_percent, scores[mode]["pass@1_interval"])) for mode in modes))
    for name in ("pass@k", "maj@k"):
        for key in list(scores[modes[0]][name])[1:]:
            table.add_row(f"{name[:-1]}{key}", *(_percent(scores[mode][name][key]) for mode in modes))
    if scores[modes[0]]["cons@64"] is not None:
        table.add_row("cons@64", *(_percent(scores[mode]["cons@64"]) for mode in modes))
    for reason in dict.fromkeys(reason for mode in modes for reason in scores[mode]["verdicts"]):
        table.add_row(reason, *(_percent(scores[mode]["verdicts"].get(reason, 0.0)) for mode in modes))
    lines = [f"mean length {scores['mean_length']:.1f} tokens, {_percent(scores['truncated_frac'])} % cut off"]
    shapes = [f"{shape} {_percent(share)}" for shape, share in scores["format_frac"].items()]
    lines.append(f"well formed, %: {', '.join(shapes)}")
    if not suite["as_on_card"]:
        lines.append("the suite's file is another version than the card's")
    for kind in ("by_level", "by_subject"):
        for name, numbers in scores[kind].items():
            low, high = map(_percent, numbers["strict"]["pass@1_interval"])
            lines.append(
                f"{name}: {_percent(numbers['strict']['pass@1'])} [{low}, {high}] of {numbers['num_problems']} problems"
            )
    return [table, "\n".join(lines)]


def _rescored(path: Path) -> list[Any]:
    """What is shown of a folder, or of a curve's folders, after its responses have been graded anew."""
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
    return (
        [budgets_table(write_curve(path, curve))] if curve else results_tables(EvaluationFolder(path).write_results())
    )


def _card_fields(loaded: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(loaded.card), "sha256": loaded.sha256, "as_on_card": loaded.as_on_card}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
