"""Rewards: text in, Score out; no torch.

base      what a reward is, and the rule that finds it: `ansatz/rewards/<name>.py` holds a function `<name>`
grader    a recipe's weighted rewards over a step's rollouts
pool      killable worker processes for work that may not end
"""
