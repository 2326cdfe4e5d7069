"""The native engine samples any transformers causal LM with the trainer's own weights."""

from ansatz.rollout.native.sampler import NativeSampler

__all__ = ["NativeSampler"]
