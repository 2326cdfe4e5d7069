"""Operations on problem files before training, one module per operation: pure functions on problems."""
