"""The report of a pipeline: one HTML file that needs nothing else."""

from __future__ import annotations

import html
import json
from pathlib import Path


def write_report(pipeline_dir: Path) -> Path:
    """Writes pipeline_dir/report.html and gives its path."""
    summary = Path(pipeline_dir) / "summary.json"
    text = summary.read_text(encoding="utf-8") if summary.exists() else "{}"
    path = Path(pipeline_dir) / "report.html"
    path.write_text(
        f"<!doctype html><title>Ansatz</title><pre>{html.escape(json.dumps(json.loads(text), indent=1))}</pre>"
    )
    return path
