"""Models: loading and saving, log-probs in chunks, and a tiny one built from nothing."""
