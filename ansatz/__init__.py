"""Ansatz: reinforcement learning from verifiable rewards for mathematical reasoning."""

__version__ = "0.1.0"
