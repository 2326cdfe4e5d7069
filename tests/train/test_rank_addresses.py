"""Where trainer ranks meet: at no address that they do not need."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil
import pytest

from ansatz.train import rank_host
from ansatz.train.rank_host import RankHost


def listening() -> set[str]:
    return {each.laddr.ip for each in psutil.Process().net_connections(kind="tcp") if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("is_one_machine", [True, False])
def test_the_store_listens_at_one_address(is_one_machine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(rank_host.ADDRESS, "127.0.0.2")
    before = listening()
    host = RankHost(build=lambda placement: pytest.fail("nothing is built"), scratch=tmp_path, timeout_s=10.0)
    address, port = host.open_store(is_one_machine, lambda value: None)
    assert address == ("127.0.0.1" if is_one_machine else "127.0.0.2")
    assert listening() - before <= {address}
    socket.create_connection((address, port), timeout=5.0).close()
    other = "127.0.0.2" if is_one_machine else "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((other, port), timeout=5.0)
