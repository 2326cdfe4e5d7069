"""Fifty steps of the real `ansatz train` on one GPU, with the native sampler next to the trainer.

    python benchmarks/gpu_run.py --model Qwen/Qwen2.5-0.5B --out gpu_run.json

The model has the published layers, random weights and a tokenizer that is trained here, so nothing is downloaded. The
reward is the share of digits in a response, which such a model learns within the run. The report has the median of each
part of a step, the largest memory of tensors, and what `ansatz explain --memory` says in advance.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from ansatz.config.load import check
from ansatz.models.known_models import KNOWN_MODELS
from ansatz.models.memory import memory_parts, peak_bytes
from ansatz.models.plan import parse_hardware, workload_of
from ansatz.models.tiny import build_random_model
from ansatz.objectives.build import build_objective
from ansatz.track.jsonl import read_jsonl

REWARD = """
def digits(rollouts):
    return [sum(map(str.isdigit, rollout.text)) / max(len(rollout.text), 1) for rollout in rollouts]
"""
PHASES = ("time/rollout_s", "time/grade_s", "time/update_s", "time/step_s")
RATES = ("perf/rollout_tokens_per_s", "perf/train_tokens_per_s", "align/mean_exp_gap")


def recipe_of(folder: Path, *, steps: int, prompts: int, samples: int, response_tokens: int) -> dict[str, Any]:
    problems = {"source": "arithmetic", "max_level": 1}
    return {
        "name": "gpu_run",
        "out": str(folder / "runs"),
        "data": {
            "template": "none",
            "train": {**problems, "split": "train", "count": 1000, "seed": 2},
            "heldout": {**problems, "split": "heldout", "count": 20, "seed": 3},
        },
        "model": {"path": str(folder / "model")},
        "rollout": {
            "max_prompt_tokens": 64,
            "max_response_tokens": response_tokens,
            "prompts_per_step": prompts,
            "samples_per_prompt": samples,
            "engine": {"name": "native", "max_concurrent": 0},
        },
        "algorithm": {"preset": "grpo"},
        "rewards": {"math_answer": {"weight": 0}, f"{folder / 'rewards.py'}:digits": {}},
        "train": {"steps": steps, "lr": 1e-5, "tokens_per_microbatch": 16384, "max_logprob_gap": 1.2},
        "evaluate": {"problems": 4, "samples_per_prompt": 1, "k": 1, "every": 0},
        "save": {"every": steps, "dtype": "bfloat16", "tensorboard": False},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen2.5-0.5B", choices=sorted(KNOWN_MODELS))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--response-tokens", type=int, default=256)
    parser.add_argument("--memory", default="80GiB", help="of the card, for the estimate")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = random.Random(0)
        texts = [f"What is {generator.randrange(100)} + {generator.randrange(100)}?" for _ in range(2000)]
        (folder / "rewards.py").write_text(REWARD, encoding="utf-8")
        parameters = build_random_model(folder / "model", texts=texts, shape=KNOWN_MODELS[options.model])
        sizes = {key: getattr(options, key) for key in ("steps", "prompts", "samples", "response_tokens")}
        recipe = recipe_of(folder, **sizes)
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
        config, hardware = check(recipe), parse_hardware(options.memory)
        objective = build_objective(config.algorithm, max_response_tokens=options.response_tokens)
        work = workload_of(config, objective, hardware=hardware)
        estimate = max(peak_bytes(memory_parts(work)).values()) / 1e9
        started = time.perf_counter()
        command = [sys.executable, "-c", "from ansatz.cli.main import main; main()", "train", "recipe.yaml"]
        subprocess.run(command, cwd=folder, check=True)
        seconds = time.perf_counter() - started
        rows = read_jsonl(folder / "runs" / "gpu_run" / "rl" / "metrics.jsonl")
    medians = {key: statistics.median(row[key] for row in rows) for key in (*PHASES, *RATES)}
    report = {
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "model": options.model,
        "parameters": parameters,
        **sizes,
        "seconds": seconds,
        **medians,
        "first_reward": rows[0]["rollout/rewards"],
        "last_reward": rows[-1]["rollout/rewards"],
        "peak_memory_gb": rows[-1]["perf/peak_memory_gb"],
        "estimated_memory_gb": estimate,
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
