"""The formulas of other projects, written from their descriptions on padded N x C arrays: slow, float64, with loops.

They share no code with `ansatz`. Inputs are those of a certificate file; options are a plain dictionary in the words of
the project. Each function returns (advantages N x C or N, loss), the loss with gradient by `policy_logp`.
"""

from padded_trainers.nemo import nemo
from padded_trainers.others import open_instruct, openrlhf, prime, slime
from padded_trainers.skyrl import skyrl
from padded_trainers.small import grpo_zero, nano, oat, torchtune
from padded_trainers.trl import trl, trl_gmpo, trl_rloo
from padded_trainers.verl import verl

__all__ = [
    "grpo_zero",
    "nano",
    "nemo",
    "oat",
    "open_instruct",
    "openrlhf",
    "prime",
    "skyrl",
    "slime",
    "torchtune",
    "trl",
    "trl_gmpo",
    "trl_rloo",
    "verl",
]
