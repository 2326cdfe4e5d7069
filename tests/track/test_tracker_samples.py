"""How many steps of samples are kept."""

import pytest

from ansatz.track.tracker import Tracker


@pytest.mark.parametrize(("keep", "kept"), [(0, [1, 2, 3, 4, 5]), (2, [4, 5]), (9, [1, 2, 3, 4, 5])])
def test_the_samples_of_the_newest_steps_are_kept(tmp_path, keep, kept):
    tracker = Tracker(tmp_path, console=None, tensorboard=False, total_steps=5, samples_keep=keep)
    for step in range(1, 6):
        tracker.samples(step, [])
    tracker.close()
    names = [f"step-{n:06d}{ending}" for n in kept for ending in (".groups.jsonl", ".jsonl")]
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == names
    assert (tmp_path / "samples").stat().st_mode & 0o777 == 0o700
