"""The judge's recipe with a language model as the judge: trained by Ansatz, served by vLLM, asked by GRPO."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from toy_runs import REPOSITORY, command
from transformers import AutoTokenizer

from ansatz.data.keyed_random import KeyedRandom
from ansatz.errors import RewardUnavailable
from ansatz.loop.builders import source_problems
from ansatz.models.tiny import build_tiny_model
from ansatz.rewards.judge import judge
from ansatz.rollout.vllm.engine import environment
from ansatz.rollout.vllm.processes import descendants
from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import step_files
from ansatz.types import Finish, Problem, Prompt, Rollout

pytestmark = pytest.mark.vllm
RECIPE = REPOSITORY / "recipes" / "tiny_arithmetic_judge_cpu.yaml"
SETTINGS = {"model": "judge", "rules_first": False, "max_reply_tokens": 8}
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] + '\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
)
"""It leaves out the rules of the system's turn, which the tiny judge could not follow anyway."""


def judged_pairs(count: int) -> list[dict[str, list[dict[str, str]]]]:
    """Conversations that a judge can learn from: half of the candidates are right."""
    source = {"source": "word_problems", "split": "train", "count": count, "max_value": 100, "max_term": 12}
    draw, rows = KeyedRandom("judge"), []
    for problem in source_problems({**source, "wording": "plain"}, key="judge"):
        other = str(draw.between(0, 10 ** draw.between(1, 3)))
        candidate = problem.answer if draw.uniform() < 0.5 else other
        word = "CORRECT" if candidate == problem.answer else "INCORRECT"
        question = f"Question:\n{problem.question}\n\nReference answer:\n{problem.answer}"
        asked = f'{question}\n\nCandidate answer:\n"{candidate}"'  # as in rewards/judge.py
        rows.append({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": word}]})
    return rows


def trained_judge(folder: Path) -> Path:
    """The last checkpoint of a tiny model that has learned to say CORRECT or INCORRECT."""
    rows = judged_pairs(4000)
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    texts = [turn["content"] for row in rows[:500] for turn in row["messages"]]
    build_tiny_model(folder / "new", texts=texts, hidden_size=64, num_layers=2, num_heads=2, intermediate_size=256)
    tokenizer = AutoTokenizer.from_pretrained(folder / "new")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "new")
    pairs = f"{{source: jsonl, split: train, path: {folder / 'pairs.jsonl'}}}"
    (folder / "judge.yaml").write_text(
        f"""
        name: judge
        out: {folder}
        data:
          template: {{name: chat, user: none}}
          sft: {pairs}
          train: {pairs}
          heldout: {{source: word_problems, split: heldout, count: 2}}
        model: {{path: {folder / "new"}}}
        stages: [sft]
        sft: {{steps: 300, batch_size: 32, lr: 4e-3, decay_steps: 150}}
        rollout: {{max_response_tokens: 8}}
        evaluate: {{problems: 1, every: 0}}
        """
    )
    code, out, err = command("train", folder / "judge.yaml", timeout_s=900)
    assert code == 0, out + err
    return folder / "judge" / "sft" / "checkpoints" / "step-000300"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[tuple[str, int]]:
    """The address of vLLM's own server with the judge, and its process."""
    folder = tmp_path_factory.mktemp("judge")
    model = trained_judge(folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    options = {"model": model, "served-model-name": "judge", "host": "127.0.0.1", "port": port, "max-model-len": 512}
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ansatz.rollout.vllm.serve", *flags, "--dtype", "float32", "--enforce-eager"],
            env={**os.environ, **environment(cpu=True)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 300
        while not is_healthy(port):
            said = (folder / "server.log").read_text()[-3000:]
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1", process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def rollouts(candidates: Sequence[int], *, gold: int) -> list[Rollout]:
    question = f"A box holds {gold} apples. How many apples are in it?"
    problem = Problem(id="p", question=question, answers=(str(gold),), source="test", split="train")
    prompt = Prompt(problem=problem, text=question, token_ids=(2,))
    return [
        Rollout(
            prompt=prompt,
            sample=index,
            token_ids=(2,),
            behavior_logps=(0.0,),
            text=f"\\boxed{{{candidate}}}",
            finish=Finish.STOP,
            version_min=0,
            version_max=0,
            seed=0,
        )
        for index, candidate in enumerate(candidates)
    ]


def test_the_recipe_is_judged_by_a_language_model_and_its_agreement_is_measured(server, tmp_path):
    url, _ = server
    cache = tmp_path / "verdicts.sqlite"
    quick = [
        *("--rewards.judge.url", url, "--rewards.judge.cache", cache, "--rewards.judge.max_reply_tokens", "8"),
        *("--sft.steps", "60", "--sft.decay_steps", "0", "--sft.batch_size", "16", "--data.sft.count", "500"),
        *("--rollout.prompts_per_step", "4", "--evaluate.problems", "4", "--evaluate.every", "0", "--train.steps", "3"),
    ]
    code, out, err = command("train", RECIPE, "--out", tmp_path, *quick, timeout_s=900)
    assert code == 0, out + err
    rows = read_jsonl(tmp_path / "tiny_arithmetic_judge_cpu" / "rl" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(0 <= row["reward/agreement"] <= 1 for row in rows)
    with sqlite3.connect(cache) as base:
        (judged,) = base.execute("SELECT COUNT(*) FROM verdicts").fetchone()
    files = step_files(tmp_path / "tiny_arithmetic_judge_cpu" / "rl", "samples")
    reasons = [row["reason"] for file in files for row in read_jsonl(file.path)]
    understood = reasons.count("equal") + reasons.count("different")
    assert understood > 4 * reasons.count("unparsed")  # the judge may say something else to an odd candidate
    assert judged > 0


def test_the_judge_knows_a_right_answer_better_than_a_wrong_one(server):
    url, _ = server
    right, wrong = 0.0, 0.0
    for gold in range(40, 60):
        same, other = judge(rollouts([gold, 7 * gold], gold=gold), url=url, **SETTINGS)
        right, wrong = right + same.value, wrong + other.value
    assert right > wrong + 10  # of 20 each


def test_a_server_that_hangs_is_a_timeout_and_one_that_comes_back_is_asked_again(server):
    url, pid = server
    processes = [pid, *(child.pid for child in descendants(pid))]
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    try:
        with pytest.raises(RewardUnavailable, match="has not answered"):
            judge(rollouts([3], gold=3), url=url, timeout_s=0.5, patience_s=1.5, **SETTINGS)
        wake = threading.Timer(3, lambda: [os.kill(each, signal.SIGCONT) for each in processes])
        wake.start()
        (result,) = judge(rollouts([4], gold=4), url=url, timeout_s=1.0, patience_s=120, **SETTINGS)
        assert result.verdict is not None
        assert result.verdict.reason.value in ("equal", "different")
    finally:
        for each in processes:
            os.kill(each, signal.SIGCONT)
