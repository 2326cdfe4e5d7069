"""What verl's reward manager gives our function on two responses; run in the environment of verl."""

import json

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.workers.reward_manager.naive import NaiveRewardManager

TEXTS = {1: "2 + 3?", 2: r"\boxed{5}", 3: r"\boxed{6}"}


class Tokenizer:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(TEXTS[int(token)] for token in ids)


function = {"path": "pkg://ansatz_verify.adapters", "name": "verl_compute_score", "reward_kwargs": {"mode": "anchored"}}
score = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
batch = {"prompts": [[1], [1]], "responses": [[2], [3]], "attention_mask": [[1, 1], [1, 1]]}
rows = {
    "reward_model": np.array([{"ground_truth": "5"}] * 2, dtype=object),
    "data_source": np.array(["sums"] * 2, dtype=object),
    "extra_info": np.array([{}, {}], dtype=object),
}
data = DataProto.from_dict({name: torch.tensor(values) for name, values in batch.items()}, non_tensors=rows)
rewards = NaiveRewardManager(Tokenizer(), num_examine=0, compute_score=score)(data)
print(json.dumps(rewards.sum(-1).tolist()))
