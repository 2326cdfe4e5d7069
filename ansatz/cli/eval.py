"""`ansatz eval MODEL --suite S`: how good a model is on a suite; `ansatz eval --rescore DIR`: grade responses anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.drawing import Drawing, draw_into, model_name
from ansatz.errors import ConfigError


def eval(
    model: Annotated[Path | None, typer.Argument(help="A Hugging Face model folder, such as a checkpoint.")] = None,
    suite: Annotated[str, typer.Option(help="A suite's name, or a JSONL file with problem and answer.")] = "",
    suites: Annotated[Path | None, typer.Option(help="Folder that holds SUITE/test.jsonl.")] = None,
    k: Annotated[int, typer.Option(min=1, help="Responses a problem.")] = 8,
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy, with --k 1.")] = 0.7,
    top_p: Annotated[float, typer.Option(help="In (0, 1].")] = 0.95,
    max_tokens: Annotated[int, typer.Option(min=0, help="Of a response; 0: what the context allows, to 2048.")] = 0,
    problems: Annotated[int, typer.Option(min=0, help="So many, spread through the suite; 0: all.")] = 0,
    template: Annotated[str, typer.Option(help="Prompt template: a name, chat, or a .txt file.")] = "boxed",
    seed: Annotated[int, typer.Option(min=0, help="Of the sampling noise and the bootstrap.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Problems sampled together; what is lost when it is cut off.")] = 32,
    device: Annotated[str, typer.Option(help="Such as cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: as many as there are cores.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder to write; evals/MODEL/SUITE if not given.")] = None,
    rescore: Annotated[Path | None, typer.Option(help="Grade the responses of this folder anew; no model.")] = None,
) -> None:
    """Sample k responses a problem, grade them strictly and leniently, and print what that says about the model.

    Writes OUT/rollouts.jsonl as problems are done and OUT/results.json at the end. Run again, it goes on where it
    stopped and ends with the same bytes.
    """
    if rescore is not None:
        if model is not None or suite:
            raise ConfigError(f"--rescore {rescore} takes model and suite from that folder; leave the others out.")
        results = _rescored(rescore)
    elif model is None or not suite:
        from ansatz.evaluate.suites import SUITES

        raise ConfigError(
            f"give a model folder and --suite, or --rescore DIR. Suites: {', '.join(SUITES)}, or a .jsonl file."
        )
    else:
        how = Drawing(
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
        )
        results = evaluate_model(model, suite, suites, out=out, problems=problems, how=how)

    from rich.console import Console

    for part in results_tables(results):
        Console().print(part)


def evaluate_model(
    model: Path, suite: str, folder_of_suites: Path | None, *, out: Path | None, problems: int, how: Drawing
) -> dict[str, Any]:
    """Runs, or goes on with, the evaluation in `out`; returns what results.json holds."""
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.evaluate.suites import load_suite

    loaded = load_suite(suite, folder=folder_of_suites)
    folder = EvaluationFolder(out or Path("evals") / model_name(model) / loaded.card.name)
    draw_into(folder, model, loaded.spread(problems), how, about={"suite": _card_fields(loaded)}, of=suite)
    return folder.write_results()


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
    for reason in dict.fromkeys(reason for mode in modes for reason in scores[mode]["verdicts"]):
        table.add_row(reason, *(_percent(scores[mode]["verdicts"].get(reason, 0.0)) for mode in modes))
    lines = [f"mean length {scores['mean_length']:.1f} tokens, {_percent(scores['truncated_share'])} % cut off"]
    if not suite["as_on_card"]:
        lines.append("the suite's file is another version than the card's")
    for kind in ("by_level", "by_subject"):
        for name, numbers in scores[kind].items():
            low, high = map(_percent, numbers["strict"]["pass@1_interval"])
            lines.append(
                f"{name}: {_percent(numbers['strict']['pass@1'])} [{low}, {high}] of {numbers['num_problems']} problems"
            )
    return [table, "\n".join(lines)]


def _rescored(path: Path) -> dict[str, Any]:
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET
    from ansatz.rewards.pool import WorkerPool

    folder, pool = EvaluationFolder(path), WorkerPool(ALGEBRA_TARGET)
    try:
        folder.grade_again(pool=pool)
    finally:
        pool.close()
    return folder.write_results()


def _card_fields(loaded: Any) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(loaded.card), "sha256": loaded.sha256, "as_on_card": loaded.as_on_card}


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
