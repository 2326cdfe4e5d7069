"""A problem put so that it is answered at once: the response begins within the answer's box, with no room to think.

Kimi k1.5 takes problems out that a model guesses right in this way (arXiv:2501.12599 sec. 2.1): what pays for a guess
does not teach reasoning.
"""

from __future__ import annotations

from ansatz.prompts.render import Tokenizer, chat_text
from ansatz.prompts.templates import CHAT, QUESTION, template_text
from ansatz.types import Problem, Prompt

GUESS = "guess"
GUESS_TEXT = f"{QUESTION}\nDo not reason. Give the final answer at once, within \\boxed{{}}.\n"
OPENING = "\\boxed{"


def render_guess(problem: Problem, template: str, tokenizer: Tokenizer) -> Prompt:
    """The problem and the opening of its answer. template: "guess", "chat" (the same text in the tokenizer's chat
    template), a name of `templates.TEMPLATES`, or a .txt file.

    Raises what `render` raises.
    """
    if template == CHAT:
        text = chat_text(GUESS_TEXT, problem, tokenizer)
        ids = tokenizer.encode(text, add_special_tokens=False)
    else:
        frame = GUESS_TEXT if template == GUESS else template_text(template)
        text = frame.replace(QUESTION, problem.question)
        ids = tokenizer.encode(text)
        if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]
    opening = tokenizer.encode(OPENING, add_special_tokens=False)
    return Prompt(problem=problem, text=text + OPENING, token_ids=(*ids, *opening))


def guess_of(continuation: str) -> str:
    """The answer's box as the response closed it, and nothing after; all of the text where it never did."""
    depth = 1
    for end, sign in enumerate(continuation):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return OPENING + continuation[: end + 1]
    return OPENING + continuation
