"""The public interface for programs: what `import ansatz` offers. docs/api.md shows each function in use.

Nothing here is loaded before it is needed: grading and estimators work without torch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.estimators import maj_at_k as maj_at_k
from ansatz.evaluate.estimators import pass_at_k as pass_at_k
from ansatz.json_text import read_object
from ansatz.rewards.base import RewardResult as RewardResult
from ansatz.rewards.math_answer.verify import equivalent as equivalent
from ansatz.rewards.math_answer.verify import verify as verify
from ansatz.types import Problem, Rollout
from ansatz.types import Verdict as Verdict

if TYPE_CHECKING:
    from ansatz.models.load import Policy
    from ansatz.objectives.policy_loss import PolicyLoss as PolicyLoss
    from ansatz.objectives.policy_loss import policy_loss as policy_loss

DEFAULT_TEMPLATE = "boxed"


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
    **overrides: Any,
) -> TrainedRun:
    """Run a recipe, as `ansatz train` does.

    recipe: a file, or the name of an installed recipe. overlays: files whose keys override the recipe's. fresh: delete
    a run folder of the same name first. quiet: print nothing. overrides: keys of the recipe, with nested keys as
    mappings: `train={"lr": 1e-4}`, or dotted: `**{"train.lr": 1e-4}`.
    """
    from ansatz import process
    from ansatz.config.load import load_recipe
    from ansatz.loop.pipeline import run_pipeline
    from ansatz.track.console import open_console
    from ansatz.track.report import write_report

    process.configure_process()
    values = {key: json.dumps(value, default=str) for key, value in overrides.items()}
    config = load_recipe(recipe, overlays=overlays, overrides=values)
    console = None if quiet else open_console()
    folder = run_pipeline(config, fresh=fresh, console=console, report=write_report)
    summary = read_object(folder / "summary.json", error=DataError, advice="Resume the run, which writes it again.")
    return TrainedRun(folder=folder, model=Path(summary["model"]), evaluations=summary["evaluations"])


def load_policy(
    path: str | Path, *, device: str | None = None, dtype: Literal["auto", "float32", "bfloat16"] = "auto"
) -> Policy:
    """Load a model with its tokenizer, ready for `sample`. path: a Hugging Face folder, such as a checkpoint.

    device: default: a GPU if there is one, otherwise the CPU. dtype: auto is bfloat16 if the device multiplies it
    natively, otherwise float32.
    """
    from ansatz.models.load import cast, compute_dtype, load_policy

    policy = load_policy(path, device=device)
    cast(policy, compute_dtype(dtype, policy.device))
    return policy


def sample(
    policy: Policy,
    prompts: Sequence[str | Problem],
    *,
    template: str = DEFAULT_TEMPLATE,
    seed: int = 0,
    **options: Any,
) -> list[list[Rollout]]:
    """Sample the policy's responses to each prompt: one list per prompt, in order. `rollout.text` is the response.

    template: the text around each question; "none" takes the prompts as they are, "chat" uses the tokenizer's chat
    template. The same seed gives the same responses. options: those of docs/sampling.md, such as
    samples_per_prompt (default 1), max_response_tokens (default 512), temperature (default 1.0) and top_p.
    """
    from ansatz.config.load import parse_section
    from ansatz.config.sampling import SamplingOptions
    from ansatz.prompts.render import render
    from ansatz.rollout.base import Sampling
    from ansatz.rollout.native import NativeSampler

    if isinstance(prompts, str):
        raise ConfigError("sample: prompts is a single string. Give a list of prompts.")
    settings = parse_section(
        SamplingOptions, {"samples_per_prompt": 1, "max_response_tokens": 512, **options}, name="sample"
    )
    problems = [_problem(index, prompt) for index, prompt in enumerate(prompts)]
    rendered = [render(problem, template, policy.tokenizer) for problem in problems]
    with closing(NativeSampler(policy, max_concurrent=256)) as sampler:
        rollouts = sampler.generate(rendered, Sampling.of(settings, seed=seed))
    size = settings.samples_per_prompt
    return [rollouts[start : start + size] for start in range(0, len(rollouts), size)]


def _problem(index: int, prompt: str | Problem) -> Problem:
    if isinstance(prompt, Problem):
        return prompt
    return Problem(id=str(index), question=prompt, answer="", source="api", split="all")


def __getattr__(name: str) -> Any:
    """Import what needs torch only when a program uses it."""
    if name in ("PolicyLoss", "policy_loss"):
        from ansatz.objectives import policy_loss as module

        return getattr(module, name)
    if name == "Policy":
        from ansatz.models.load import Policy

        return Policy
    raise AttributeError(f"module 'ansatz.api' has no attribute {name!r}")
