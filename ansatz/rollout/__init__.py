"""Rollout engines: prompts in, sampled responses with their log-probs out."""
