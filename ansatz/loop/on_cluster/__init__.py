"""Runs whose samplers or trainers work on a Ray cluster: `cluster.workers` and `cluster.trainers`."""
