"""Every function that reads text of a policy, a program, a judge or a file, called with one text.

What these call in turn is read with them. `test_linear_time` measures each of them, and fails if foreign text reaches
a function that none of them calls.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ansatz_verify import verify
from made_up import scored

from ansatz.audit import claims
from ansatz.audit import readers as logs
from ansatz.data import choices, conversations, extract, programs, record_formats, row_problems, rows
from ansatz.data.hygiene import decontaminate, dedup, filters, normalize, peek, topics
from ansatz.data.hygiene.row_filter import json_line
from ansatz.environments import calculator, episode, tags, tool_calls, tools
from ansatz.errors import AnsatzError
from ansatz.evaluate import estimators
from ansatz.json_text import parse_json
from ansatz.ngrams import repeated_frac
from ansatz.python_text import parse_arguments, parse_calls, parse_literal
from ansatz.repeat import card as cards
from ansatz.rewards import code_blocks, code_tests, countdown, format, judge, language, plain_calls, reasoning_steps
from ansatz.rewards.code_forms import read_forms
from ansatz.rewards.code_safety import UnsafeTest
from ansatz.rewards.judge_prompt import JudgePrompt
from ansatz.special_tokens import SpecialTokens, broken, has_marker
from ansatz.track import filters as row_filters
from ansatz.track import mathematics, page, rollout_rows, rollout_table, word_diff
from ansatz.types import Problem, Prompt, Reason, Verdict
from ansatz.ui import response, response_pages
from ansatz.visible import say, visible, whole

Reader = Callable[[str], object]
JUDGE_PROMPT = JudgePrompt(template=str(Path(__file__).parent / "rewards" / "judge_prompt.txt"))


def problem(text: str, **fields: Any) -> Problem:
    given = {"question": text, "answers": (text,), "solution": text}
    return Problem(id="p", source="made", split="train", **{**given, **fields})


class Added:
    def __init__(self, content: str) -> None:
        self.content, self.special = content, True


class Letters:
    """A tokenizer with a token for each character, and a few special ones."""

    chat_template = None

    def __init__(self) -> None:
        self.added_tokens_decoder = dict(enumerate(map(Added, ("<s>", "</s>", "<|im_end|>")), start=1_200_000))

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return list(map(ord, text))

    def decode(self, token_ids: Iterable[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))

    def __call__(self, text: str, *, return_offsets_mapping: bool) -> dict[str, Any]:
        return {"input_ids": list(map(ord, text)), "offset_mapping": [(at, at + 1) for at in range(len(text))]}


SPECIAL = SpecialTokens(Letters())


def special_tokens_of(text: str) -> None:
    SPECIAL.show(SPECIAL.hide(text))
    SPECIAL.hide_response(text)
    SPECIAL.encode(SPECIAL.hide(text))
    SPECIAL.decode(Letters().encode(whole(text)))
    SPECIAL.hide_turn({"role": "assistant", "content": text, "tool_calls": [{"name": text}]})
    SPECIAL.hide_prompt(Prompt(problem=problem(text), text=text, token_ids=()))


def received(text: str) -> None:
    """A message of a program that is tested, as it is and as each plain value."""
    packed = [text, {"int": text}, {"Decimal": [text]}, {"Fraction": [text, 1]}, {"dict": [[text, text]]}]
    for message in (text, *(json.dumps({"values": [value], "instances": []}) for value in packed)):
        peer = plain_calls.Peer(lambda sent: None, lambda message=message: message, namespace={})
        with contextlib.suppress(plain_calls.Refused):
            peer.ask("names", [])


def calls_in(text: str) -> None:
    tool_calls.read_turn(text, ["f"])
    tool_calls.without_end(text)
    tags.TagEnvironment(str, call="calc", result="result").call_in(text)


def tool_answers(text: str) -> None:
    def f(a: str) -> str:
        return a

    for call in (text, "<tool_call>" + json.dumps({"name": "f", "arguments": {"a": text}}) + "</tool_call>"):
        tools.ToolEnvironment([f]).step(call)
    episode.cut(text, 100)


def row(text: str) -> None:
    for value in (text, [text], [{"role": "user", "content": text}, {"role": "assistant", "content": text}]):
        given = rows.Row("file", 1, {"question": value, "answer": value})
        for read in (given.question, given.solution, given.optional_text):
            with contextlib.suppress(AnsatzError):
                read("question")
        with contextlib.suppress(AnsatzError):
            given.answers(given.answer_texts("answer"), "answer", "boxed")
        with contextlib.suppress(AnsatzError):
            conversations.earlier_turns(given, "question")
    rows.json_value({text: (text,)})
    record_formats.only_instructions(text)
    record_formats.puzzle_of({"nums": text, "target": text})


def doubts(text: str) -> None:
    peek.doubts(problem(text))
    peek.answer_kind(text)
    filters.why_dropped(problem(text))
    topics.topics_of(problem(text))


def normal_forms(text: str) -> None:
    normalize.signature(text)
    normalize.figures_of(text)
    normalize.numbers_of(text)
    normalize.same_answer(text, text + "1")


def answers_in(text: str) -> None:
    extract.after_hashes(text)
    extract.last_box(text)
    extract.after_sentence(text)


def formulas(text: str) -> None:
    mathematics.has_mathematics(text)
    mathematics.set_mathematics(text)
    mathematics.set_golds(text)
    mathematics.cut_before_formula(text, len(text) // 2)


def shapes(text: str) -> None:
    for shape in ("think", "think_answer", "think_boxed", "answer", "boxed"):
        for strict in (True, False):
            format.well_formed(text, shape=shape, strict=strict)


def tests_of_programs(text: str) -> None:
    for meta in (
        {"tests": [text]},
        {"test": "assert f(1) == 2", "entry_point": text},
        {"tests": [f"assert f({text!r}) == 1"]},
    ):
        with contextlib.suppress(UnsafeTest):
            read_forms(meta, packages=False)


def contamination(text: str) -> None:
    dedup.Dedup().find(problem(text))
    tests = decontaminate.BenchmarkTexts([problem(text)])
    tests.count(problem(text))
    tests.overlap(problem(text + "1"))


def stored(text: str) -> None:
    response = scored(problem(text, level=text), text=text)
    kept = rollout_rows.rollout_row(response, group="rl/1/heldout/0", noise_step=0, temperature=1.0)
    row_filters.compile_predicate(row_filters.Contains("x"))(kept)


def joined(text: str) -> None:
    with contextlib.suppress(AnsatzError):
        reasoning_steps.joined_steps([text, "a"], "line")


def expression(text: str) -> None:
    with contextlib.suppress(countdown.NotAnExpression):
        countdown.solves(text, [1, 2], 3)


def quiet(function: Callable[[str], object]) -> Reader:
    def call(text: str) -> None:
        with contextlib.suppress(ValueError):
            function(text)

    return call


def row_problem(text: str) -> None:
    given = rows.row_of("file", 1, {"question": text, "answer": text, "solution": text})
    with contextlib.suppress(AnsatzError):
        list(row_problems.rows_with_problems([given], row_problems.RowSettings(), source="file"))
    filtered = json_line(given.values)
    assert filtered.endswith("\n")


def shown(text: str) -> None:
    """A response as the report and the viewer show it."""
    response_pages._mark_answer({"text": text, "extracted": text[:9]})
    response_pages._split_steps({"text": text, "steps": [(end, 1.0) for end in reasoning_steps.step_ends(text)]})
    response.mark_tokens(text, range(len(text)), [0.0] * len(text), "entropy")
    rollout_table.cut_observations({"text": text, "observations": [(0, 1)]})
    page._count_shared([{"text": text}, {"text": text + "x"}])
    page._show_characters(text)
    say(text, file=io.StringIO())


def judged(text: str) -> None:
    judge._messages(text, text, text)
    JUDGE_PROMPT.messages(text, text, text, text)
    verdict = Verdict(correct=False, reason=Reason.DIFFERENT, extracted=text)
    estimators.vote(verdict, gold=text)


def graded(text: str) -> None:
    for mode in ("strict", "anchored", "last_number"):
        verify("5", text, mode=mode)
    for said in (f"{text}\\boxed{{5}}", f"\\boxed{{5}}{text}", f"The answer is {text}"):
        verify("5", said, mode="anchored")


def other_logs(text: str) -> None:
    """The text as a line of a log of another project, and at every free place of a row of each."""
    with contextlib.suppress(AnsatzError):
        logs.read_lines(text.encode("utf-8", "surrogatepass"))
    for row in (
        {"prompt": text, "completion": text, "advantage": 1.0, text: 1.0},
        {"input": text, "output": text, "gts": text, "score": 1.0},
        {"content": [text, text], "rewards": 1.0, "input_lengths": 1, "generation_logprobs": text},
    ):
        bundle = logs.bundle_of_rows([row, row], 1, text)
        _ = [claim.line for claim in claims.audit(bundle, recompute=False)], claims.waste(bundle)


def card(text: str) -> None:
    """A card with the text at its free places, and one of whose traces is the text."""
    trace = {"samples": text, "lengths": [1], "tokens": text, "logps": text}
    steps = {text: [{"step": 1, "rollouts": text}, {"step": 1, "trace": trace}]}
    content = {"format": 1, "ansatz": text, "recipe": {text: [text]}, "signatures": [text], "num_changes": 0}
    for stages in ({}, steps):
        content |= {"stages": stages, "packages": {text: text}, "data": {}, "code": {}, "chain": cards.chain_of({})}
        with contextlib.suppress(AnsatzError):
            cards.config_of(cards.check_card(content, Path("card.json")), Path("card.json"), {})
    with contextlib.suppress(ValueError):
        cards.Trace(**trace).responses()


WORKED = problem("?", answers=("5",), meta={"steps": [[2, "+", 3, 5]]})
READERS: dict[str, Reader] = {
    **{
        f"steps by {at}": functools.partial(reasoning_steps.step_ends, at=at)
        for at in ("line", "blank_line", "sentence")
    },
    "steps by a marker": functools.partial(reasoning_steps.step_ends, at={"marker": "a a a b"}),
    "exact steps": lambda text: reasoning_steps.exact_labels(WORKED, text),
    "encoded steps": lambda text: reasoning_steps.encode_steps(Letters(), "?", text, reasoning_steps.step_ends(text)),
    "joined steps": joined,
    "the last program": code_blocks.last_program,
    "printed output": lambda text: code_tests.same_output(text, f"1.5 {text[1:]}x", 0.1),
    "a printed number": lambda text: code_tests.same_output(text.replace(" ", ""), "1.5", 0.1),
    "plain values": received,
    "tests of programs": tests_of_programs,
    "the shape of a response": shapes,
    "windows of words": language.windows,
    "an expression": expression,
    "the verdict of a judge": judge.read_verdict,
    "the mark of a judge": JUDGE_PROMPT.read,
    "the mark of a judge in JSON": JudgePrompt(template="x", parser="json").read,
    "what a judge says before": lambda text: judge.read_verdict(f"{text}\nCORRECT"),
    "markers of any family": lambda text: (broken(text), has_marker(text)),
    "special tokens": special_tokens_of,
    "repeated n-grams": lambda text: repeated_frac(list(map(ord, text))),
    "calls in a turn": calls_in,
    "answers of tools": tool_answers,
    "a calculation": calculator._answer,
    "JSON": quiet(parse_json),
    "a literal": quiet(parse_literal),
    "a list of calls": quiet(parse_calls),
    "arguments": quiet(parse_arguments),
    "visible text": lambda text: (visible(text), whole({text: [text]})),
    "a row": row,
    "a log of another project": other_logs,
    "instructions": record_formats.without_instructions,
    "a question with choices": choices.without_choices,
    "a worked program": lambda text: programs.program_of(text, text),
    "doubts about a row": doubts,
    "normal forms": normal_forms,
    "answers in a solution": answers_in,
    "contamination": contamination,
    "a stored response": stored,
    "formulas": formulas,
    "the problem of a row": row_problem,
    "a response on a page": shown,
    "a question for a judge": judged,
    "the value of a form": lambda text: format._value(text, "think", True, 1.0, 0.1, 0.5),
    "the language": lambda text: language.language_frac(text, "en", lambda window: {"en": 1.0}),
    "the answer of a response": graded,
    "a card": card,
    "differing words": lambda text: word_diff.word_diff(text, f"x {text[len(text) // 3 :]}{text[:99]}"),
}
"""By what is read."""
FOLDER = Path(__file__).parents[1] / "ansatz"
