"""Parity: our components on the inputs of other projects, compared with the numbers that their code gave."""

from ansatz.certify.parity.report import GOLDEN, FamilyResult, certify, read_cases, render

__all__ = ["GOLDEN", "FamilyResult", "certify", "read_cases", "render"]
