"""The server process: vLLM's own server, which ends with all its children when the process that started it ends."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # nothing is written here: it returns when the other end closes, also after a crash
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
