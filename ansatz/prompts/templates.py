"""The table of prompt templates. {question} marks the place of the question.

A recipe can also name "chat" (the tokenizer's chat template around the `boxed` text) or a user's .txt file.
"""

from __future__ import annotations

from pathlib import Path

from ansatz.errors import ConfigError
from ansatz.registry import describe_missing_file, suggest

QUESTION = "{question}"
CHAT = "chat"

STEP_BY_STEP = "Please reason step by step, and put your final answer within \\boxed{}."

TEMPLATES = {
    "none": "{question}",
    "boxed": f"{{question}}\n{STEP_BY_STEP}",
    # Qwen2.5-Math's prompt (arXiv:2409.12122), written out so that it can also be used with a base model.
    "qwen_math": (
        f"<|im_start|>system\n{STEP_BY_STEP}<|im_end|>\n<|im_start|>user\n{{question}}<|im_end|>\n<|im_start|>assistant\n"
    ),
    # DeepSeek-R1-Zero, arXiv:2501.12948, table 1.
    "r1": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
        "assistant first thinks about the reasoning process in the mind and then provides the user with the answer. "
        "The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, "
        "respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. "
        "User: {question}. Assistant:"
    ),
    # The training and evaluation prompts of a public report on GRPO with Llama 3.1 8B, unchanged. Both go into the
    # user's turn, without a system prompt.
    "report": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. "
        "The assistant first thinks about the reasoning process in the mind and then provides the user with the "
        "answer. The reasoning process and answer are enclosed within <think></think> and <answer></answer> tags, "
        "respectively, i.e., <think>reasoning process here</think> <answer>answer here</answer>. "
        "User: {question} Assistant: "
    ),
    "report_eval": f"You will be given a problem.{STEP_BY_STEP} {{question}}",
    "gsm8k": (
        "Question: {question}\n"
        "Reason step by step and write the final number on the last line after '#### '.\n"
        "Answer:\n"
    ),
    # Program of thought (arXiv:2211.12588), for the reward program.
    "program": (
        "{question}\nWrite a Python program that computes the answer and prints it on its last line. "
        "Put it in a block that begins with ```python and ends with ```.\n"
    ),
    # Code that tests call, for the reward code_tests.
    "code": "{question}\nPut the Python code in a block that begins with ```python and ends with ```.\n",
    # For models trained from scratch; short, because every prompt pays for its tokens.
    "tiny": "Question: {question}\nAnswer:\n",
}


def template_text(name: str) -> str:
    """Return the text of a template, which contains {question} once. `name` is a key of TEMPLATES or the path of a .txt
    file.

    Raise ConfigError for an unknown name, a missing file, or a file that does not contain {question} exactly once.
    `render` handles "chat", which has no text of its own.
    """
    if name in TEMPLATES:
        return TEMPLATES[name]
    if not name.endswith(".txt"):
        raise ConfigError(
            f"prompt template {name!r} is unknown.{suggest(name, [*TEMPLATES, CHAT])} "
            f"A template can also be the path of a .txt file that contains {QUESTION}."
        )
    path = Path(name)
    if not path.is_file():
        raise ConfigError(
            f"prompt template {name!r} {describe_missing_file(path)}. Expected a text file that contains {QUESTION}."
        )
    text = path.read_text(encoding="utf-8")
    if text.count(QUESTION) != 1:
        raise ConfigError(
            f"prompt template {name!r} contains {QUESTION} {text.count(QUESTION)} times, expected once. "
            "It marks the place of the problem's question."
        )
    return text
