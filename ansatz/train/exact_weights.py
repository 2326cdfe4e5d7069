"""The float32 weights of a checkpoint whose model folder holds rounded ones.

training/weights.safetensors    by parameter name; absent if model.safetensors is float32 itself
training/weights/               the same, written by several ranks
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from ansatz.models.load import Policy
from ansatz.train.placement import read_tensors
from ansatz.train.trainer import TRAINING, incomplete

EXACT_WEIGHTS = "weights"
"""Name of the file, without its suffix, or of the folder."""


def has_exact_weights(checkpoint: Path) -> bool:
    folder = checkpoint / TRAINING
    return (folder / f"{EXACT_WEIGHTS}.safetensors").is_file() or (folder / EXACT_WEIGHTS).is_dir()


def use_exact_weights(policy: Policy, folder: Path) -> None:
    """If `folder` is a checkpoint with rounded weights, give the policy, which was loaded from it, the float32 ones.

    Without this, a stage would start from other weights than those with which the stage before it ended.
    """
    if not has_exact_weights(folder):
        return
    try:
        weights = read_tensors(folder / TRAINING, EXACT_WEIGHTS, like={})
        for name, parameter in policy.model.named_parameters():
            parameter.data.copy_(weights[name])
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise incomplete(folder, error) from error
