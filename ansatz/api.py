"""The public interface for programs: the names that `import ansatz` offers. docs/api.md shows each function in use.

Nothing here is loaded before it is needed: grading and estimators work without torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from numbers import Rational
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ansatz_verify.grade import equivalent as compare_answers
from ansatz_verify.grade import verify as grade_response
from ansatz_verify.marks import Mode
from ansatz_verify.options import DEFAULT, options_from
from ansatz_verify.pool import WorkerPool
from ansatz_verify.responses import gold_text as answer_text

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.estimators import maj_at_k as maj_at_k
from ansatz.evaluate.estimators import pass_at_k as pass_at_k
from ansatz.json_text import read_object
from ansatz.registry import suggest
from ansatz.rewards.base import RewardResult as RewardResult
from ansatz.types import Problem, Rollout
from ansatz.types import Verdict as Verdict

if TYPE_CHECKING:
    from ansatz.models.load import Policy
    from ansatz.objectives.policy_loss import PolicyLoss as PolicyLoss
    from ansatz.objectives.policy_loss import policy_loss as policy_loss

DEFAULT_TEMPLATE = "boxed"
Gold = str | int | float | Decimal | Rational
"""A gold answer: a text, or a number."""


def verify(
    gold: Gold,
    response: str,
    *,
    mode: Mode = "strict",
    join_boxes: bool = False,
    require_think: bool = False,
    ignore_unclosed_think: bool = False,
    pool: WorkerPool | None = None,
    **options: Any,
) -> Verdict:
    """Return whether the response ends in the gold answer. Never raises for any text; wrong options, and a gold answer
    that is neither a text nor a number, raise a ConfigError.

    mode: "strict" reads a box or an answer tag. "anchored" also reads announcements such as `####` and "the answer is".
    "last_number" also reads the last number, for evaluation only, because it pays for guesses.
    join_boxes: several boxes are one list. require_think: a response without `</think>` has no answer.
    ignore_unclosed_think: a thought that is never closed does not hide its content.
    options: any option of docs/verifier.md, such as units="same".

        verify("1/2", r"Half of it, so \\boxed{0.5}.").correct  # True
    """
    flags = {"join_boxes": join_boxes, "require_think": require_think, "ignore_unclosed_think": ignore_unclosed_think}
    check_grading("verify", mode=mode, **flags, **options)
    text = gold_text(gold, "verify")
    if not isinstance(response, str):
        raise ConfigError(f"verify: the response is {response!r:.80}; expected a text.")
    return grade_response(text, response, mode=mode, pool=pool, **flags, **options)


def equivalent(gold: Gold, answer: Gold, *, pool: WorkerPool | None = None, **options: Any) -> Verdict:
    """Return whether a bare answer equals the gold answer. Never raises for any text; wrong options raise a
    ConfigError.

        equivalent("x^2 - 1", "(x-1)(x+1)").correct  # True
    """
    check_grading("equivalent", **options)
    stated = gold_text(answer, "equivalent", what="the answer")
    return compare_answers(gold_text(gold, "equivalent"), stated, pool=pool, **options)


def check_grading(function: str, *, mode: Any = "strict", **options: Any) -> None:
    """Raise ConfigError for a mode, or the value of an option, that the verifier would not understand."""
    modes = get_args(Mode)
    if mode not in modes:
        raise ConfigError(f"{function}: mode = {mode!r}; expected {_list_choices(modes)}.{suggest(str(mode), modes)}")
    for name, value in options.items():
        expected = type(getattr(DEFAULT, name, False))
        if type(value) is not expected and (hasattr(DEFAULT, name) or name in _FLAGS):
            kind = {bool: "True or False", int: "an integer"}.get(expected, "a text")
            raise ConfigError(f"{function}: {name} = {value!r}; expected {kind}.")
    try:
        options_from({name: value for name, value in options.items() if name not in _FLAGS})
    except ValueError as error:
        raise ConfigError(f"{function}: {error}") from error


_FLAGS = ("join_boxes", "require_think", "ignore_unclosed_think")


def gold_text(gold: Any, function: str, *, what: str = "the gold answer") -> str:
    """Return a gold answer as the text that the verifier compares. Raise ConfigError for anything but a text or a
    finite number."""
    try:
        return answer_text(gold, what=what)
    except ValueError as error:
        raise ConfigError(f"{function}: {error}") from error


def _list_choices(values: Sequence[Any]) -> str:
    *most, last = map(repr, values)
    return f"{', '.join(most)} or {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """A finished run. folder: everything it wrote. model: the final model, a Hugging Face folder. evaluations: one
    mapping per evaluation, in order, with `stage`, `step` and the scores."""

    folder: Path
    model: Path
    evaluations: list[dict[str, Any]]


def train_recipe(
    recipe: str | Path,
    *,
    overlays: Sequence[str | Path] = (),
    fresh: bool = False,
    quiet: bool = False,
    trust_code: bool = False,
    **overrides: Any,
) -> TrainedRun:
    """Run a recipe, as `ansatz train` does.

    recipe: a file, or the name of an installed recipe. overlays: files whose keys override the recipe's. fresh: delete
    a run folder of the same name first. quiet: print nothing, and write no log.txt. trust_code: accept code that a
    recipe names which came along with a model or a run. overrides: keys of the recipe, with nested keys as mappings:
    `train={"lr": 1e-4}`, or dotted: `**{"train.lr": 1e-4}`.
    """
    from ansatz import process
    from ansatz.config.load import load_recipe
    from ansatz.loop.pipeline import run_pipeline
    from ansatz.repeat.card import write_card
    from ansatz.track.base import LOG
    from ansatz.track.console import open_console
    from ansatz.track.report import write_report

    for name, value in {"fresh": fresh, "quiet": quiet}.items():
        if not isinstance(value, bool):
            raise ConfigError(f"train_recipe: {name} = {value!r}; expected True or False.")
    if isinstance(overlays, str | Path):
        raise ConfigError(f"train_recipe: overlays = {str(overlays)!r} is a single file. Give a list of files.")
    process.configure_process()
    values = {key: json.dumps(value, default=str) for key, value in overrides.items()}
    config = load_recipe(recipe, overlays=overlays, overrides=values, trust_code=trust_code or None)
    console = None if quiet else open_console(log=config.run_dir / LOG)

    def report(run: Path) -> None:
        write_report(run)
        write_card(run, config)

    folder = run_pipeline(config, fresh=fresh, console=console, report=report)
    summary = read_object(folder / "summary.json", error=DataError, advice="Resume the run, which writes it again.")
    return TrainedRun(folder=folder, model=Path(summary["model"]), evaluations=summary["evaluations"])


def load_policy(
    path: str | Path, *, device: str | None = None, dtype: Literal["auto", "float32", "bfloat16"] = "auto"
) -> Policy:
    """Load a model with its tokenizer, ready for `sample`. path: a Hugging Face folder, such as a checkpoint.

    device: default: a GPU if there is one, otherwise the CPU. dtype: auto is bfloat16 if the device multiplies it
    natively, otherwise float32.
    """
    import torch

    from ansatz.models.load import cast, compute_dtype, load_policy

    dtypes = ("auto", "float32", "bfloat16")
    if dtype not in dtypes:
        raise ConfigError(
            f"load_policy: dtype = {dtype!r}; expected {_list_choices(dtypes)}.{suggest(str(dtype), dtypes)}"
        )
    if not isinstance(path, str | Path):
        raise ConfigError(f"load_policy: path = {path!r:.80}; expected a folder, or the name of a model of the hub.")
    try:
        torch.device(device or "cpu")
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"load_policy: device = {device!r}; expected a device such as 'cpu' or 'cuda'.") from error
    policy = load_policy(path, device=device)
    cast(policy, compute_dtype(dtype, policy.device))
    return policy


def sample(
    policy: Policy, prompts: Sequence[str | Problem], *, template: str = DEFAULT_TEMPLATE, seed: int = 0, **options: Any
) -> list[list[Rollout]]:
    """Sample the policy's responses to each prompt: one list per prompt, in order. `rollout.text` is the response.

    template: the text around each question; "none" takes the prompts as they are, "chat" uses the tokenizer's chat
    template. The same seed gives the same responses. options: any option of docs/sampling.md, such as
    samples_per_prompt (default 1), max_response_tokens (default 512), temperature (default 1.0) and top_p.
    """
    from ansatz.config.load import parse_section
    from ansatz.config.sampling import SamplingOptions
    from ansatz.models.load import Policy
    from ansatz.prompts.render import render
    from ansatz.rollout.base import Sampling
    from ansatz.rollout.native import NativeSampler

    if isinstance(prompts, str):
        raise ConfigError("sample: prompts is a single string. Give a list of prompts.")
    settings = parse_section(
        SamplingOptions, {"samples_per_prompt": 1, "max_response_tokens": 512, **options}, name="sample"
    )
    if not isinstance(policy, Policy):
        raise ConfigError(f"sample: policy = {policy!r:.80}; expected what ansatz.load_policy returns.")
    if type(seed) is not int:
        raise ConfigError(f"sample: seed = {seed!r}; expected an integer.")
    problems = [_problem(index, prompt) for index, prompt in enumerate(prompts)]
    rendered = [render(problem, template, policy.tokenizer) for problem in problems]
    with closing(NativeSampler(policy, max_concurrent=256)) as sampler:
        rollouts = sampler.generate(rendered, Sampling.of(settings, seed=seed))
    size = settings.samples_per_prompt
    return [rollouts[start : start + size] for start in range(0, len(rollouts), size)]


def _problem(index: int, prompt: str | Problem) -> Problem:
    if isinstance(prompt, Problem):
        return prompt
    if not isinstance(prompt, str):
        raise ConfigError(f"sample: prompt {index} is {prompt!r:.80}; expected a text or a Problem.")
    return Problem(id=str(index), question=prompt, source="api", split="all")


def __getattr__(name: str) -> Any:
    """Import names that need torch only when a program uses them."""
    if name in ("PolicyLoss", "policy_loss"):
        from ansatz.objectives import policy_loss as module

        return getattr(module, name)
    if name == "Policy":
        from ansatz.models.load import Policy

        return Policy
    raise AttributeError(f"module 'ansatz.api' has no attribute {name!r}")
