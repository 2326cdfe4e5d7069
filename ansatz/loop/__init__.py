"""Runs: the pipeline of stages, what the stages read and share, and the schedule, queue and ledger of rollouts."""
