"""The verdicts of a judge model, in memory or in a file that outlives the run, so that no request is sent twice."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from ansatz.errors import ConfigError

_WAIT_S = 30.0  # for another process that is writing


class VerdictCache:
    """Correct or not, by key. path: an SQLite file, which several processes can share; None keeps it in memory."""

    def __init__(self, path: str | None) -> None:
        self._lock = threading.Lock()
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path or ":memory:", timeout=_WAIT_S, check_same_thread=False)
            self._base.execute("CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, correct INTEGER NOT NULL)")
            self._base.commit()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"judge: cache = {path!r} cannot be opened ({error}); expected a file that can be written."
            ) from error

    def get(self, key: str) -> bool | None:
        with self._lock:
            row = self._base.execute("SELECT correct FROM verdicts WHERE key = ?", (key,)).fetchone()
        return None if row is None else bool(row[0])

    def put(self, key: str, correct: bool) -> None:
        with self._lock, self._base:
            self._base.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", (key, int(correct)))
