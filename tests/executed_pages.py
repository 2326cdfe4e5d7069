"""The pages whose commands a test executes (`e2e/test_page_commands.py`), and how others say that none does."""

from __future__ import annotations

import re
from pathlib import Path

from toy_runs import REPOSITORY

_SMALL = (
    " --threads 1 --sft.steps 2 --train.steps 2 --rollout.prompts_per_step 4 --rollout.samples_per_prompt 4 "
    "--evaluate.problems 4 --evaluate.samples_per_prompt 2 --evaluate.k 2"
)
_SMALL_STEPS = (r"(?m)^(ansatz train (?:tiny_arithmetic_think_cpu|mine\.yaml))(?!.*toy)", rf"\1{_SMALL}")
_RUNS = (r"runs/OTHER\b", "runs/second"), (r"(?<!/)runs/NAME\b", "runs/first")
_VIEW = (r"(?m)^(ansatz view .*)$", r"timeout 20 \1 || test $? = 124")

_PAGES: dict[str, tuple[tuple[str, str], ...]] = {
    "how-to/add_a_reward.md": (),
    "how-to/add_a_source.md": (),
    "how-to/add_an_algorithm.md": (),
    "how-to/from_trl_or_verl.md": (),
    "how-to/troubleshooting.md": (),
    "how-to/your_model_one_gpu.md": (
        (r"Qwen/Qwen2\.5-1\.5B-Instruct", "MODEL"),
        (r"(?m)^(ansatz data peek my\.jsonl)$", r"ansatz init new; cp new/problems.jsonl my.jsonl; \1"),
        (r"--heldout-frac 0\.1", "--heldout-frac 0.3"),
        (r"max_response_tokens: 1024", "max_response_tokens: 32"),
        (r"(ansatz ask .*|ansatz data difficulty .*|ansatz eval .*)", r"\1 --max-response-tokens 8"),
        _SMALL_STEPS,
    ),
    "how-to/sweep_a_key.md": (
        (r"seeds: \[0, 1, 2\]", "seeds: [0, 1]"),
        (r"\[2e-4, 4e-4, 8e-4\]", "[2e-4, 4e-4]"),
        (r"(?m)^outcome:", "common: {model.toy: true, sft.steps: 2, train.steps: 2}\noutcome:"),
    ),
    "quickstart.md": (
        (r"make env\n\. \.venv/bin/activate\n", ""),
        (r"checkpoints/step-\d+", "checkpoints/step-000002"),
        (r"--sft\.steps 20 --train\.steps 2", ""),
        (r"(?m)^(ansatz explain \S+ --memory 24GiB)$", r"\1 || test $? = 1"),  # it does not fit
        (r"--model\.path Qwen2\.5-3B-Instruct", "--model.toy true --name again"),
        _SMALL_STEPS,
    ),
    "evaluation.md": (
        (r"ansatz eval runs/NAME", "ansatz eval MODEL --max-response-tokens 8"),
        (r"--suite gsm8k,math500 --suites DIR", "--suite DIR/gsm8k/test.jsonl,DIR/math500/test.jsonl"),
        (r"--suite math500 --suites DIR", "--suite DIR/math500/test.jsonl"),
        (r"evals/([AB])/gsm8k", "evals/MODEL/gsm8k"),
        (r"256,1024,0,\+2048 --max-response-tokens 8192", "4,8,0,+8 --max-response-tokens 40"),
        (r"--suite runs/NAME/problems/heldout\.jsonl", "--suite DIR/gsm8k/test.jsonl --out scored"),
        (r"runs/NAME/reward_model/checkpoints/step-000300", "PRM"),
    ),
    "viewer.md": (*_RUNS, _VIEW),
}
"""Each page in docs/, with the changes that make its commands short: what is replaced, and by what."""

IN_A_CLONE = REPOSITORY / "README.md"
EXECUTED = [REPOSITORY / "docs" / name for name in _PAGES]
MARK = re.compile(r"^<!-- No test executes the commands of this page: .{10,}?\s-->$", re.M | re.S)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.S | re.M)


def shown_commands(page: Path) -> list[str]:
    """The blocks of a page that are marked as commands of a shell: what a reader is meant to type."""
    return [content for kind, content in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == "sh"]


def shortened(page: Path, text: str) -> str:
    """A block of a page, as it is executed."""
    for pattern, replacement in _PAGES[str(page.relative_to(REPOSITORY / "docs"))]:
        text = re.sub(pattern, replacement, text)
    return text


def idle_changes(page: Path) -> list[str]:
    """The changes of a page that no longer change anything: what it shows was edited, and is now executed at length."""
    text, idle = page.read_text(encoding="utf-8"), list[str]()
    for pattern, replacement in _PAGES[str(page.relative_to(REPOSITORY / "docs"))]:
        text, count = re.subn(pattern, replacement, text)
        idle += [] if count else [pattern]
    return idle
