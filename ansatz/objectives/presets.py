"""The table of algorithms. A recipe's `algorithm:` section names a row and overrides its components.

A component is written as a name ("group_mean"), as a mapping with a name and settings
({name: clip, low: 0.2, high: 0.28}), or as settings without a name ({high: 0.28}), which keep the preset's component.
`correction` and `masks` also accept lists, or "none". A user's own row is a YAML file or a mapping in a Python file:
`preset: path/to/mine.yaml`, `preset: path/to/mine.py:row`. Its key `preset` names the row that it starts from.

The file of a kind says what its components compute: `advantages.py`, `ratios.py`, `kl.py` (where k1, k2 and k3
are estimators of a token's KL from its sampled log-probs) and so on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansatz.files import read_yaml

_TABLE: dict[str, dict[str, Any]] = read_yaml(Path(__file__).with_name("keys.yaml"))
KEYS: dict[str, str] = {key: row["about"] for key, row in _TABLE.items()}
COMMON: dict[str, Any] = {key: row["default"] for key, row in _TABLE.items() if "default" in row}

_UNBIASED = {"name": "fixed_length", "max_tokens": "max_response_tokens"}  # stands for the number in the recipe
_REINFORCE = {"surrogate": "log_prob", "weights": _UNBIASED}
_DAPO = {"surrogate": {"name": "clip", "low": 0.2, "high": 0.28}, "weights": "token_mean", "source": "arXiv:2503.14476"}
_GSPO = {"surrogate": {"name": "clip", "low": 3e-4, "high": 4e-4}, "source": "arXiv:2507.18071"}
_TEACHER = {"kl_to": "teacher", "kl_coef": 1.0, "weights": "token_mean"}
_OPD = {**_TEACHER, "advantage": "zero", "kl": "k1", "kl_in": "advantage"}  # the sampled token's reverse KL
_GKD = {**_TEACHER, "policy_coef": 0.0, "kl": "jensen_shannon"}  # whole distributions
_PROMPT = {"requires": ("teacher_prompt",)}
_REWARD_KL = {"kl": {"name": "k1", "at_least": 0.0}, "kl_in": "reward"}  # negative estimates count as 0

PRESETS: dict[str, dict[str, Any]] = {  # rows over COMMON
    "reinforce": {"advantage": "reward", **_REINFORCE, "source": "Williams 1992"},
    "rloo": {"advantage": "leave_one_out", **_REINFORCE, "source": "arXiv:2402.14740"},
    "remax": {"advantage": "remax", **_REINFORCE, "source": "arXiv:2310.10505"},
    "opo": {"advantage": "opo", **_REINFORCE, "weights": "token_mean", "source": "arXiv:2505.23585"},
    "gpg": {"advantage": "gpg", **_REINFORCE, "weights": "token_mean", "source": "arXiv:2504.02546, as in verl"},
    "online_rft": {"advantage": "filtered_bc", **_REINFORCE, "source": "arXiv:2402.03300 sec. 5.2"},
    "reinforce_pp": {
        "advantage": "reward_to_go",
        "whiten": "tokens",
        "kl": "k1",
        "kl_in": "reward",
        "weights": "token_mean",
        "source": "arXiv:2501.03262",
        "aliases": ("reinforce++", "reinforce_plus_plus"),
    },
    "reinforce_pp_baseline": {
        "advantage": "group_mean",
        "whiten": "tokens",
        "kl": "k2",
        "weights": "token_mean",
        "source": "arXiv:2501.03262",
        "aliases": ("reinforce++-baseline", "reinforce_plus_plus_baseline", "reinforce_baseline"),
    },
    "a2c": {
        "advantage": {"name": "gae", "lam": 0.95},
        "surrogate": "log_prob",
        "weights": "token_mean",
        "value": {"name": "squared_error", "clip": None},
        "source": "arXiv:1602.01783",
    },
    "ppo": {
        "advantage": {"name": "gae", "lam": 0.95},
        "whiten": "tokens",
        **_REWARD_KL,
        "weights": "token_mean",
        "value": "squared_error",
        "source": "arXiv:1707.06347",
        "aliases": ("gae",),
    },
    "grpo": {"source": "arXiv:2402.03300", "aliases": ("group_norm",)},  # COMMON as it is; the paper has kl_coef 0.04
    "grpo_process": {"advantage": "process", "source": "arXiv:2402.03300 sec. 4.1.3"},
    "dr_grpo": {"advantage": "group_mean", "weights": _UNBIASED, "source": "arXiv:2503.20783", "aliases": ("drgrpo",)},
    "dapo": {**_DAPO, "aliases": ("bnpo",)},
    "dapo_full": {**_DAPO, "requires": ("dynamic_sampling", "overlong"), "objective_only": "dapo"},
    "gspo": {"ratio": "sequence", **_GSPO},
    "gspo_token": {"ratio": {"name": "sequence", "gradient": "token"}, **_GSPO},
    "gmpo": {"surrogate": "gmpo", "source": "arXiv:2507.20673", "aliases": ("geo_mean",)},
    "cispo": {"surrogate": "cispo", "weights": "token_mean", "source": "arXiv:2506.13585"},
    "sapo": {"surrogate": "sapo", "source": "arXiv:2511.20347"},
    "luspo": {"ratio": "sequence", "weights": "sequence_sum", "source": "TRL loss_type luspo"},
    "dppo": {
        "anchor": "behavior",
        "surrogate": "plain",
        "correction": "trust_region",
        "weights": "token_mean",
        "source": "arXiv:2602.04879",
        "aliases": ("dppo_tv",),
    },
    "clip_cov": {"surrogate": "clip_cov", "weights": "token_mean", "source": "arXiv:2505.22617"},
    "kl_cov": {"surrogate": "kl_cov", "weights": "token_mean", "source": "arXiv:2505.22617"},
    "high_entropy": {**_DAPO, "correction": "high_entropy", "source": "arXiv:2506.01939"},
    "max_rl": {"advantage": "mean_ratio", "weights": "token_mean", "source": "arXiv:2602.02710", "aliases": ("maxrl",)},
    "pass_at_k": {
        "advantage": "pass_at_k",
        "weights": "token_mean",
        "source": "arXiv:2508.10751",
        "aliases": ("passk",),
    },
    "gdpo": {"advantage": "gdpo", "whiten": "rollouts", "source": "arXiv:2601.05242"},
    "opd": {**_OPD, "source": "tinker-cookbook, distillation/train_on_policy.py"},
    "gkd": {**_GKD, "source": "arXiv:2306.13649"},
    "opsd": {**_GKD, **_PROMPT, "objective_only": "gkd", "source": "arXiv:2601.18734"},
    "sdft": {**_OPD, **_PROMPT, "objective_only": "opd", "source": "arXiv:2601.19897"},
    "sdpo": {**_OPD, **_PROMPT, "objective_only": "opd", "source": "arXiv:2601.20802"},
    "vespo": {"surrogate": "vespo", "weights": "token_mean", "source": "TRL loss_type vespo"},
    "dro": {"surrogate": "log_prob", "kl": "k2", "kl_to": "old", "kl_coef": 1.0, "source": "verl loss_mode dro"},
    "opmd": {
        "advantage": "group_mean",
        "ratio": "product",
        "surrogate": "mirror_descent",  # the surrogate `opmd`, divided by 2 tau and without its constant
        "source": "arXiv:2501.12599",
        "aliases": ("kimi", "kimi_opmd", "mirror_descent"),
    },
}
DESCRIPTION = ("source", "aliases", "requires", "objective_only")
"""Keys that describe a row. requires: settings outside `algorithm:` that the recipe must have, by their names in
`loop.rl_checks`; objective_only: the preset without them."""
