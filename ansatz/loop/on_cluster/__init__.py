"""Runs with samplers or trainers on a Ray cluster: `cluster.workers` and `cluster.trainers`."""
