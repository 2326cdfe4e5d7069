"""Models: loading and saving, log-probs in chunks, and building a tiny model from scratch."""
