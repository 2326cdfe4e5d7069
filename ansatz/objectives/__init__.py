"""Objectives: pure tensor functions from rewards and log-probs to a loss. Start at `build.build_objective`."""
