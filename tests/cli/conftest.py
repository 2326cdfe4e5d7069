import sys

import pytest

from ansatz.cli.main import main


@pytest.fixture
def ansatz(monkeypatch, capsys):
    """The command in this process: ansatz(*arguments) -> (exit code, stdout, stderr)."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ansatz", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
