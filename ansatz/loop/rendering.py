"""Problems as the policy sees them, each rendered once per run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ansatz.config.chat import Template
from ansatz.environments.base import EnvironmentSpec, prompt_template
from ansatz.environments.opened_problems import opening_error
from ansatz.environments.openings import with_openings
from ansatz.errors import ConfigError
from ansatz.prompts.render import Demonstration, render, render_demonstration
from ansatz.prompts.tokenizer import Tokenizer
from ansatz.types import Problem, Prompt

T = TypeVar("T")


class PromptRenderer:
    """Renders problems with one tokenizer, template and environment within limits in tokens, and keeps the results.

    Errors are raised by `prompts.render`. A result is kept until the run ends, so that evaluations, epochs and the
    length check do not tokenise a text again. The opening of a problem's environment is kept too. It is a part of the
    problem that prompts and demonstrations show.
    Example: `PromptRenderer(tokenizer, "boxed", None, max_prompt_tokens=64, max_response_tokens=64).prompt(problem)`.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: Template,
        environment: EnvironmentSpec | None,
        *,
        max_prompt_tokens: int,
        max_response_tokens: int,
    ) -> None:
        self._tokenizer, self._environment = tokenizer, environment
        self.max_prompt_tokens, self.max_response_tokens = max_prompt_tokens, max_response_tokens
        self.template = prompt_template(template, environment)
        self._opened: dict[str, tuple[Problem, Problem]] = {}
        self._prompts: dict[str, tuple[Problem, Prompt]] = {}
        self._demonstrations: dict[bool, dict[str, tuple[Problem, Demonstration]]] = {}  # by every_response

    def prompt(self, problem: Problem) -> Prompt:
        return _kept(self._prompts, problem, self._render)

    def prompts(self, problems: Sequence[Problem]) -> list[Prompt]:
        self.open(problems)
        return [self.prompt(problem) for problem in problems]

    def opened(self, problem: Problem) -> Problem:
        """Return the problem with the opening of its environment."""
        return _kept(self._opened, problem, lambda problem: with_openings([problem], self._environment)[0])

    def open(self, problems: Sequence[Problem]) -> None:
        """Ask the environments of the problems for their openings, all at once."""
        if self._environment is None or not self._environment.opens:
            return
        new = [problem for problem in problems if self._opened.get(problem.id, (None,))[0] is not problem]
        for problem, opened in zip(new, with_openings(new, self._environment), strict=True):
            self._opened[problem.id] = problem, opened
        if new and all(opening_error(opened) for _, opened in self._opened.values()):
            first = self._opened[new[0].id][1]
            raise ConfigError(
                f"environment {self._environment.name!r}: reset() failed for all {len(self._opened)} problems that it "
                f"was given. For problem {first.id!r}: {opening_error(first)}. Correct it, or use other problems."
            )

    def demonstration(self, problem: Problem, *, every_response: bool = False) -> Demonstration:
        """Render a demonstration. every_response: see `render_demonstration`."""
        render_one = partial(self._render_demonstration, every_response)
        return _kept(self._demonstrations.setdefault(every_response, {}), problem, render_one)

    def _render(self, problem: Problem) -> Prompt:
        return render(self.opened(problem), self.template, self._tokenizer, max_prompt_tokens=self.max_prompt_tokens)

    def _render_demonstration(self, every_response: bool, problem: Problem) -> Demonstration:
        return render_demonstration(
            self.opened(problem),
            self.template,
            self._tokenizer,
            max_prompt_tokens=self.max_prompt_tokens,
            max_response_tokens=self.max_response_tokens,
            every_response=every_response,
        )


def _kept(results: dict[str, tuple[Problem, T]], problem: Problem, render_one: Callable[[Problem], T]) -> T:
    """Return the kept result for this problem, or for an equal one that was read again. Ids are unique only within a
    file, so the id alone would not do."""
    known, result = results.get(problem.id, (None, None))
    if result is not None and (known is problem or known == problem):
        return result
    result = render_one(problem)
    results[problem.id] = problem, result
    return result
