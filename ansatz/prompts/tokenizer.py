"""What rendering needs of a tokenizer, and the token ids of a text in parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol


class Tokenizer(Protocol):
    """The part of the transformers tokenizer interface that is used here."""

    eos_token_id: Any
    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any: ...


def ids_of_parts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of the parts of one text, without special tokens at its ends.

    They are the ids of the whole text, cut where a part ends. If a token of the whole text spans the end of a part, or
    the beginning of the text has other tokens when it stands alone, each part is tokenised by itself: the policy gets
    the prompt alone, so the prompt must have the tokens that it has alone.
    """
    whole = tokenizer.encode("".join(texts), add_special_tokens=False)
    ends = [0]
    for beginning in accumulate(texts):
        ids = tokenizer.encode(beginning, add_special_tokens=False)
        if whole[: len(ids)] != ids:
            return [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        ends.append(len(ids))
    return [whole[start:end] for start, end in pairwise(ends)]
