"""The update: batches on one flat token axis, one optimiser step, checkpoints that survive a kill."""
