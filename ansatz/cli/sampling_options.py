"""What the verbs share that sample from a model: the settings, and a folder of responses filled with them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansatz.errors import ConfigError, DataError, ModelError

if TYPE_CHECKING:
    from ansatz.evaluate.response_store import ResponseStore
    from ansatz.evaluate.responses import Judge
    from ansatz.rewards.pool import WorkerPool
    from ansatz.types import Problem, Prompt

THOUGHT_START, THOUGHT_END = "<think>", "</think>"
LONGEST_DEFAULT = 2048  # response tokens, where the model's context has room for more


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """How responses are drawn. k: responses a problem. max_tokens: of a response; 0: what the context allows, to 2048.
    batch: problems sampled together. threads: 0: as many as there are cores. thinking_budget: after so many tokens
    without </think> `closing` is forced in; 0: off. ConfigError for what cannot be."""

    k: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int
    template: str
    batch: int
    device: str | None
    dtype: str
    threads: int
    thinking_budget: int = 0
    closing: str = THOUGHT_END

    def __post_init__(self) -> None:
        if self.temperature == 0 and self.k > 1:
            raise ConfigError(
                f"--temperature 0 with --k {self.k}: every response would be the same. Use --k 1, or noise."
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p {self.top_p}: expected more than 0 and at most 1 (1: off).")
        if self.dtype not in ("auto", "float32", "bfloat16"):
            raise ConfigError(f"--dtype {self.dtype!r}: expected auto, float32 or bfloat16.")
        if THOUGHT_END not in self.closing:
            raise ConfigError(f"--closing {self.closing!r} does not close a thought: put {THOUGHT_END} in it.")


def sample_into(
    folder: ResponseStore,
    model: Path,
    problems: Sequence[Problem],
    how: SamplingOptions,
    *,
    about: Mapping[str, Any],
    of: str,
    as_prompt: Callable[[Problem, str, Any], Prompt] | None = None,
    judged: Callable[[WorkerPool], Judge] | None = None,
) -> None:
    """Fills the folder with responses of the model in a folder, or goes on with it.

    about: what to put at the head of its settings. of: what the problems are called where they are complained of.
    as_prompt: a problem in a template for a tokenizer, `prompts.render` if not given. judged: the judge with a worker
    pool, that of all readings if not given.
    """
    check_ids(problems, of=of)

    from ansatz.evaluate.responses import read_by_all_modes
    from ansatz.models.load import cast, compute_dtype, load_policy
    from ansatz.models.threads import set_threads, usable_cores
    from ansatz.prompts.render import render
    from ansatz.rewards.math_answer.verify import ALGEBRA_TARGET
    from ansatz.rewards.pool import WorkerPool
    from ansatz.rollout.base import Sampling
    from ansatz.rollout.native import NativeSampler

    threads = how.threads or usable_cores()
    set_threads(threads)
    policy = load_policy(model, device=how.device)
    cast(policy, compute_dtype(how.dtype, policy.device))
    prompts = [(as_prompt or render)(problem, how.template, policy.tokenizer) for problem in problems]
    max_tokens = _room(how.max_tokens, prompts, policy.max_context, of=of)
    _check_budget(how, max_tokens, len(policy.tokenizer.encode(how.closing, add_special_tokens=False)))
    folder.claim(
        {
            **about,
            "num_problems": len(prompts),
            "model": str(model),
            "model_sha256": model_digest(model),
            "template": how.template,
            "k": how.k,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "max_tokens": max_tokens,
            "seed": how.seed,
            "batch": how.batch,
            "device": policy.device.type,
            "dtype": str(policy.dtype).removeprefix("torch."),
            "threads": threads,
            **_form(how, prompts),
        }
    )
    pool = WorkerPool(ALGEBRA_TARGET)
    try:
        folder.sample(
            prompts,
            sampler=NativeSampler(policy, max_concurrent=how.batch * how.k),
            sampling=Sampling(
                num_samples=how.k,
                max_response_tokens=max_tokens,
                temperature=how.temperature,
                top_p=how.top_p,
                seed=how.seed,
                thinking_budget=how.thinking_budget,
                closing=how.closing,
            ),
            batch=how.batch,
            judge=(judged or read_by_all_modes)(pool),
            on_problem=lambda done: _tell(done, len(prompts)),
        )
    finally:
        pool.close()


def _tell(done: int, total: int) -> None:
    """A count that is written over where a person is there to see it; else its end alone."""
    if sys.stdout.isatty():
        print(f"\r{done} of {total} problems", end="\n" if done == total else "", flush=True)
    elif done == total:
        print(f"{done} of {total} problems", flush=True)


def _room(max_tokens: int, prompts: Sequence[Prompt], max_context: int, *, of: str) -> int:
    """Response tokens that every prompt leaves room for. ModelError where there is none."""
    longest = max(len(prompt.token_ids) for prompt in prompts)
    max_tokens = max_tokens or min(LONGEST_DEFAULT, max_context - longest)
    if max_tokens < 1 or longest + max_tokens > max_context:
        raise ModelError(
            f"the longest prompt of {of} has {longest} tokens; with --max-tokens {max_tokens} that does not fit "
            f"into the model's context of {max_context}. Lower --max-tokens, use another model or template, or leave "
            "long questions out (ansatz data filter --max-question-tokens)."
        )
    return max_tokens


def _check_budget(how: SamplingOptions, max_tokens: int, closing_tokens: int) -> None:
    if how.thinking_budget and how.thinking_budget + closing_tokens >= max_tokens:
        raise ConfigError(
            f"a thinking budget of {how.thinking_budget} and the {closing_tokens} tokens of --closing leave no room "
            f"for an answer within --max-tokens {max_tokens}. Lower the budget or raise the limit."
        )


def _form(how: SamplingOptions, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Settings of the form of a response, those that are off left out: budget, closing, what the prompts open."""
    budget = {"thinking_budget": how.thinking_budget, "closing": how.closing} if how.thinking_budget else {}
    opened = all(prompt.text.rstrip().endswith(THOUGHT_START) for prompt in prompts)
    return {**budget, "opening": THOUGHT_START} if opened else budget


def check_ids(problems: Sequence[Problem], *, of: str) -> None:
    """DataError for no problem, or for two with one id, which would be one problem."""
    if not problems:
        raise DataError(f"{of} has no problem; expected at least one.")
    seen: set[str] = set()
    for problem in problems:
        if problem.id in seen:
            raise DataError(f"{of}: two problems have the id {problem.id!r}; each needs its own. Repair the ids.")
        seen.add(problem.id)


def model_digest(model: Path) -> str:
    """SHA-256 over the names and bytes of a model folder's configs, weights and tokenizer, other files left out."""
    total = hashlib.sha256()
    for path in sorted(model.iterdir()):
        if path.suffix in (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja") and path.name != "state.json":
            with path.open("rb") as file:
                total.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def model_name(model: Path) -> str:
    """The folder's name; of a checkpoint the run's, the stage's and the step's."""
    parts = model.resolve().parts
    return "-".join((*parts[-4:-2], parts[-1])) if parts[-2:-1] == ("checkpoints",) else parts[-1]
