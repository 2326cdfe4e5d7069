"""Rewards: text in, Score out; no torch.

base      the form of a reward, and its place: `ansatz/rewards/<name>.py` holds a function `<name>`
grader    the weighted rewards of a recipe, applied to rollouts
"""

from ansatz_verify import own_time

from ansatz import own_clock

own_time.clock = own_clock.now  # a worker has its whole time also while this process is stopped
