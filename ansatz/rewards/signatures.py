"""Rewards as users and other projects write them: the parameter names say how a function wants to be called.

| form | recognised by | called with |
|---|---|---|
| rollouts | first parameter `rollouts` | all rollouts of one problem |
| response | a parameter `response` | one response at a time |
| verl | a parameter `solution_str` | one response at a time, as verl calls `compute_score` |
| TRL | a parameter `completions` | all responses to one problem, as TRL's trainers call a reward function |

A function can be `async`: then all responses to a problem, and several problems, are awaited at the same time. In every
form, keyword-only parameters are settings of the recipe. All others are filled in by name: see `columns`.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from ansatz.errors import ConfigError
from ansatz.registry import settings_of
from ansatz.rewards.guarded_calls import await_all
from ansatz.types import Problem, Rollout

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_FORMS = (
    "rollouts (all rollouts of a problem), response (one response at a time, such as f(response, answer)), "
    "solution_str (verl's compute_score) or completions (TRL's reward functions)"
)


def over_rollouts(function: Callable[..., Any], *, name: str, injected: Sequence[str]) -> Callable[..., Any]:
    """Return the function as one of the rollouts of a problem, whichever form it was written in.

    injected: the names of settings that the grader fills in. They refer to all rollouts of a problem, so a function of
    one response cannot have them. Raise ConfigError for a function that fits no form.
    """
    parameters = inspect.signature(function).parameters
    positional = [parameter for parameter in parameters.values() if parameter.kind in _NAMED]
    if positional and positional[0].name == "rollouts":
        return function
    if "completions" in parameters:
        call = _trl_call
    elif "solution_str" in parameters:
        call = _verl_call
    elif "response" in parameters:
        call = _response_call
    else:
        names = ", ".join(parameters) or "no parameters"
        raise ConfigError(f"reward {name!r} takes {names}, but one parameter must be {_FORMS}.")
    settings = settings_of(function)
    if call is not _trl_call and (unfit := sorted({*injected} & settings.keys() - {"step"})):
        raise ConfigError(
            f"reward {name!r} takes one response at a time, so it cannot have {unfit[0]!r}, which belongs to all "
            "rollouts of a problem. Write it as a function of rollouts instead."
        )

    def reward(rollouts: Sequence[Rollout], **values: Any) -> Any:
        return call(function, rollouts, values, name) if rollouts else []

    rollouts_parameter = inspect.Parameter("rollouts", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([rollouts_parameter, *settings.values()])
    reward.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return reward


def columns(problem: Problem) -> dict[str, Any]:
    """Return the values about a problem that a reward can ask for by name.

    These are question, answer (the gold answer; also as ground_truth), solution (the worked solution, or the gold
    answer if the source has none), id, source, split, level, and everything in the problem's meta.
    """
    answer = problem.answers[0] if len(problem.answers) == 1 else problem.answer
    solution = answer if problem.solution is None else problem.solution
    return {
        **problem.meta,
        "id": problem.id,
        "question": problem.question,
        "answer": answer,
        "ground_truth": answer,
        "solution": solution,
        "source": problem.source,
        "split": problem.split,
        "level": problem.level,
    }


def _response_call(function: Callable[..., Any], rollouts: Sequence[Rollout], values: dict[str, Any], name: str) -> Any:
    problem = columns(rollouts[0].prompt.problem)
    known = {**problem, "prompt": rollouts[0].prompt.text}
    return await_all(
        [function(**_arguments(function, {**known, "response": rollout.said}, name), **values) for rollout in rollouts]
    )


def _verl_call(function: Callable[..., Any], rollouts: Sequence[Rollout], values: dict[str, Any], name: str) -> Any:
    problem = rollouts[0].prompt.problem
    own = problem.meta.get("extra_info")  # the row's, as verl passes it
    info = {**problem.meta, "split": problem.split, "question": problem.question, "id": problem.id}
    known = {
        **columns(problem),
        "data_source": problem.origin,
        "extra_info": {**info, **(cast(Mapping[str, Any], own) if isinstance(own, Mapping) else {})},
    }
    results = [
        function(**_arguments(function, {**known, "solution_str": rollout.said}, name), **values)
        for rollout in rollouts
    ]
    return [_verl_score(result, name) for result in await_all(results)]


def _verl_score(result: Any, name: str) -> Any:
    if not isinstance(result, Mapping):
        return result
    scores = cast(Mapping[str, Any], result)
    if "score" not in scores:
        raise ConfigError(f"reward {name!r} returned a mapping with the keys {sorted(scores)}, but not 'score'.")
    return scores["score"]


def _trl_call(function: Callable[..., Any], rollouts: Sequence[Rollout], values: dict[str, Any], name: str) -> Any:
    """Call with the columns as lists with one entry per response. A function that reads messages, as
    `completion[0]["content"]` does, gets them, and one that does not gets text."""
    problem = rollouts[0].prompt.problem
    known: dict[str, Any] = {key: [value] * len(rollouts) for key, value in columns(problem).items()}
    known["prompts"] = [rollout.prompt.text for rollout in rollouts]
    known["completions"] = [rollout.said for rollout in rollouts]
    known["completion_ids"] = [list(rollout.token_ids) for rollout in rollouts]
    as_messages = {
        "prompts": [[*problem.earlier_turns, {"role": "user", "content": problem.question}] for _ in rollouts],
        "completions": [[{"role": "assistant", "content": rollout.said}] for rollout in rollouts],
    }
    first, second = ({}, as_messages) if not _reads_messages(function) else (as_messages, {})
    try:
        return await_all(function(**_arguments(function, {**known, **first}, name), **values))
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        try:
            return await_all(function(**_arguments(function, {**known, **second}, name), **values))
        except Exception:
            raise error from None


def _reads_messages(function: Callable[..., Any]) -> bool:
    """Return whether the function's code has an expression such as `completion[0]["content"]`."""
    codes = [getattr(inspect.unwrap(function), "__code__", None)]
    for code in filter(None, codes):
        steps = [each for each in dis.get_instructions(code) if each.opname not in ("CACHE", "EXTENDED_ARG")]
        for item, name, field in zip(steps, steps[1:], steps[2:], strict=False):
            if name.argval == "content" and all(each.opname.startswith("BINARY_") for each in (item, field)):
                return True
        codes += filter(inspect.iscode, code.co_consts)
    return False


def _arguments(function: Callable[..., Any], known: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the values in `known` for the function's parameters, and everything if it takes **kwargs."""
    parameters = inspect.signature(function).parameters
    settings = {key for key, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return {key: value for key, value in known.items() if key not in settings}
    for key, parameter in parameters.items():
        required = parameter.kind in _NAMED and parameter.default is inspect.Parameter.empty
        if required and key not in known:
            raise ConfigError(
                f"reward {name!r} has the parameter {key!r}, but the problems have no such field. They have "
                f"{', '.join(sorted(known))}. Make it keyword-only if it is a setting of the recipe."
            )
    return {key: known[key] for key in parameters if key in known and key not in settings}
