"""The float32 weights of a checkpoint whose model folder holds rounded ones.

training/weights.safetensors    by parameter name; absent if model.safetensors is float32 itself
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from ansatz.models.load import Policy
from ansatz.train.trainer import TRAINING, incomplete

EXACT_WEIGHTS = "weights"
"""Name of the file, without its suffix."""


def exact_weights_file(checkpoint: Path) -> Path:
    return checkpoint / TRAINING / f"{EXACT_WEIGHTS}.safetensors"


def use_exact_weights(policy: Policy, folder: Path) -> None:
    """If `folder` is a checkpoint with rounded weights, give the policy, which was loaded from it, the float32 ones.

    Without this, a stage would start from other weights than those with which the stage before it ended.
    """
    if not (path := exact_weights_file(folder)).is_file():
        return
    try:
        weights = load_file(path)
        for name, parameter in policy.model.named_parameters():
            parameter.data.copy_(weights[name])
    except (OSError, KeyError, RuntimeError, SafetensorError) as error:
        raise incomplete(folder, error) from error
