"""Rewards: text in, Score out; no torch.

base      what a reward is, and how it is found: `ansatz/rewards/<name>.py` holds a function `<name>`
grader    the weighted rewards of a recipe, applied to rollouts
pool      worker processes that can be killed, for work that might not end
"""
