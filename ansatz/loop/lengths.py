"""Whether every prompt and demonstration of a run fits the recipe's limits and the model's context."""

from __future__ import annotations

from collections.abc import Iterable

from ansatz.config.schema import Config
from ansatz.errors import ModelError
from ansatz.models.load import Policy
from ansatz.prompts.render import render, render_demonstration
from ansatz.prompts.templates import CHAT, QUESTION, template_text
from ansatz.types import Problem, Prompt

SPECIAL_TOKENS = 4  # at most so many does a tokenizer add to a text: its begin, its end, a leading space


class LengthChecker:
    """Checks problems before any training. Raises what `render` raises, and ModelError where prompt and response
    together pass the model's context.

    Of a text in ASCII each token stands for one character or more, so most texts need not be tokenised.
    """

    def __init__(self, policy: Policy, config: Config) -> None:
        self._policy, self._rollout, self._template = policy, config.rollout, config.data.template
        self._frame = "" if self._template == CHAT else template_text(self._template).replace(QUESTION, "")

    def check_prompts(self, problems: Iterable[Problem], *, max_response_tokens: int | None = None) -> None:
        """Each prompt is within rollout.max_prompt_tokens, and the context has room for the longest response to it.

        max_response_tokens: of that response; None: rollout.max_response_tokens.
        """
        max_response_tokens = max_response_tokens or self._rollout.max_response_tokens
        room = self._policy.max_context - max_response_tokens
        for problem in problems:
            if not self._short_prompt(problem, min(room, self._rollout.max_prompt_tokens)):
                prompt = render(
                    problem,
                    self._template,
                    self._policy.tokenizer,
                    max_prompt_tokens=self._rollout.max_prompt_tokens,
                )
                self._check_context(prompt, max_response_tokens, "max_response_tokens =")

    def check_demonstrations(self, problems: Iterable[Problem]) -> None:
        """Each prompt and each response is within its limit, and both together within the context."""
        longest_prompt, longest = self._rollout.max_prompt_tokens, self._rollout.max_response_tokens
        for problem in problems:
            room = self._policy.max_context - len(problem.solution or "") - SPECIAL_TOKENS
            short = problem.solution is not None and _short(problem.solution, longest)
            if not (short and self._short_prompt(problem, min(room, longest_prompt))):
                one = render_demonstration(
                    problem,
                    self._template,
                    self._policy.tokenizer,
                    max_prompt_tokens=longest_prompt,
                    max_response_tokens=longest,
                )
                self._check_context(one.prompt, len(one.response_ids), "its demonstration of")

    def fits_demonstration(self, problem: Problem) -> bool:
        """Whether `check_demonstrations` would let it pass."""
        try:
            self.check_demonstrations([problem])
        except ModelError:
            return False
        return True

    def _short_prompt(self, problem: Problem, limit: int) -> bool:
        return self._template != CHAT and _short(self._frame + problem.question, limit)

    def _check_context(self, prompt: Prompt, num_response_tokens: int, what: str) -> None:
        total = len(prompt.token_ids) + num_response_tokens
        if total > self._policy.max_context:
            raise ModelError(
                f"the prompt of problem {prompt.problem.id!r} has {len(prompt.token_ids)} tokens; with {what} "
                f"{num_response_tokens} that is {total}, over the model's context of {self._policy.max_context}. "
                "Lower max_response_tokens, use a model with a longer context, or take the problem out."
            )


def _short(text: str, limit: int) -> bool:
    return text.isascii() and len(text) + SPECIAL_TOKENS <= limit
