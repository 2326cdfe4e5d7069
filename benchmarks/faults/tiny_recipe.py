"""A recipe whose run takes seconds: a model that is built with a hidden size of 32, and problems that are generated.

The kinds of run in `kinds` and the toy runs of the tests are changes to it.
"""

from __future__ import annotations

from typing import Any

_STORIES = {"source": "word_problems", "max_steps": 2, "max_value": 50}
TINY: dict[str, Any] = {
    "threads": 1,
    "data": {
        "template": "tiny",
        "sft": {**_STORIES, "split": "train", "count": 200, "seed": 1},
        "train": {**_STORIES, "split": "train", "seed": 2},
        "heldout": {**_STORIES, "split": "heldout", "count": 20, "seed": 3},
    },
    "model": {
        "path": None,
        "dtype": "float32",
        "tiny": {
            "vocab_size": 400,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 2,
            "num_kv_heads": 1,
            "head_dim": 16,
            "intermediate_size": 64,
        },
    },
    "sft": {"batch_size": 8},
    "rollout": {"prompts_per_step": 4, "samples_per_prompt": 4, "max_response_tokens": 48},
    "evaluate": {"problems": 6, "samples_per_prompt": 2, "k": 2},
}
"""Not a whole recipe: the number of steps, of problems, and when to evaluate and save are left to the user of it."""
