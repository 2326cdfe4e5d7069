"""The update: samples to batches, batches to optimizer steps, and checkpoints that survive a kill."""
