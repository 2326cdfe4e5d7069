"""A prompt and a demonstration as the policy of a run gets them, and notes for the user about all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from ansatz.config.chat import ChatTemplate
from ansatz.config.stages.core import SftSection
from ansatz.loop.run_sources import HasTokenizer, RunSources
from ansatz.prompts.render import show_demonstration, show_prompt
from ansatz.prompts.templates import EMPTY_THOUGHT, THOUGHT, THOUGHT_END, spelled_out
from ansatz.special_tokens import special_tokens
from ansatz.types import SYSTEM_ROLES, Problem

_TAG = re.compile(r"<([A-Za-z][\w-]*)>")
_FIRST_TOKENS = 16  # of a response, which hold an empty thought


def note_texts(sources: RunSources, reader: HasTokenizer) -> None:
    """Add notes for the user about the prompts and demonstrations to the notes of the sources, and show the first
    ones."""
    renderer, tokenizer, sources.shown = sources.renderer(reader), reader.tokenizer, []
    for split in sources.splits:
        problems = sources.problems(split)
        if split != "sft":
            sources.notes += [f"data.{split}: {note}" for note in _note_other_forms(sources, problems)]
        of_evaluation = sources.config.evaluate.template if split == "heldout" else None
        if split == "train" or of_evaluation or (split == "heldout" and not sources.shown):
            shown = sources.renderer(reader, template=of_evaluation)
            sources.shown += [show_prompt(shown.prompt(problem), tokenizer) for problem in islice(problems, 1)]
        if split == "sft" and sources.config.section(SftSection).objective == "response":
            every = sources.config.section(SftSection).responses == "all"
            sources.notes += [f"data.sft: {note}" for note in _thoughts(sources, reader, problems, every=every)]
            first = (renderer.demonstration(problem, every_response=every) for problem in islice(problems, 1))
            sources.shown += [show_demonstration(demonstration, tokenizer) for demonstration in first]


def _note_other_forms(sources: RunSources, problems: Sequence[Problem]) -> Iterator[str]:
    """Say how many questions ask for a box under a system prompt that asks for tags."""
    template = spelled_out(sources.config.data.template)
    if not isinstance(template, ChatTemplate) or template.user != "boxed":
        return
    asked = [_TAG.search(text) for text in (_system_prompt(problem, template) for problem in problems) if text]
    tags = [match[0] for match in asked if match and "\\boxed" not in match.string]
    if tags:
        yield (
            f"{len(tags)} of {len(problems)} questions end with the request to put the answer in \\boxed{{}}, and "
            f"their system prompts ask for tags such as {tags[0]}. Set data.template: {{name: chat, user: none}} to "
            "leave the request out."
        )


def _system_prompt(problem: Problem, template: ChatTemplate) -> str:
    own = [str(turn["content"]) for turn in problem.earlier_turns if turn["role"] in SYSTEM_ROLES]
    return "\n".join(own) or template.system or ""


def _thoughts(sources: RunSources, reader: HasTokenizer, problems: Sequence[Problem], *, every: bool) -> Iterator[str]:
    """Say how many demonstrations lack a thought although the template has a place for one."""
    template, tokenizer = spelled_out(sources.config.data.template), reader.tokenizer
    if not isinstance(template, ChatTemplate) or THOUGHT not in str(tokenizer.chat_template or ""):
        return
    renderer, plain = sources.renderer(reader), [each for each in problems if THOUGHT_END not in (each.solution or "")]
    if template.arguments.get("enable_thinking") is True:
        if plain:
            yield (
                f"{len(plain)} of {len(problems)} demonstrations have no thought, although enable_thinking is true, so "
                "they teach to answer without one. The empty thought of the chat template is left out. Add thoughts "
                "(<think>...</think>) to the solutions, or set enable_thinking: false."
            )
        return
    responses = (renderer.demonstration(each, every_response=every).response_ids for each in plain)
    decode = special_tokens(tokenizer).decode
    empty = sum(EMPTY_THOUGHT.match(decode(ids[:_FIRST_TOKENS])) is not None for ids in responses)
    if empty:
        yield (
            f"the chat template adds an empty thought to {empty} of {len(problems)} demonstrations, so they teach to "
            "answer without thinking. Set data.template: {name: chat, arguments: {enable_thinking: false}}, which puts "
            "the empty thought into the prompt, or add thoughts (<think>...</think>) to the solutions."
        )
