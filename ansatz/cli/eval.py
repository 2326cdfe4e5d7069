"""`ansatz eval MODEL --suite S`: how good a model is on a suite; `ansatz eval --rescore DIR`: grade responses anew."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.errors import ConfigError, ModelError

LONGEST_DEFAULT = 2048  # response tokens, where the model's context has room for more


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
        _check(k=k, temperature=temperature, top_p=top_p, dtype=dtype)
        sampling = {"k": k, "temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
        how = {"template": template, "batch": batch, "device": device, "dtype": dtype, "threads": threads}
        results = evaluate_model(model, suite, suites, out=out, problems=problems, **sampling, **how)

    from rich.console import Console

    for part in results_tables(results):
        Console().print(part)


def evaluate_model(
    model: Path,
    suite: str,
    folder_of_suites: Path | None,
    *,
    out: Path | None,
    problems: int,
    k: int,
    temperature: float,
    top_p: float,
    max_tokens: int,
    seed: int,
    template: str,
    batch: int,
    device: str,
    dtype: str,
    threads: int,
) -> dict[str, Any]:
    """Runs, or goes on with, the evaluation in `out`; returns what results.json holds."""
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.evaluate.suites import load_suite

    loaded = load_suite(suite, folder=folder_of_suites)
    chosen = loaded.spread(problems)

    from ansatz.models.load import cast, compute_dtype, load_policy
    from ansatz.models.threads import set_threads, usable_cores
    from ansatz.prompts.render import render
    from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET
    from ansatz.rewards.pool import WorkerPool
    from ansatz.rollout.base import Sampling
    from ansatz.rollout.native import NativeSampler

    threads = threads or usable_cores()
    set_threads(threads)
    policy = load_policy(model, device=device)
    cast(policy, compute_dtype(dtype, policy.device))
    prompts = [render(problem, template, policy.tokenizer) for problem in chosen]
    longest = max(len(prompt.token_ids) for prompt in prompts)
    max_tokens = max_tokens or min(LONGEST_DEFAULT, policy.max_context - longest)
    if max_tokens < 1 or longest + max_tokens > policy.max_context:
        raise ModelError(
            f"the longest prompt of {suite} has {longest} tokens; with --max-tokens {max_tokens} that does not fit "
            f"into the model's context of {policy.max_context}. Lower --max-tokens, or use another model or template."
        )
    settings = {
        "suite": _card_fields(loaded),
        "num_problems": len(prompts),
        "model": str(model),
        "model_sha256": model_digest(model),
        "template": template,
        "k": k,
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "seed": seed,
        "batch": batch,
        "device": policy.device.type,
        "dtype": str(policy.dtype).removeprefix("torch."),
        "threads": threads,
    }
    folder = EvaluationFolder(out or Path("evals") / _model_name(model) / loaded.card.name)
    folder.claim(settings)
    sampling = Sampling(num_samples=k, max_response_tokens=max_tokens, temperature=temperature, top_p=top_p, seed=seed)
    pool = WorkerPool(ALGEBRA_TARGET)
    try:
        folder.sample(
            prompts,
            sampler=NativeSampler(policy, max_concurrent=batch * k),
            sampling=sampling,
            batch=batch,
            pool=pool,
            on_problem=lambda done: print(f"\r{done} of {len(prompts)} problems", end="", flush=True),
        )
    finally:
        pool.close()
        print()
    return folder.write_results()


def model_digest(model: Path) -> str:
    """SHA-256 over the names and bytes of a model folder's configs, weights and tokenizer, other files left out."""
    total = hashlib.sha256()
    for path in sorted(model.iterdir()):
        if path.suffix in (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja") and path.name != "state.json":
            with path.open("rb") as file:
                total.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


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


def _check(*, k: int, temperature: float, top_p: float, dtype: str) -> None:
    if temperature == 0 and k > 1:
        raise ConfigError(f"--temperature 0 with --k {k}: every response would be the same. Use --k 1, or noise.")
    if not 0 < top_p <= 1:
        raise ConfigError(f"--top-p {top_p}: expected more than 0 and at most 1 (1: off).")
    if dtype not in ("auto", "float32", "bfloat16"):
        raise ConfigError(f"--dtype {dtype!r}: expected auto, float32 or bfloat16.")


def _card_fields(loaded: Any) -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(loaded.card), "sha256": loaded.sha256, "as_on_card": loaded.as_on_card}


def _model_name(model: Path) -> str:
    """The folder's name; of a checkpoint the run's, the stage's and the step's."""
    parts = model.resolve().parts
    return "-".join((*parts[-4:-2], parts[-1])) if parts[-2:-1] == ("checkpoints",) else parts[-1]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
