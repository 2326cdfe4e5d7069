from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ansatz.prompts.chat_responses import ids_of_parts

WORDS = {"?": 0, "a": 1, "b": 2, "\u2581": 3, "ab": 4, "\u2581a": 5, "\u2581b": 6}


@pytest.mark.parametrize(
    ("merges", "parts"),
    [
        pytest.param([("\u2581", "a"), ("\u2581", "b")], [[5], [2]], id="without the space that a text begins with"),
        pytest.param([("a", "b")], [[3, 1], [3, 2]], id="apart, because a token spans the end of the prompt"),
    ],
)
def test_parts_have_the_ids_of_the_whole_text_where_it_can_be_cut(merges, parts) -> None:
    backend = Tokenizer(models.BPE(WORDS, merges=merges, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert ids_of_parts(tokenizer, ["a", "b"]) == parts
    assert ids_of_parts(tokenizer, ["a"])[0] == parts[0]
