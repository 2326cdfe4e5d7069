"""Problems as the policy sees them, each rendered once per run, and the check that all of them fit their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from ansatz.config.chat import Template
from ansatz.environments.base import EnvironmentSpec, prompt_template
from ansatz.environments.opened_problems import opening_error
from ansatz.environments.openings import with_openings
from ansatz.errors import ConfigError, ModelError
from ansatz.prompts.render import Demonstration, render, render_demonstration
from ansatz.prompts.templates import QUESTION, Tokenizer, spelled_out, template_text
from ansatz.types import Problem, Prompt

T = TypeVar("T")
SPECIAL_TOKENS = 4  # the most that a tokenizer adds to a text: begin, end, a leading space
_OPENED_TOGETHER = 256


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


class LengthChecker:
    """Checks problems before any training, so that a run does not stop at its first long problem hours later.

    Raises the errors of the renderer, and ModelError if prompt and response together exceed the model's context
    (max_context, tokens). A token of an ASCII text stands for at least one character, so a text with fewer characters
    than the limit need not be tokenised. Most texts are that short.
    Example: `LengthChecker(renderer, max_context=2048).check_prompts(problems)`.
    """

    def __init__(self, renderer: PromptRenderer, *, max_context: int) -> None:
        self._renderer, self._max_context = renderer, max_context
        template, is_plain = spelled_out(renderer.template), isinstance(renderer.template, str)
        self._frame = template_text(template).replace(QUESTION, "") if isinstance(template, str) and is_plain else None

    def check_prompts(self, problems: Iterable[Problem], *, max_response_tokens: int | None = None) -> None:
        """Check that each prompt is within rollout.max_prompt_tokens, and that the longest response fits as well.

        max_response_tokens: of that response; None: rollout.max_response_tokens.
        """
        max_response_tokens = max_response_tokens or self._renderer.max_response_tokens
        room = self._max_context - max_response_tokens
        for problem in self._opening(problems):
            if not self._is_short_prompt(problem, min(room, self._renderer.max_prompt_tokens)):
                prompt = self._renderer.prompt(problem)
                self._check_context(prompt, max_response_tokens, "max_response_tokens =")

    def check_demonstrations(self, problems: Iterable[Problem], *, every_response: bool = False) -> None:
        """Check that each prompt and each response is within its limit, and both together are within the context.

        every_response: see `render_demonstration`.
        """
        longest_prompt, longest_response = self._renderer.max_prompt_tokens, self._renderer.max_response_tokens
        for problem in self._opening(problems):
            room = self._max_context - len(problem.solution or "") - SPECIAL_TOKENS
            short = problem.solution is not None and _is_short(problem.solution, longest_response)
            if not (short and self._is_short_prompt(problem, min(room, longest_prompt))):
                demonstration = self._renderer.demonstration(problem, every_response=every_response)
                self._check_context(demonstration.prompt, len(demonstration.response_ids), "its demonstration of")

    def fits_demonstration(self, problem: Problem) -> bool:
        """Tell whether `check_demonstrations` accepts the problem."""
        try:
            self.check_demonstrations([problem])
        except ModelError:
            return False
        return True

    def _opening(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield the problems unchanged, after asking their environments for openings, many at once."""
        rest = iter(problems)
        while part := list(islice(rest, _OPENED_TOGETHER)):
            self._renderer.open(part)
            yield from part

    def _is_short_prompt(self, problem: Problem, limit: int) -> bool:
        problem = self._renderer.opened(problem)
        if self._frame is None or problem.template or problem.earlier_turns or problem.tools:
            return False
        return _is_short(self._frame + problem.question, limit)

    def _check_context(self, prompt: Prompt, num_response_tokens: int, what: str) -> None:
        total = len(prompt.token_ids) + num_response_tokens
        if total > self._max_context:
            raise ModelError(
                f"the prompt of problem {prompt.problem.id!r} has {len(prompt.token_ids)} tokens; with {what} "
                f"{num_response_tokens} that is {total}, over the model's context of {self._max_context}. "
                "Lower max_response_tokens, use a model with a longer context, or take the problem out."
            )


def _is_short(text: str, limit: int) -> bool:
    return text.isascii() and len(text) + SPECIAL_TOKENS <= limit
