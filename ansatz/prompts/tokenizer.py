"""The part of a tokenizer that rendering needs, and the token ids of a text in parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

from ansatz.special_tokens import special_tokens


class Tokenizer(Protocol):
    """The part of the transformers tokenizer interface that is used here."""

    eos_token_id: Any
    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any: ...


def ids_of_parts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of the parts of one hidden text (see `special_tokens`), without special tokens at its ends.

    They are the ids of the whole text, cut where a part ends. If a token of the whole text spans the end of a part, or
    the beginning of the text has other tokens when it stands alone, each part is tokenised by itself: the policy gets
    the prompt alone, so the prompt must have the tokens that it has alone.
    """
    encode = special_tokens(tokenizer).encode
    whole = encode("".join(texts))
    ends = [0]
    for beginning in accumulate(texts):
        ids = encode(beginning)
        if whole[: len(ids)] != ids:
            return [encode(text) for text in texts]
        ends.append(len(ids))
    return [whole[start:end] for start, end in pairwise(ends)]
