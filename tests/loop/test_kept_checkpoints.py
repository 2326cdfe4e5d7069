"""Which checkpoints stay: a rollback always finds one that is old enough, and not much older than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from ansatz.loop.watch import rollback_target, steps_for_rollback


def test_a_rollback_returns_to_a_policy_that_was_sampled_before_the_bad_steps():
    """The policy of step 24 samples step 25, the first bad one; that of step 23 is the newest healthy one."""
    assert rollback_target([10, 23, 24, 25], first_bad_step=25) == 23
    assert rollback_target([24, 25], first_bad_step=25) == 0


@given(st.integers(1, 7), st.integers(1, 8), st.integers(1, 3), st.integers(1, 90))
def test_pruning_leaves_the_checkpoint_from_before_a_fall_however_slow_it_is(every, window, keep, peak):
    """The metric is near its best up to step `peak`, and an alarm may come at any later step."""
    kept: list[int] = []
    for step in range(1, 80):
        near_best = max(0, min(step, peak) - window + 1)
        if step % every == 0:
            kept.append(step)
            also = steps_for_rollback(kept, step=step, window=window, near_best=near_best)
            kept = [known for known in kept if known in kept[-keep:] or known in also]
        target = rollback_target(kept, first_bad_step=near_best + 1)
        newest_possible = max((known for known in range(every, step + 1, every) if known < near_best), default=0)
        assert target <= newest_possible
        assert newest_possible - target <= window + every * (keep + 1)


@given(st.integers(1, 7), st.integers(1, 8), st.integers(1, 3))
def test_pruning_leaves_the_checkpoint_that_an_alarm_in_the_next_step_needs(every, window, keep):
    kept: list[int] = []
    for step in range(1, 80):
        if step % every == 0:
            kept.append(step)
            also = steps_for_rollback(kept, step=step, window=window, near_best=0)
            assert len(also) <= 2
            kept = [known for known in kept if known in kept[-keep:] or known in also]
        target = rollback_target(kept, first_bad_step=step + 2 - window)
        newest_possible = max((known for known in range(every, 80, every) if known + 1 < step + 2 - window), default=0)
        assert target <= newest_possible
        assert newest_possible - target <= window + every * (keep + 1)
        if newest_possible:
            assert target > 0 or newest_possible <= window + every * (keep + 1)
