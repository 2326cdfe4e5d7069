"""Between grading and the batch: pure functions on the scored rollouts of a prompt."""
