"""Thinking-mode fusion: one policy with two modes, thinking and answering directly, selected by a flag.

Follows Qwen3 (arXiv:2505.09388, sec. 4.3 and table 9). The question ends with a flag. The response has the same form in
both modes, so a sampler can also force a direct answer by inserting the empty block:

    QUESTION /think        <think>\\nREASONING\\n</think>\\n\\nANSWER
    QUESTION /no_think     <think>\\n\\n</think>\\n\\nANSWER

Thinking is the default, so some of the thinking problems have no flag. With `switch: template`, the mode is not a flag
in the question but the argument `enable_thinking` of the tokenizer's chat template, which must have it. A hash of the
seed and the problem's id decides the mode, so the mode of a row does not change when other rows are added or removed.

    sft: {source: fusion, split: train, of: {source: jsonl, path: solved.jsonl}, think_frac: 0.7}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ansatz.data.keyed_random import KeyedRandom
from ansatz.data.mapped import changed, inner_source
from ansatz.data.row_problems import ANSWER
from ansatz.errors import ConfigError, DataError
from ansatz.types import Problem

THINK, NO_THINK = "/think", "/no_think"
OPEN, CLOSE = "<think>", "</think>"


def fusion(
    *,
    split: str,
    of: Mapping[str, Any],
    think_frac: float = 0.5,
    unmarked_frac: float = 0.1,
    answer_form: str = "\\boxed{{answer}}",
    switch: Literal["flag", "template"] = "flag",
    seed: int = 0,
) -> Sequence[Problem]:
    """Return the problems of another source, each in one of the two modes. `meta["mode"]` is "think" or "no_think".

    of: {source, ...settings of that source}.
    think_frac: expected fraction of the problems in thinking mode.
    unmarked_frac: expected fraction of these that have no flag (the paper says "some").
    answer_form: the text after the thought, with {answer} where the answer goes. If the solution already contains a
    <think> block, the text after that block is kept instead.
    switch: "flag" ends the question with /think or /no_think; "template" sets enable_thinking of the chat template.

    Raise ConfigError for a setting outside its range. Raise DataError for a thinking problem without a solution, or
    whose block is not closed.
    """
    for name, value in (("think_frac", think_frac), ("unmarked_frac", unmarked_frac)):
        if not 0 <= value <= 1:
            raise ConfigError(f"fusion: {name} = {value}, expected 0 to 1.")
    if answer_form.count(ANSWER) != 1:
        raise ConfigError(f"fusion: answer_form = {answer_form!r}, expected {ANSWER} in it exactly once.")

    def fused(problem: Problem) -> Problem:
        rng = KeyedRandom("fusion", seed, problem.id)
        thinks = rng.uniform() < think_frac
        marked = not thinks or rng.uniform() >= unmarked_frac
        flag = (THINK if thinks else NO_THINK) if marked and switch == "flag" else ""
        in_its_mode = in_mode(problem, thinks=thinks, flag=flag, answer_form=answer_form)
        return _switch(in_its_mode, thinks=thinks) if marked and switch == "template" else in_its_mode

    return changed(inner_source(of, split=split, named="fusion: of.source"), fused)


def in_mode(problem: Problem, *, thinks: bool, flag: str, answer_form: str) -> Problem:
    """Return the problem with the flag after its question, and its solution as a thought and an answer."""
    thought, final_text = parts_of(problem)
    if thinks and not thought:
        raise DataError(
            f"problem {problem.id!r} of {problem.source!r} has no worked solution, which thinking mode needs. "
            "Set solution_key to the field that holds it, remove the problem, or set think_frac = 0."
        )
    if not final_text and not problem.answer:
        raise DataError(
            f"problem {problem.id!r} of {problem.source!r} has no gold answer, and its solution has no text after a "
            f"{OPEN} block, so there is no answer to give. Remove the problem, or set answer_key."
        )
    block = f"{OPEN}\n{thought}\n{CLOSE}" if thinks else f"{OPEN}\n\n{CLOSE}"
    return replace(
        problem,
        question=f"{problem.question} {flag}".rstrip(),
        solution=f"{block}\n\n{final_text or answer_form.replace(ANSWER, problem.answers[0])}",
        meta={**problem.meta, "mode": "think" if thinks else "no_think"},
    )


def _switch(problem: Problem, *, thinks: bool) -> Problem:
    arguments = {**problem.template_arguments, "enable_thinking": thinks}
    return replace(problem, meta={**problem.meta, "chat_template_kwargs": arguments})


def parts_of(problem: Problem) -> tuple[str, str]:
    """Return the problem's solution as (thought, text after it). A solution without a block is all thought.

    Raise DataError for a solution with several blocks, with a block that is not closed, or with text before the block.
    """
    solution = (problem.solution or "").strip()
    if OPEN not in solution and CLOSE not in solution:
        return solution, ""
    before, _, rest = solution.partition(OPEN)
    thought, _, final_text = rest.partition(CLOSE)
    if before.strip() or (solution.count(OPEN), solution.count(CLOSE)) != (1, 1) or not final_text.strip():
        raise DataError(
            f"the solution of problem {problem.id!r} of {problem.source!r} must be one {OPEN} block followed by an "
            "answer. Repair the solution, or remove the problem."
        )
    return thought.strip(), final_text.strip()
