"""The recorder of TRL's steps, on a trainer that has only what the recorder looks at."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ansatz.audit import trl
from ansatz.audit.bundle import read_bundle
from ansatz.audit.trl import Recorder


class Trainer:
    """Two responses of two tokens in one microbatch. The log-probs are the weights, so their gradients are the same."""

    def __init__(self, scaler: Any) -> None:
        self.model = torch.nn.Linear(2, 2, bias=False)
        once = {"steps_per_generation": 1, "num_iterations": 1, "gradient_accumulation_steps": 1}
        self.args = SimpleNamespace(**once, vllm_importance_sampling_clip_max=None)
        self.state = SimpleNamespace(global_step=0)
        self.accelerator = SimpleNamespace(num_processes=1, scaler=scaler, unwrap_model=lambda model: model)
        self.eos_token_ids, self._tokenizer = [1], SimpleNamespace(pad_token_id=0)
        self.num_generations, self.reward_weights, self.reward_func_names = 2, [1.0], ["right"]

    def add_callback(self, callback: Recorder) -> None:
        self.callback = callback

    def _generate(self, prompts: list[str]) -> Any:
        return [[5]] * len(prompts), [[2, 1], [3, 1]], None, ["two", "three"], None

    def _calculate_rewards(self, inputs: Any, prompts: list[str]) -> torch.Tensor:
        return torch.tensor([[1.0], [0.0]])

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        prompts = [row["prompt"] for row in inputs]
        tokens = torch.tensor(self._generate(prompts)[1])
        rewards = self._calculate_rewards(inputs, prompts)
        about = {"completion_ids": tokens, "completion_mask": torch.ones_like(tokens)}
        return {**about, "advantages": rewards[:, 0] - rewards.mean(), "num_items_in_batch": torch.tensor(4)}

    def _get_per_token_logps_and_entropies(self) -> tuple[torch.Tensor, None]:
        return self.model.weight * 1.0, None

    def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        return -(self._get_per_token_logps_and_entropies()[0] * inputs["advantages"][:, None]).sum()

    def training_step(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        loss, scaler = self._compute_loss(self.model, inputs), self.accelerator.scaler
        (loss if scaler is None else loss * scaler.get_scale()).backward()  # as `accelerate.Accelerator.backward`
        return loss.detach()


@pytest.mark.parametrize("scaler", [None, SimpleNamespace(get_scale=lambda: 65536.0)])
def test_a_step_is_recorded_without_the_scale_of_float16(scaler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By hand: the advantages are 1/2 and -1/2, so the gradient of four tokens has the norm 1."""
    monkeypatch.setattr(trl, "version", lambda name: "1.16.0")
    trainer = Trainer(scaler)
    Recorder(trainer, [1], folder=tmp_path, recompute=False)
    row = {"prompt": "1+1=", "answer": ["2", 2.0]}
    trainer.training_step(trainer._generate_and_score_completions([row, row]))
    trainer.state.global_step = 1
    trainer.callback.on_step_end(trainer.args, trainer.state, None)
    bundle = read_bundle(tmp_path / "step-000001")
    np.testing.assert_allclose(bundle.arrays["gradient_T"], [0, -0.5, -0.5, 0, 0.5, 0.5])
    assert bundle.expected["grad_norm"] == pytest.approx(1.0)
    assert bundle.options["vllm_importance_sampling_clip_max"] is None  # no bound, which is not the default of 3
    assert "beta" not in bundle.options  # this trainer has no such option
    assert bundle.rollouts[0]["answer"] == ["2", "2.0"]  # each of them is accepted
