"""Prompts without room for reasoning: the response starts inside the answer's box.

Kimi k1.5 removes problems that a model guesses correctly in this way (arXiv:2501.12599, sec. 2.1), because a problem
that rewards a guess does not teach reasoning.
"""

from __future__ import annotations

from ansatz.config.chat import ChatTemplate, Template
from ansatz.prompts.render import check_shows_all, prompt_ids
from ansatz.prompts.templates import QUESTION, ChatRenderer, Tokenizer, spelled_out, template_text
from ansatz.special_tokens import special_tokens
from ansatz.types import Problem, Prompt

GUESS = "guess"
GUESS_TEXT = f"{QUESTION}\nDo not reason. Give the final answer at once, within \\boxed{{}}.\n"
OPENING = "\\boxed{"


def render_guess(problem: Problem, template: Template, tokenizer: Tokenizer) -> Prompt:
    """Return the prompt followed by the opening of the answer's box.

    template: "guess", "chat" (the same text in the tokenizer's chat template), a name in `templates.TEMPLATES`, or a
    .txt file. Raise the same errors as `render`.
    """
    template, special = spelled_out(template), special_tokens(tokenizer)
    if isinstance(template, ChatTemplate):
        text = ChatRenderer(tokenizer, template).prompt(problem, user_text=GUESS_TEXT)
    else:
        check_shows_all(problem, template)
        frame = GUESS_TEXT if template == GUESS else template_text(template)
        text = frame.replace(QUESTION, special.hide(problem.question))
    ids = prompt_ids(text, template, tokenizer)
    opening = tokenizer.encode(OPENING, add_special_tokens=False)
    return Prompt(problem=problem, text=special.show(text) + OPENING, token_ids=(*ids, *opening))


def guess_of(continuation: str) -> str:
    """Return the answer's box up to the brace that closes it; all of the text if no brace does."""
    depth = 1
    for end, sign in enumerate(continuation):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return OPENING + continuation[: end + 1]
    return OPENING + continuation
