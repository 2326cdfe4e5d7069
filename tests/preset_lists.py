"""The presets that generic tests of objectives go through: those without a teacher, which tests/teachers has."""

from __future__ import annotations

from ansatz.objectives.presets import PRESETS

WITHOUT_TEACHER = {name: row for name, row in PRESETS.items() if row.get("kl_to") != "teacher"}
