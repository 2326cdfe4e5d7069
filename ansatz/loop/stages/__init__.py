"""The stages of a run. Each is a class, named by its declaration (`config.stages`)."""
