"""The common part of the commands that sample from a model: fill a folder with its graded responses to problems."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ansatz.cli.opened_model import OpenedModel, check_model, open_model
from ansatz.cli.sampling_options import ModelSampling
from ansatz.config.chat import Template
from ansatz.config.sampling import THOUGHT_START, SamplingOptions
from ansatz.errors import ConfigError, ModelError
from ansatz.files import file_digest
from ansatz.links import list_folder
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz_verify.pool import WorkerPool

    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.evaluate.responses import ResponseGrader
    from ansatz.models.load import Policy
    from ansatz.types import Problem, Prompt

_MODELS = typer.Argument(
    metavar="MODEL...",
    help="Runs, such as runs/NAME (their final models), Hugging Face model folders, such as checkpoints, or models of "
    "the hub.",
)
Models = Annotated[list[Path], _MODELS]
OptionalModels = Annotated[list[Path] | None, _MODELS]
DEFAULT_LIMIT = 2048  # response tokens with --max-response-tokens 0, if the context has room for more


def sample_into(
    folder: ResponseStore,
    model: Path,
    problems: Sequence[Problem],
    sampling: ModelSampling,
    *,
    source: str,
    **others: Any,
) -> None:
    """Open the model and `fill` the folder with its responses to the problems. source: their files. others: see
    `fill`."""
    from ansatz.evaluate.suites import check_ids, problems_digest

    check_ids(problems, source=source)
    about = {"data": source, "data_sha256": problems_digest(problems)}
    with open_model(model, sampling) as opened:
        fill(folder, opened, problems, sampling, about=about, source=source, **others)


def fill(
    folder: ResponseStore,
    opened: OpenedModel,
    problems: Sequence[Problem],
    sampling: ModelSampling,
    *,
    about: Mapping[str, Any],
    source: str,
    to_prompt: Callable[[Problem, Template, Any], Prompt] | None = None,
    make_grader: Callable[[WorkerPool], ResponseGrader] | None = None,
) -> None:
    """Fill the folder with the model's responses to the problems, or with those that an earlier call did not get to.

    about: the first entries of the folder's settings. source: the name of the problems in error messages. to_prompt:
    renders a problem in a template for a tokenizer; default: `prompts.render`. make_grader: the grader that uses a
    worker pool; default: the one that reads each response in all modes. Raise ConfigError if another process fills the
    folder.
    """
    from ansatz_verify.grade import ALGEBRA_TARGET
    from ansatz_verify.pool import WorkerPool

    from ansatz.evaluate.responses import all_modes_grader, with_transcripts
    from ansatz.locks import folder_lock
    from ansatz.prompts.render import render
    from ansatz.rollout.base import Sampling

    tokenizer = opened.policy.tokenizer
    prompts = [(to_prompt or render)(problem, opened.template, tokenizer) for problem in opened.with_openings(problems)]
    options = fitting_options(sampling, prompts, opened.policy, source=source)
    sampler = opened.sampler_for(sampling)
    settings = _settings(opened, prompts, sampling, options, about)
    with closing(WorkerPool(ALGEBRA_TARGET)) as pool, folder_lock(folder.path):
        grader = (make_grader or all_modes_grader)(pool)
        folder.open_or_check(settings)
        folder.sample(
            prompts,
            sampler=sampler,
            sampling=Sampling.of(options, seed=sampling.seed),
            batch=sampling.batch,
            grader=grader if opened.spec is None else with_transcripts(grader, tokenizer),
            on_problem=lambda done: _print_progress(done, len(prompts)),
        )
    if count := getattr(sampler, "num_forced", 0):
        say(f"{sampling.wait!r} made thoughts go on {count} times")


def _settings(
    opened: OpenedModel,
    prompts: Sequence[Prompt],
    sampling: ModelSampling,
    options: SamplingOptions,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that the responses and their verdicts depend on, with the digests of the user's own files."""
    from ansatz.loop.user_code import file_digests

    template = opened.template if isinstance(opened.template, str) else opened.template.model_dump()
    templates = [template, *(prompt.problem.template for prompt in prompts)]
    files = file_digests({"template": templates, "rewards": about.get("rewards"), "environment": opened.environment})
    begin_in_thoughts = all(prompt.text.rstrip().endswith(THOUGHT_START) for prompt in prompts)
    return {
        **about,
        "num_problems": len(prompts),
        "model": str(opened.path),
        "model_sha256": model_digest(Path(opened.policy.path)),
        "template": template,
        **options.model_dump(mode="json"),
        "seed": sampling.seed,
        "batch": sampling.batch,
        **opened.settings(),
        **({"opening": THOUGHT_START} if begin_in_thoughts else {}),
        **({"min_thinking_budget": least, "wait": sampling.wait} if (least := sampling.min_thinking_budget) else {}),
        **({"files": files} if files else {}),
    }


def fitting_options(
    sampling: ModelSampling, prompts: Sequence[Prompt], policy: Policy, *, source: str
) -> SamplingOptions:
    """Return the options with the longest response that the context allows, if they do not limit it themselves."""
    limit = _response_limit(sampling.options.max_response_tokens, prompts, policy.max_context, source=source)
    options = sampling.options.model_copy(update={"max_response_tokens": limit})
    closing_tokens = len(policy.tokenizer.encode(options.closing, add_special_tokens=False))
    _check_budget(options.thinking_budget, limit, closing_tokens)
    if (least := sampling.min_thinking_budget) >= (most := options.thinking_budget or limit):
        raise ConfigError(
            f"--min-thinking-budget = {least} leaves no room: a thought can have {most} tokens (--thinking-budget, "
            "--max-response-tokens). Make it smaller."
        )
    return options


def _print_progress(done: int, total: int) -> None:
    """Print a count that is overwritten in a terminal; elsewhere only the last one is printed."""
    if sys.stdout.isatty():
        print(f"\r{done} of {total} problems", end="\n" if done == total else "", flush=True)
    elif done == total:
        say(f"{done} of {total} problems", flush=True)


def _response_limit(limit: int, prompts: Sequence[Prompt], max_context: int, *, source: str) -> int:
    """Return the longest response that fits into the context after every prompt. Raise ModelError if there is no room
    for it."""
    longest = max(len(prompt.token_ids) for prompt in prompts)
    if longest >= max_context:
        raise ModelError(
            f"the longest prompt of {source} has {longest} tokens, which leaves no room for a response in the model's "
            f"context of {max_context}. Use another model or template, or leave long questions out (ansatz data filter "
            "--max-question-tokens)."
        )
    limit = limit or min(DEFAULT_LIMIT, max_context - longest)
    if longest + limit > max_context:
        raise ModelError(
            f"the longest prompt of {source} has {longest} tokens; with --max-response-tokens {limit} that does not "
            f"fit into the model's context of {max_context}. Lower --max-response-tokens, use another model or "
            "template, or leave long questions out (ansatz data filter --max-question-tokens)."
        )
    return limit


def _check_budget(thinking_budget: int, limit: int, closing_tokens: int) -> None:
    """Raise ConfigError if budget and closing leave no token for the answer."""
    if thinking_budget and thinking_budget + closing_tokens >= limit:
        raise ConfigError(
            f"a thinking budget of {thinking_budget} and the {closing_tokens} tokens of --closing leave no room "
            f"for an answer within --max-response-tokens {limit}. Lower the budget or raise the limit."
        )


def model_digest(model: Path) -> str:
    """Return SHA-256 over the names and bytes of a model folder's configs, weights and tokenizer. Other files do not
    count."""
    total = hashlib.sha256()
    for path in list_folder(model):
        counts = path.suffix in (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja")
        if counts and path.name != "state.json" and path.is_file():
            total.update(f"{path.name}:{file_digest(path)}\n".encode())
    return total.hexdigest()


def model_names(models: Sequence[Path], *, trust_code: bool | None = None) -> list[str]:
    """Return the names of the default folders of the models' responses: the name of the model's folder; for a
    checkpoint, the names of run, stage and step. Of a run, the final checkpoint counts. Raise ConfigError if two models
    share a name. trust_code: see `model_of`."""
    for model in models:
        check_model(model)

    from ansatz.loop.run_models import model_of

    names = list[str]()
    for model in models:
        parts = model_of(model, trust_code=trust_code).resolve().parts
        name = "-".join((*parts[-4:-2], parts[-1])) if parts[-2:-1] == ("checkpoints",) else parts[-1]
        if name in names:
            raise ConfigError(f"{model}: two models are called {name}. Give them one at a time, each with --out.")
        names.append(name)
    return names
