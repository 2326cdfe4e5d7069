"""Checks that every prompt and demonstration of a run fits the recipe's limits and the model's context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from ansatz.errors import ModelError
from ansatz.loop.rendering import PromptRenderer
from ansatz.prompts.chat import spelled_out
from ansatz.prompts.templates import QUESTION, template_text
from ansatz.types import Problem, Prompt

SPECIAL_TOKENS = 4  # the most that a tokenizer adds to a text: begin, end, a leading space
_OPENED_TOGETHER = 256


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
