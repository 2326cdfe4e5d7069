"""The token that ends a turn of a tokenizer's chat template, such as <|im_end|>.

It is often another one than the tokenizer's end token: a base model of Qwen2.5 has <|endoftext|>, and Gemma has <eos>.
Without it, a response would continue with a user's turn that the policy makes up.
"""

from __future__ import annotations

from typing import Any

_RESPONSE = "ANSWER"


def end_of_turn(tokenizer: Any) -> int | None:
    """The id of the special token that the chat template writes after a response.

    None without a chat template, if the template refuses two plain turns, or if no special token follows a response.
    """
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": _RESPONSE}]
    try:
        text = tokenizer.apply_chat_template(turns, tokenize=False)
    except Exception:  # a template is a program, which can raise anything; rendering a prompt reports it
        return None
    after = text.rpartition(_RESPONSE)[2] if isinstance(text, str) else ""
    special = {token: added.content for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    ids = tokenizer.encode(after, add_special_tokens=False)
    # The text is compared too, because a tokenizer can have a special token for words that it does not know.
    return next((token for token in ids if special.get(token, "") in after and token in special), None)
