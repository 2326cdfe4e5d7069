"""The stages of a run. Each is a class, which its declaration names (`config.stages`)."""
