"""Next-token training on plain texts, packed into blocks (`sft.objective: text`).

The texts are shuffled once, unless `data.order` is file, and joined, each with an end token after it, and cut into
blocks. A block begins with the last token of the one before, so that every token except the very first is predicted
exactly once, whatever the length of its text. Attention sees the earlier texts of a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import DataError
from ansatz.loop.context import RunContext
from ansatz.models.reader import reader_of
from ansatz.prompts.render import Demonstration
from ansatz.special_tokens import end_of_turn, special_tokens
from ansatz.types import Problem, Prompt

IDS = "ids"
"""The key of a block's `meta` with its tokens."""


def check_texts(problems: Sequence[Problem], *, objective: str) -> None:
    """Raise DataError for texts that the objective cannot learn from, and for solutions with the objective text."""
    odd = [problem for problem in problems if (problem.question == "") is not (objective == "text")]
    if odd:
        what, advice = "plain text", "Set sft.objective: text."
        if objective == "text":
            what, advice = "a question", "Use the source text in data.sft, or leave sft.objective out."
        raise DataError(
            f"data.sft: {len(odd)} of {len(problems)} rows, such as {odd[0].id!r}, are {what}, which sft.objective: "
            f"{objective} does not train on. {advice}"
        )


def pack(context: RunContext, problems: Sequence[Problem], model: str) -> list[Problem]:
    """Return the blocks of the texts, as problems, and say on the console how many there are.

    A block has at most as many tokens as the context of the model, and as a microbatch. Raise DataError for a corpus
    without a token to predict.
    """
    reader, config = reader_of(model), context.config
    tokenizer, special = reader.tokenizer, special_tokens(reader.tokenizer)
    end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else end_of_turn(tokenizer)
    size = min(reader.max_context, config.train.tokens_per_microbatch)
    tokens, num_long = array("i"), 0
    in_order = config.data.order == "file"
    for problem in problems if in_order else KeyedRandom(config.seed, "texts").shuffled(problems):
        ids = special.encode(special.hide(problem.solution or ""), add_special_tokens=True)
        ids += [] if end is None or ids[-1:] == [end] else [end]
        num_long += len(ids) > size
        tokens.extend(ids)
    starts = range(0, len(tokens) - 1, size - 1)
    if not starts:
        raise DataError("data.sft: the texts have no token to predict. Use longer texts.")
    if context.console is not None:
        context.console.note(
            f"data.sft: {len(problems)} texts of {len(tokens):,} tokens, in {len(starts)} blocks of at most {size}; "
            f"{num_long} of the texts are longer than a block and go on in the next."
        )
    return [
        Problem(id=f"block-{n}", question="", source="text", split="sft", meta={IDS: tokens[at : at + size]})
        for n, at in enumerate(starts)
    ]


def block_demonstration(block: Problem) -> Demonstration:
    """Return a block as SFT takes it: its first token is only read."""
    ids: list[int] = block.meta[IDS].tolist()
    return Demonstration(prompt=Prompt(problem=block, text="", token_ids=tuple(ids[:1])), response_ids=tuple(ids[1:]))
