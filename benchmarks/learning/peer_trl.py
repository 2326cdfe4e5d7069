"""TRL's side of `run.py`: peer_trl.py FOLDER, which holds settings.json and gets steps.json and a checkpoint for each
evaluation. It runs in TRL's environment, with this repository on the path for the rewards."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ansatz.adapters import trl_reward


class Watch(TrainerCallback):
    """Times the steps and keeps the weights of every `every`-th. A step's time has no checkpoint in it."""

    def __init__(self, folder: Path, every: int, tokenizer: Any) -> None:
        self.folder, self.every, self.tokenizer = folder, every, tokenizer
        self.rows: list[dict[str, float]] = []
        self.started = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        self.rows.append({"step": state.global_step, "seconds": time.perf_counter() - self.started})
        if state.global_step % self.every == 0:
            out = self.folder / f"step-{state.global_step:06d}"
            model.save_pretrained(out)
            self.tokenizer.save_pretrained(out)

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, float], **_: Any) -> None:
        """Add what TRL says of the newest step, and write all rows, so that a run that is stopped leaves them."""
        if "reward" not in logs:
            return
        names = {"reward": "reward", "tokens": "completions/mean_length", "grad_norm": "grad_norm"}
        self.rows[-1] |= {name: float(logs[key]) for name, key in names.items()}
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        (self.folder / "steps.json").write_text(json.dumps({"peak_gb": peak_gb, "steps": self.rows}), encoding="utf-8")


def main(folder: Path) -> None:
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    torch.set_num_threads(settings["threads"])
    tokenizer = AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    # As by default: weights in float32, products in bfloat16. In weights of bfloat16, steps of 1e-5 round to nothing.
    model = AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32)
    rollouts, optimizer = settings["prompts"] * settings["samples"], settings["optimizer"]
    config = GRPOConfig(  # what is not named here is TRL's default, which `defaults_of: trl` translates
        output_dir=str(folder / "trainer"),
        use_cpu=True,
        bf16=settings["dtype"] == "bfloat16",
        learning_rate=settings["lr"],
        lr_scheduler_type="constant",
        adam_beta1=optimizer["betas"][0],
        adam_beta2=optimizer["betas"][1],
        weight_decay=optimizer["weight_decay"],
        max_grad_norm=1.0,
        max_steps=settings["steps"],
        per_device_train_batch_size=rollouts // settings["microbatches"],
        gradient_accumulation_steps=settings["microbatches"],
        num_generations=settings["samples"],
        max_completion_length=settings["max_tokens"],
        shuffle_dataset=False,  # the order of the rows is the order of the other side's steps
        gradient_checkpointing=False,
        save_strategy="no",
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        seed=settings["seed"],
    )
    watch = Watch(folder, settings["every"], tokenizer)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=trl_reward(settings["rewards"]),
        args=config,
        train_dataset=Dataset.from_list(settings["rows"]),
        processing_class=tokenizer,
        callbacks=[watch],
    )
    trainer.train()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
