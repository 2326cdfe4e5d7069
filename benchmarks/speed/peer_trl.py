"""TRL's GRPOTrainer and SFTTrainer as one side of the benchmark. A callback makes them wait between steps."""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rounds import Rounds, share_of_letters
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer


class OnDemand(TrainerCallback):
    def __init__(self, rounds: Rounds) -> None:
        self.rounds, self.steps, self.tokens = rounds, 0, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._next(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps += 1
        tokens, self.tokens = state.num_input_tokens_seen - self.tokens, state.num_input_tokens_seen
        self.rounds.end(step=self.steps, tokens=tokens)
        self._next(control)

    def _next(self, control: Any) -> None:
        control.should_training_stop = not self.rounds.begin()


class ToScore(TrainerCallback):
    """One round from the first step to the evaluation that reaches a pass@1, sampled as the trainer samples."""

    def __init__(self, rounds: Rounds) -> None:
        settings = rounds.settings
        self.rounds, self.settings, self.curve = rounds, settings, list[tuple[int, float]]()
        self.training_s, self.started = 0.0, 0.0
        self.rows = read(settings["heldout"])[: settings["problems"]]

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = not self.rounds.begin()
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        self.training_s += time.perf_counter() - self.started
        self._evaluate(state, control, model)
        self.started = time.perf_counter()

    def _evaluate(self, state: Any, control: Any, model: Any) -> None:
        if state.global_step % self.settings["every"]:
            return
        score = pass_at_1(model, self.tokenizer, self.rows, self.settings)
        self.curve.append((state.global_step, score))
        if score >= self.settings["target"]:
            self.rounds.end(step=state.global_step, training_s=self.training_s, curve=self.curve)
            control.should_training_stop = not self.rounds.begin()


@torch.inference_mode()
def pass_at_1(model: Any, tokenizer: Any, rows: list[dict[str, Any]], settings: dict[str, Any]) -> float:
    texts = [row["prompt"] for row in rows for _ in range(settings["evaluate_samples"])]
    tokens = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    model.eval()
    out = model.generate(**tokens, do_sample=True, top_k=0, max_new_tokens=settings["max_tokens"])
    model.train()
    texts = tokenizer.batch_decode(out[:, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
    answers = [row["answer"] for row in rows for _ in range(settings["evaluate_samples"])]
    return sum(map(is_correct, texts, answers)) / len(texts)


def is_correct(text: str, answer: str) -> float:
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return float(bool(boxes) and boxes[-1].strip() == answer)


def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return list(map(is_correct, completions, answer))


def read(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def load(settings: dict[str, Any]) -> tuple[Any, Any]:
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(
        settings["model"], dtype=getattr(torch, settings["dtype"]), attn_implementation=settings["attention"]
    )
    return model, tokenizer


def common(settings: dict[str, Any], out: str) -> dict[str, Any]:
    return {
        "output_dir": out,
        "use_cpu": True,
        "bf16": settings["autocast"],
        "learning_rate": settings["lr"],
        "warmup_steps": settings["warmup_steps"],
        "lr_scheduler_type": "constant_with_warmup",
        "adam_beta2": 0.99,
        "max_grad_norm": 1.0,
        "max_steps": settings["steps"],
        "save_strategy": "no",
        "logging_steps": 1000,
        "report_to": [],
        "include_num_input_tokens_seen": "non_padding" if settings["work"] == "sft" else "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "seed": 0,
    }


def grpo(rounds: Rounds, out: str) -> None:
    settings = rounds.settings
    model, tokenizer = load(settings)
    rollouts = settings["prompts"] * settings["samples"]
    minimum = {"min_new_tokens": settings["min_tokens"]} if settings["min_tokens"] else {}
    config = GRPOConfig(
        **common(settings, out),
        per_device_train_batch_size=rollouts // settings["microbatches"],
        gradient_accumulation_steps=settings["microbatches"],
        num_generations=settings["samples"],
        max_completion_length=settings["max_tokens"],
        temperature=1.0,
        beta=0.0,
        loss_type="grpo",
        scale_rewards="group",
        generation_kwargs={**minimum, **settings["options"]},
        shuffle_dataset=True,
    )
    callback = ToScore(rounds) if settings["work"] == "to_score" else OnDemand(rounds)
    callback.tokenizer = tokenizer
    GRPOTrainer(
        model=model,
        reward_funcs=reward if settings["work"] == "to_score" else [reward, share_of_letters],
        args=config,
        train_dataset=Dataset.from_list(read(settings["data"])),
        processing_class=tokenizer,
        callbacks=[callback],
    ).train()


def sft(rounds: Rounds, out: str) -> None:
    settings = rounds.settings
    model, tokenizer = load(settings)
    rows = [{"prompt": row["prompt"], "completion": row["completion"]} for row in read(settings["data"])]
    config = SFTConfig(
        **common(settings, out),
        per_device_train_batch_size=settings["batch"] // settings["microbatches"],
        gradient_accumulation_steps=settings["microbatches"],
        packing=settings["packing"],
        max_length=settings["max_length"],
        completion_only_loss=True,
    )
    SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[OnDemand(rounds)],
    ).train()


def main() -> None:
    rounds = Rounds()
    with tempfile.TemporaryDirectory() as out:
        (sft if rounds.settings["work"] == "sft" else grpo)(rounds, out)


if __name__ == "__main__":
    main()
