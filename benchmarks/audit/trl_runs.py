"""Short real runs of TRL's GRPOTrainer with a tiny random model, recorded as step bundles.

The model is a Llama of two layers with a vocabulary of characters, or SmolLM2-135M. Prompts are sums of two digits; the
reward is 1 if the response contains the sum. The samplers of `rollout_func` stand for an inference engine next to the
trainer: with the same weights, with noise, in bfloat16, with weights of the start, and so on.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from planted import COMMON
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from ansatz.audit.trl import Recorder

CHARACTERS = "0123456789+= "
SMOLLM2 = Path(os.environ.get("SMOLLM2", "smollm2"))


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {name: number for number, name in enumerate(["<pad>", "<eos>", *CHARACTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def tiny(folder: Path) -> tuple[Any, Any]:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=16, max_position_embeddings=64, initializer_range=0.3, **sizes, eos_token_id=1)
    config.pad_token_id = 0
    LlamaForCausalLM(config).save_pretrained(folder)  # TRL reads its reference model from there
    return AutoModelForCausalLM.from_pretrained(folder), tokenizer()


def smollm2() -> tuple[Any, Any]:
    reader = AutoTokenizer.from_pretrained(SMOLLM2, padding_side="left")
    return AutoModelForCausalLM.from_pretrained(SMOLLM2, dtype=torch.float32), reader


def rows() -> Dataset:
    pairs = [(a, b) for a in (1, 2, 3, 4) for b in (1, 10, 2, 30)]  # prompts of different lengths
    return Dataset.from_list([{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs])


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(gold in text.replace(" ", "")) for text, gold in zip(completions, answer, strict=True)]


def short(completions: list[str], **_: Any) -> list[float]:
    return [1 / (1 + len(text)) for text in completions]


def graded(completions: list[str], **_: Any) -> list[float]:
    """A reward that differs between most responses, so that few groups have no signal."""
    return [len(set(text)) / 8 for text in completions]


def plain_copy(model: Any) -> Any:
    """Return a model of its own: a deep copy would share the forward pass that TRL has put into the model."""
    copied = type(model)(model.config)
    copied.load_state_dict(model.state_dict())
    return copied.eval()


class Sampler:
    """Samples as an engine of its own would. kind: what differs between it and the trainer."""

    def __init__(self, kind: str, temperature: float, max_tokens: int, tools: bool) -> None:
        self.kind, self.temperature, self.max_tokens, self.tools = kind, temperature, max_tokens, tools
        self.start: Any = None

    def model_of(self, trainer: Any) -> Any:
        if self.kind == "stale":
            self.start = self.start or plain_copy(trainer.model)
            return self.start
        return plain_copy(trainer.model).to(torch.bfloat16) if self.kind == "bfloat16" else trainer.model

    @torch.no_grad()
    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        model, reader = self.model_of(trainer), trainer._tokenizer
        was = model.training
        model.eval()
        ids = [reader(text, add_special_tokens=False)["input_ids"] for text in prompts]
        found = [self.response(model, row, reader.eos_token_id) for row in ids]
        model.train(was)
        out = {"prompt_ids": ids, "completion_ids": [row[0] for row in found], "logprobs": [row[1] for row in found]}
        return {**out, "env_mask": [row[2] for row in found]} if self.tools else out

    def response(self, model: Any, prompt: list[int], end: int) -> tuple[list[int], list[float], list[int]]:
        tokens, logps, mask = list[int](), list[float](), list[int]()
        while len(tokens) < self.max_tokens:
            if self.tools and len(tokens) == 3:  # the tool writes two tokens
                tokens, logps, mask = [*tokens, 13, 14], [*logps, 0.0, 0.0], [*mask, 0, 0]
            raw = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, -1].float()
            logits = raw / self.temperature
            if self.kind == "top_p":
                logits = nucleus(logits, 0.8)
            token = int(torch.multinomial(logits.softmax(-1), 1))
            told = raw if self.kind == "temperature" else logits
            logp = float(told.log_softmax(-1)[token])
            logps.append(logp + (0.005 * math.sin(7.0 * len(tokens)) if self.kind == "noise" else 0.0))
            tokens.append(token)
            mask.append(1)
            if token == end:
                break
        return tokens[: self.max_tokens], logps[: self.max_tokens], mask[: self.max_tokens]


def nucleus(logits: torch.Tensor, share: float) -> torch.Tensor:
    ordered, places = logits.sort(descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    return logits.masked_fill(torch.zeros_like(logits, dtype=torch.bool).scatter(0, places, before > share), -torch.inf)


def build(options: dict[str, Any], run: dict[str, Any], out: str) -> Any:
    """Return a trainer that is ready to run."""
    model, reader = smollm2() if run.get("model") == "smollm2" else tiny(Path(out, "model"))
    steps, kind, tools = run.get("steps", 2), run.get("sampler"), bool(run.get("tools"))
    settings = {**COMMON, **options}
    config = GRPOConfig(
        output_dir=out, use_cpu=True, bf16=False, max_steps=steps, save_strategy="no", logging_steps=1, report_to=[],
        disable_tqdm=True, gradient_checkpointing=False, dataloader_pin_memory=False, seed=1, max_grad_norm=1.0,
        lr_scheduler_type="constant", shuffle_dataset=False, **settings,
    )  # fmt: skip
    sampler = Sampler(kind or "same", config.temperature, config.max_completion_length, tools)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[graded, short] if run.get("rewards") == 2 else graded,
        args=config,
        train_dataset=rows(),
        processing_class=reader,
        rollout_func=sampler if kind or tools else None,
    )
    if kind:  # the paths of vLLM in the trainer, with the sampler above in its place
        trainer.use_vllm = config.use_vllm = True
        trainer._last_loaded_step = -1
        trainer.vllm_generation = SimpleNamespace(sync_weights=lambda: None)
    return trainer


def record(options: dict[str, Any], run: dict[str, Any], folder: Path, plant: Any = None) -> Path:
    """Run and return the bundle of the last step. plant: changes the trainer before the recorder looks at it."""
    with tempfile.TemporaryDirectory() as out:
        trainer = build(options, run, out)
        if plant is not None:
            plant(trainer)
        Recorder(trainer, [trainer.args.max_steps], folder=folder)
        trainer.train()
    (bundle,) = folder.iterdir()
    return bundle
