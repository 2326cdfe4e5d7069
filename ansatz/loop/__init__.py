"""The loops: order and nothing else. `pipeline` runs the stages, `sft` and `rl` are two of them."""
