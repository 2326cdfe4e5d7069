"""A user's first real run, from a model on the hub to an exported model in other tools, in an empty folder.

    python benchmarks/first_run.py --work DIR --data DATA [--ansatz COMMAND] [--vllm-python PYTHON]
        [--lm-eval-python PYTHON] [--recipes]

It follows docs/how-to/your_model_one_gpu.md with a small model with random weights, which lies in a hub cache that is
laid out by hand, and nothing reaches a network. MATH's training file, with its two rows whose box is empty, and a chat
file with system prompts and earlier turns are used for training; the results are evaluated on four suites with each
engine, exported, and loaded by transformers, peft, vLLM and lm-eval. --recipes also starts every installed recipe at
toy size. Each step is a command as a user types it. DIR/steps.json and DIR/steps.md hold what was run, the exit codes
and the seconds; the exit code is 1 if a step did not end as expected.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODEL, COMMIT = "someone/small-math", "c" * 40
SUITES = "gsm8k,math500,svamp,aime24"
CHATML = (
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CLOSING = "\n\nTime is up; I answer now.\n</think>\n\n"
SHORT = ["--max-response-tokens", "16", "--samples-per-prompt", "2"]
RECIPE = """name: {name}
data:
{data}
  heldout: {{source: jsonl, split: heldout, path: heldout.jsonl}}
model: {{path: {model}}}
rollout: {{prompts_per_step: 4, samples_per_prompt: 4, max_response_tokens: 48, max_prompt_tokens: 1500}}
sft: {{steps: {sft_steps}, batch_size: 4}}
train: {{steps: 2}}
evaluate: {{problems: 4, samples_per_prompt: 2, k: 2}}
"""
MATH_DATA = "  unfit: {unfit}\n  train: {{source: jsonl, split: train, path: math_train.jsonl}}"
CHAT_DATA = """  template: {name: chat, system: "You solve problems of mathematics."}
  sft: {source: jsonl, split: train, path: chat.jsonl, each_response: true}
  train: {source: jsonl, split: train, path: chat.jsonl}"""

TRANSFORMERS = """
import sys, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
turns = [{"role": "user", "content": "What is 1 + 1?"}]
inputs = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(model.dtype, model.generate(**inputs, max_new_tokens=4).shape)
"""
PEFT = """
import sys, peft, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", r=2, target_modules="all-linear"))
adapted.save_pretrained(sys.argv[2])
print(peft.AutoPeftModelForCausalLM.from_pretrained(sys.argv[2]).num_parameters())
"""
VLLM = """
import sys, vllm
if __name__ == "__main__":
    model = vllm.LLM(model=sys.argv[1], max_model_len=512, enforce_eager=True)
    turns = [{"role": "user", "content": "What is 1 + 1?"}]
    print(len(model.chat(turns, vllm.SamplingParams(max_tokens=4))[0].outputs[0].token_ids), "tokens")
"""
TASK = """task: first_run
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{problem}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["###"], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


def main() -> int:
    arguments = _arguments()
    work = arguments.work.resolve()
    if work.exists() and any(work.iterdir()):
        sys.exit(f"--work {work} is not empty. Give a new folder.")
    work.mkdir(parents=True, exist_ok=True)
    make_model(work / "hub" / "hub", arguments.data)
    make_files(work, arguments.data)
    walk = Walk(work, shlex.split(arguments.ansatz))
    engines = {"native": walk.ansatz}
    if arguments.vllm_python:
        engines["vllm"] = [arguments.vllm_python, "-c", "from ansatz.cli.main import main; main()"]
    train_and_export(walk)
    evaluate(walk, arguments)
    for engine, ansatz in engines.items():
        sample(walk, engine, ansatz, arguments)
    load_elsewhere(walk, arguments)
    if arguments.recipes:
        start_recipes(walk)
    walk.report()
    return 0 if all(step["as_expected"] for step in walk.steps) else 1


class Walk:
    """Runs commands in the work folder and keeps what came of them."""

    def __init__(self, work: Path, ansatz: list[str]) -> None:
        self.work, self.ansatz, self.steps = work, ansatz, list[dict[str, Any]]()

    def run(self, what: str, *command: object, expect: int = 0, says: str = "") -> None:
        """A command of `ansatz`. says: text that its output must contain."""
        line = [str(part) for part in command]
        self.program(what, [*self.ansatz, *line], shown=line, expect=expect, says=says)

    def program(
        self, what: str, command: list[str], *, shown: list[str] | None = None, expect: int = 0, says: str = ""
    ) -> None:
        """Any command. shown: the part of it that the table shows."""
        settings = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.work / "hub")}
        settings |= {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB; by default vLLM for CPUs takes half of the memory
        settings |= {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}  # a forked copy of a process with threads can hang
        start = time.perf_counter()
        done = subprocess.run(
            command, cwd=self.work, env=os.environ | settings, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
        output = done.stdout + done.stderr
        as_expected = done.returncode == expect and says in " ".join(output.split())
        line = shlex.join(shown or command)
        self.steps.append(
            {"what": what, "command": line, "code": done.returncode, "as_expected": as_expected, "seconds": seconds}
        )
        print(f"{'ok ' if as_expected else 'BAD'} {seconds:6.1f} s  {what}", flush=True)
        if not as_expected:
            print(output[-3000:], flush=True)

    def report(self) -> None:
        (self.work / "steps.json").write_text(json.dumps(self.steps, indent=2))
        lines = ["| step | exit code | as expected | seconds |", "|---|---|---|---|"]
        lines += [
            f"| {step['what']} | {step['code']} | {'yes' if step['as_expected'] else 'no'} | {step['seconds']:.0f} |"
            for step in self.steps
        ]
        (self.work / "steps.md").write_text("\n".join(lines) + "\n")
        print(f"{sum(step['as_expected'] for step in self.steps)} of {len(self.steps)} steps as expected")


def train_and_export(walk: Walk) -> None:
    write = {"math": MATH_DATA.format(unfit="error"), "math_drop": MATH_DATA.format(unfit="drop"), "chat": CHAT_DATA}
    for name, data in write.items():
        steps = 2 if name == "chat" else 0
        text = RECIPE.format(name=name, data=data, model=f"{MODEL}@main", sft_steps=steps)
        (walk.work / f"{name}.yaml").write_text(text)
    walk.run(
        "look at MATH's training file", "data", "peek", "math_train.jsonl", "--tokenizer", MODEL, says="7498 problems"
    )
    walk.run("find its rows without an answer", "data", "check", "math_train.jsonl", expect=1, says="2 cannot be used")
    fields = ("data", "filter", "math_train.jsonl", "--out", "clean.jsonl", "--drop", "unreadable")
    walk.run("write a file without them", *fields, says="2 dropped")
    walk.run("tag its topics", "data", "tag", "clean.jsonl", "--out", "tagged.jsonl", says="7498 rows")
    walk.run("ask the model", "ask", MODEL, "What is 12 * 13?", "--answer", 156, *SHORT, says="of 2 correct")
    walk.run("train on MATH: both bad rows are named", "train", "math.yaml", expect=2, says="2 of 7500 rows")
    walk.run("train on MATH without them", "train", "math_drop.yaml", says="2")
    walk.run("explain the chat run", "explain", "chat.yaml", "--memory", "24GiB")
    walk.run("check the chat run", "check", "chat.yaml", "--prompts", 1)
    walk.run("train on the chat file: SFT, then RL", "train", "chat.yaml")
    for name in ("math_drop", "chat"):
        walk.run(f"export the run {name}", "export", f"runs/{name}", f"models/{name}")


def evaluate(walk: Walk, arguments: argparse.Namespace) -> None:
    """What only the native engine needs to show: greedy evaluation of a hub model, thinking budgets, other rewards."""
    suites = ["--suite", SUITES, "--suites", str(arguments.data.resolve()), "--problems", "3"]
    greedy = [*suites, "--max-response-tokens", "16", "--temperature", "0"]
    walk.run("evaluate a model of the hub", "eval", MODEL, *greedy, "--out", "evals/hub", says="aime24")
    thoughts = ["--suite", "heldout.jsonl", "--thinking-budgets", "8,0", "--closing", CLOSING]
    thoughts += ["--max-response-tokens", "64", "--samples-per-prompt", "4", "--out", "evals/budgets"]
    walk.run("evaluate by thinking budget", "eval", "models/chat", *thoughts, says="none")
    countdown = ["--suite", "countdown", "--problems", "3", *SHORT, "--out", "evals/countdown"]
    walk.run("evaluate with Countdown's reward", "eval", "models/chat", *countdown, says="reward")


def sample(walk: Walk, engine: str, ansatz: list[str], arguments: argparse.Namespace) -> None:
    """Every command that samples, with one engine. ansatz: the command in an environment that has the engine."""
    suites = ["--suite", SUITES, "--suites", str(arguments.data.resolve()), "--problems", "3"]
    hub = f"{MODEL}@{COMMIT}"
    rate = ["data", "difficulty", "heldout.jsonl", "--model", hub, "--out", f"rated-{engine}.jsonl"]
    guess = ["data", "filter", "heldout.jsonl", "--drop", "guessed", "--model", hub, "--out", f"hard-{engine}.jsonl"]
    for what, command, says in (
        ("evaluate on four suites", ["eval", "models/chat", *suites, "--out", f"evals/{engine}"], "aime24"),
        ("sample responses", ["sample", "models/chat", "--data", "heldout.jsonl", "--out", f"samples/{engine}"], "16"),
        ("rate problems by a model of the hub", rate, "rows with pass_rate"),
        ("drop problems that it guesses", guess, "8 rows"),
    ):
        line = [*command, *SHORT, "--engine", engine]
        walk.program(f"{what}, {engine}", [*ansatz, *line], shown=line, says=says)


def load_elsewhere(walk: Walk, arguments: argparse.Namespace) -> None:
    models = ["models/math_drop", "models/chat", "runs/chat/sft/checkpoints/step-000002"]
    for number, model in enumerate(models):
        walk.program(f"transformers loads {model}", [arguments.python, "-c", TRANSFORMERS, model], says="torch.Size")
        walk.program(f"peft loads {model}", [arguments.python, "-c", PEFT, model, f"adapters/{number}"])
        if arguments.vllm_python:
            (walk.work / "vllm_chat.py").write_text(VLLM)
            walk.program(f"vLLM loads {model}", [arguments.vllm_python, "vllm_chat.py", model], says="4 tokens")
        if arguments.lm_eval_python:
            (walk.work / "tasks").mkdir(exist_ok=True)
            file = arguments.data.resolve() / "amc23" / "test.jsonl"
            (walk.work / "tasks" / "first_run.yaml").write_text(TASK.format(file=file))
            command = [arguments.lm_eval_python, "-m", "lm_eval", "--model", "hf", "--device", "cpu", "--limit", "2"]
            command += ["--model_args", f"pretrained={model},dtype=float32", "--tasks", "first_run"]
            walk.program(
                f"lm-eval loads {model}",
                [*command, "--include_path", "tasks", "--apply_chat_template"],
                says="exact_match",
            )


def start_recipes(walk: Walk) -> None:
    from ansatz.config.packaged import packaged_recipes

    for recipe in packaged_recipes():
        name = recipe.path.stem
        walk.run(f"start {name} at toy size", "train", name, "--model.toy", "true", "--out", "toy", "--threads", 1)


def make_model(cache: Path, data: Path) -> None:
    """A Qwen2 with random weights and a tokenizer with a chat template, as the hub's cache holds a download."""
    import tokenizers
    import torch
    import transformers

    folder = cache / f"models--{MODEL.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=alphabet)
    rows = itertools.islice(rows_of(data / "math"), 1000)
    backend.train_from_iterator((row["problem"] + "\n" + row["solution"] for row in rows), trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder / "snapshots" / COMMIT)
    tokenizer.save_pretrained(folder / "snapshots" / COMMIT)


def make_files(work: Path, data: Path) -> None:
    """MATH as it is published, held-out problems, and a chat file with a system prompt and an earlier turn."""
    math = [
        {"problem": row["problem"], "level": row["level"], "type": row["subject"], "solution": row["solution"]}
        for row in rows_of(data / "math")
    ]
    write_rows(work / "math_train.jsonl", math)
    gsm8k = list(rows_of(data / "gsm8k"))[:60]
    write_rows(work / "heldout.jsonl", gsm8k[:8])
    before = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello, what is the problem?"}]
    chats = [
        [
            *([{"role": "system", "content": f"You are tutor {index % 3}."}] if index % 2 else []),
            *(before if index % 3 else []),
            {"role": "user", "content": row["problem"]},
            {"role": "assistant", "content": f"It is \\boxed{{{row['answer']}}}."},
        ]
        for index, row in enumerate(gsm8k[8:])
    ]
    write_rows(work / "chat.jsonl", [{"messages": chat} for chat in chats])


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of the folder's training file."""
    from ansatz.data.formats import open_rows

    file = next(file for file in sorted(folder.iterdir()) if file.name.startswith("train.jsonl"))
    return (row.values for row in open_rows(file))


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder")
    parser.add_argument("--data", type=Path, required=True, help="folder with SUITE/test.jsonl and math/train.jsonl")
    parser.add_argument("--ansatz", default="ansatz", help="the command, such as that of an installed wheel")
    parser.add_argument("--python", default=sys.executable, help="a Python with transformers and peft")
    parser.add_argument("--vllm-python", help="a Python with vLLM and Ansatz")
    parser.add_argument("--lm-eval-python", help="a Python with lm-eval")
    parser.add_argument("--recipes", action="store_true", help="also start every installed recipe at toy size")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
