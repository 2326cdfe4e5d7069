"""Every family of docs/models.md at toy size: it agrees with transformers, or is refused by name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import packed, some_prompts, tiny_folder
from transformers import AutoModelForCausalLM

from ansatz.errors import ModelError
from ansatz.models.load import check_folder, head_logits, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from tools.model_reference import FAMILIES, PAGE, Family, page

WORKING = [family for family in FAMILIES if not family.refused]
REFUSED = [family for family in FAMILIES if family.refused]


def folder_of(family: Family, folder: Path) -> Path:
    return tiny_folder(folder, family.config, **family.settings)


def own_logps(folder: Path, token_ids: list[int]) -> torch.Tensor:
    """transformers' log-probs of each token after the first, by its own eager attention."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        logp_TV = model.eval()(input_ids=torch.tensor([token_ids])).logits[0].log_softmax(-1)
    return logp_TV[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]


@pytest.mark.parametrize("family", WORKING, ids=lambda family: family.name)
def test_sampler_and_training_agree_with_transformers(tmp_path: Path, family: Family) -> None:
    folder = folder_of(family, tmp_path)
    policy = load_policy(folder)
    sampling = Sampling(num_samples=2, max_response_tokens=24)
    with closing(NativeSampler(policy, max_concurrent=6)) as sampler:
        rollouts = sampler.generate(some_prompts(3, longest=12), sampling)
    texts = [[*rollout.prompt.token_ids, *rollout.token_ids] for rollout in rollouts]
    with torch.no_grad():
        hidden_TH = policy.packed_hidden(*packed(texts))
        logp_TV = head_logits(hidden_TH, policy.head.weight, softcap=policy.softcap).log_softmax(-1)
    start = 0
    for rollout, text in zip(rollouts, texts, strict=True):
        expected = own_logps(folder, text)
        own = logp_TV[start : start + len(text) - 1].gather(1, torch.tensor(text[1:])[:, None])[:, 0]
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)
        behavior = torch.tensor(rollout.behavior_logps)
        torch.testing.assert_close(behavior, expected[-len(behavior) :], rtol=1e-4, atol=1e-4)
        start += len(text)


@pytest.mark.parametrize("family", REFUSED, ids=lambda family: family.name)
def test_a_refused_family_is_refused_by_name_before_its_weights_are_read(tmp_path: Path, family: Family) -> None:
    folder = folder_of(family, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="which Ansatz does not support") as caught:
        check_folder(folder)
    assert family.refused in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_page_lists_every_family() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
