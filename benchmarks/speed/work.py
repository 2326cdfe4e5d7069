"""What the sides work on: a model, problems, and the settings of each peer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sides import CORES, HERE, Side

from ansatz.config.layers import merge


class Work:
    """A model, problems with worked answers as text, and the Python of each peer's environment."""

    def __init__(
        self, folder: Path, peers: dict[str, str], sft_checkpoint: str | None, before: Path | None = None
    ) -> None:
        self.folder, self.peers, self.sft_checkpoint, self.before = folder, peers, sft_checkpoint, before
        self.train, self.heldout = folder / "train.jsonl", folder / "heldout.jsonl"

    def make(self) -> None:
        """Write the problems of `tiny_arithmetic_grpo_cpu`, and a model of Qwen3's with 3.3 M random weights."""
        from ansatz.data.base import load_problems
        from ansatz.models.tiny import build_tiny_model
        from ansatz.prompts.templates import QUESTION, TEMPLATES

        for file, split, count in ((self.train, "train", 4000), (self.heldout, "heldout", 200)):
            settings = {"count": count, "seed": 2, "wording": "plain", "max_value": 100, "max_term": 12}
            rows = [
                {
                    "id": problem.id,
                    "question": problem.question,
                    "answer": problem.answer,
                    "solution": problem.solution,
                    "prompt": TEMPLATES["tiny"].replace(QUESTION, problem.question),
                    "completion": f"{problem.solution}<|end|>",
                }
                for problem in load_problems("word_problems", split=split, settings=settings)
            ]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        texts = [row["prompt"] + row["completion"] for row in map(json.loads, self.train.read_text().splitlines())]
        shape = {"hidden_size": 256, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64}
        shape |= {"intermediate_size": 768, "vocab_size": 512}
        build_tiny_model(self.folder / "model", texts=texts, **shape)
        self._several_ends(self.folder / "model", self.folder / "spread", [1, 300, 301, 302])
        build_tiny_model(self.folder / "sparse", texts=texts, **{**shape, "vocab_size": 692, "max_context": 1280})
        self._several_ends(self.folder / "sparse", self.folder / "tails", [1, 300])
        self._wide(self.folder / "model", self.folder / "wide", vocab_size=150_000)

    def taught(self) -> str:
        """Train the SFT stage of `tiny_arithmetic_grpo_cpu` and return its checkpoint."""
        recipe = HERE.parent.parent / "recipes" / "tiny_arithmetic_grpo_cpu.yaml"
        command = [str(Path(sys.executable).with_name("ansatz")), "train", str(recipe), "--train.steps", "0"]
        subprocess.run([*command, "--out", str(self.folder), "--name", "taught"], check=True)
        return str(max((self.folder / "taught" / "sft" / "checkpoints").iterdir()))

    @staticmethod
    def _several_ends(model: Path, target: Path, ends: list[int]) -> None:
        """Write the model with several end tokens, whose share of the vocabulary decides how long responses are."""
        shutil.copytree(model, target)
        for name in ("generation_config.json", "config.json"):
            settings = json.loads((target / name).read_text())
            settings["eos_token_id"] = ends
            (target / name).write_text(json.dumps(settings))

    @staticmethod
    def _wide(model: Path, target: Path, *, vocab_size: int) -> None:
        from transformers import AutoModelForCausalLM

        shutil.copytree(model, target)
        wide = AutoModelForCausalLM.from_pretrained(model)
        wide.resize_token_embeddings(vocab_size, mean_resizing=False)
        wide.save_pretrained(target)

    def ansatz(self, work: str, **settings: Any) -> Side:
        return Side("Ansatz", sys.executable, "peer_ansatz.py", {"work": work, **settings})

    def earlier(self, ansatz: Side) -> list[Side]:
        """Return the same side with the earlier version of Ansatz, if there is one."""
        if self.before is None:
            return []
        return [Side("Ansatz, before", ansatz.python, ansatz.script, ansatz.settings, checkout=self.before)]

    @contextmanager
    def avx2(self) -> Iterator[None]:
        """Let libraries and kernels use only what a processor with AVX2 has, in processes that start in the block."""
        compiler = self.folder / "c++"
        compiler.write_text('#!/bin/sh\nexec c++ "$@" -march=haswell\n', encoding="utf-8")  # the last one counts
        compiler.chmod(0o755)
        limits = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
        before = dict(os.environ)
        os.environ.update(limits, CXX=str(compiler), XDG_CACHE_HOME=str(self.folder / "cache"))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def generate(self, *, dtype: str, attention: str, options: dict[str, Any], **settings: Any) -> Side:
        name = f"transformers generate, {dtype}, {attention}" + "".join(f", {value}" for value in options.values())
        peer = {"dtype": dtype, "attention": attention, "options": options, "threads": CORES, **settings}
        return Side(name, self.peers["trl"], "peer_transformers.py", peer)

    def trl(self, work: str, *, dtype: str, autocast: bool = False, attention: str = "sdpa", **settings: Any) -> Side:
        note = f"{dtype}{' with autocast' if autocast else ''}, {attention}"
        note += "".join(f", {name} {settings[name]}" for name in ("microbatches", "batch") if name in settings)
        note += "".join(f", {value}" for value in settings.get("options", {}).values())
        rest = {"lr": 4e-4, "warmup_steps": 5, "steps": 100_000, "threads": CORES, "min_tokens": 0, "options": {}}
        peer = {"work": work, "dtype": dtype, "autocast": autocast, "attention": attention, **rest, **settings}
        return Side(f"TRL, {note}", self.peers["trl"], "peer_trl.py", peer)

    def vllm(self, *, dtype: str, options: dict[str, Any], **settings: Any) -> Side:
        name = f"vLLM, {dtype}, {'eager' if options.get('enforce_eager') else 'compiled'}"
        return Side(name, self.peers["vllm"], "peer_vllm.py", {"dtype": dtype, "options": options, **settings})

    def step_recipe(self, *, model: Path | str, **over: Any) -> dict[str, Any]:
        """Return the recipe of a step in which every group has something to learn from, as in `peer_trl.grpo`."""
        letters = f"{HERE / 'rounds.py'}:share_of_letters"
        return self.recipe(model=model, **over, rewards={"math_answer": {"mode": "strict"}, letters: {}})

    def recipe(self, *, model: Path | str, **over: Any) -> dict[str, Any]:
        """`tiny_arithmetic_grpo_cpu` on the files of this benchmark, with the least evaluation that a run can have."""
        problems = {"source": "jsonl", "path": str(self.train), "split": "train"}
        base = {
            "name": "speed",
            "model": {"path": str(model)},
            "data": {"template": "tiny", "train": problems, "heldout": {**problems, "path": str(self.heldout)}},
            "rollout": {"prompts_per_step": 32, "samples_per_prompt": 8, "max_response_tokens": 64},
            "train": {"steps": 100_000, "lr": 4e-4, "tokens_per_microbatch": 8192},
            "evaluate": {"problems": 1, "samples_per_prompt": 1, "k": 1, "every": 0},
            "save": {"every": 100_000},
        }
        return merge(base, over)
