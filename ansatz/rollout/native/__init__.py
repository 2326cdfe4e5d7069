"""The native engine: any transformers causal LM, sampled with the trainer's own weights."""

from ansatz.rollout.native.sampler import NativeSampler

__all__ = ["NativeSampler"]
