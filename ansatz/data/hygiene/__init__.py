"""What is done to problem files before training on them, one file an operation: pure functions on problems."""
