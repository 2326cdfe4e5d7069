"""Whether a head that is out of reach is gone: it is after a patience that begins with the first failed look."""

from __future__ import annotations

import socket

import pytest

from ansatz import own_clock
from ansatz.cluster.alive import RayAlive


def test_the_patience_begins_with_the_first_look_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [own_clock.now()]
    monkeypatch.setattr(own_clock, "now", lambda: now[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        head = free.getsockname()
    alive = RayAlive(raylet=None, head=head, patience_s=20.0)
    now[0] += 60.0  # the trainer did not look for a minute
    assert alive.cause() == ""
    now[0] += 19.0
    assert alive.cause() == ""
    with socket.create_server(head):
        now[0] += 5.0
        assert alive.cause() == ""
    now[0] += 5.0
    assert alive.cause() == ""
    now[0] += 21.0
    assert "is gone" in alive.cause()
