"""A tool in the form of the chat template, from demonstrations to GRPO: a tiny policy learns to call the calculator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from toy_runs import command
from transformers import AutoTokenizer

from ansatz.data.base import load_problems
from ansatz.models.tiny import build_tiny_model
from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import groups_path, step_files, tokens_path
from ansatz.track.token_file import read_tokens
from ansatz.types import Problem

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool.function.name + '\n' }}{% endfor %}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content + '\n' }}"
    "{% elif m.role == 'tool' %}{{ '<tool_response>' + m.content + '</tool_response>\n' }}"
    "{% else %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}"
    "{{ '<tool_call>' + (call.function | tojson) + '</tool_call>' }}{% endfor %}{{ '<|end|>' }}{% endif %}{% endfor %}"
)
"""With calls and answers as Qwen writes them, and only the names of the tools."""
STORIES = {"digits": 2, "max_steps": 1}
"""Products of two numbers of two digits."""


def conversation(problem: Problem) -> list[dict[str, Any]]:
    """The demonstration as turns: the calculator is called as a tool, or the product is written down at once."""
    question = {"role": "user", "content": problem.question}
    if not problem.meta["calls"]:
        return [question, {"role": "assistant", "content": problem.solution}]
    assert problem.solution
    expression = problem.solution.partition("<calc>")[2].partition("</calc>")[0]
    call = {"type": "function", "function": {"name": "calculator", "arguments": {"expression": expression}}}
    return [
        question,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": problem.answer},
        {"role": "assistant", "content": f"\\boxed{{{problem.answer}}}"},
    ]


def written(folder: Path) -> Path:
    """The recipe, with its model of random weights and its demonstrations."""
    source = {**STORIES, "count": 6400, "call_rate": 0.3, "seed": 1}
    rows = [conversation(problem) for problem in load_problems("long_numbers", split="train", settings=source)]
    (folder / "rows.jsonl").write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    texts = [json.dumps(turn) if "tool_calls" in turn else turn["content"] for row in rows[:500] for turn in row]
    build_tiny_model(folder / "model", texts=texts)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    stories = {"source": "long_numbers", **STORIES}
    recipe = {
        "name": "chat_tools",
        "out": str(folder),
        "data": {
            "template": {"name": "chat", "user": "none"},
            "sft": {"source": "jsonl", "split": "train", "path": str(folder / "rows.jsonl")},
            "train": {**stories, "split": "train", "count": 4000, "seed": 2},
            "heldout": {**stories, "split": "heldout", "count": 60, "seed": 3},
        },
        "model": {"path": str(folder / "model")},
        "sft": {"steps": 300, "batch_size": 32, "lr": 4e-3, "decay_steps": 120},
        "environment": {"name": "calculator", "form": "chat", "turns": 3},
        "rollout": {"prompts_per_step": 16, "samples_per_prompt": 8, "max_response_tokens": 96},
        "algorithm": {"preset": "grpo"},
        "rewards": {"math_answer": {"mode": "strict"}},
        "train": {"steps": 12, "lr": 4e-4, "tokens_per_microbatch": 8192, "max_logprob_gap": 1.01},
        "evaluate": {"problems": 60, "samples_per_prompt": 4, "k": 4, "every": 6},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("chat_tools")
    code, out, err = command("train", written(folder), timeout_s=1800)
    assert code == 0, out + err
    return folder / "chat_tools" / "rl"


def test_grpo_learns_to_call_a_tool_of_the_chat_template(run):
    rows = read_jsonl(run / "metrics.jsonl")
    first, last = (sum(row["rollout/observations"] for row in some) / 3 for some in (rows[:3], rows[-3:]))
    assert 0.1 < first < 0.5  # calls of a response, as in the demonstrations
    assert last > 0.8
    before, after = (read_jsonl(run.parent / stage / "evaluations.jsonl")[-1]["pass@1"] for stage in ("sft", "rl"))
    assert after > before + 0.3


def watched_rollouts(run):
    """Yield the row, the row of the group, and the token ids of each response whose tokens are stored."""
    for file in step_files(run, "samples"):
        groups = {row["group"]: row for row in read_jsonl(groups_path(file.path))}
        for row in read_jsonl(file.path):
            if row["tokens_at"] is not None:
                tokens = read_tokens(tokens_path(file.path), *row["tokens_at"])
                yield row, groups[row["group"]], tokens["id"].tolist()


def test_prompt_turns_and_answers_have_the_ids_of_the_template(run):
    tokenizer = AutoTokenizer.from_pretrained(run.parents[1] / "model")
    tools = [{"type": "function", "function": {"name": "calculator"}}]
    texts, ids = list[tuple[str, str]](), list[bool]()
    for rollout, prompt, written in watched_rollouts(run):
        call, _, rest = rollout["text"].partition("</tool_call>")
        answer, _, last = rest.removeprefix("<tool_response>").partition("</tool_response>\n")
        if last != f"\\boxed{{{answer}}}":  # no call, a second one, or the length limit
            continue
        turns = [
            {"role": "user", "content": prompt["question"]},
            {"role": "assistant", "tool_calls": [{"function": json.loads(call.removeprefix("<tool_call>"))}]},
            {"role": "tool", "content": answer},
            {"role": "assistant", "content": last},
        ]
        rendered = tokenizer.apply_chat_template(turns, tools=tools)["input_ids"]
        texts.append((prompt["prompt"] + tokenizer.decode(written), tokenizer.decode(rendered)))
        ids.append(rendered[-len(written) :] == written)
    assert len(texts) > 50
    assert all(left == right for left, right in texts)
    assert sum(ids) > 0.9 * len(ids)  # the policy may write a number in other tokens than the tokenizer
