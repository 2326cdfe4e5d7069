"""Parity: our components on the inputs of other projects, compared with the numbers that their code gave."""

from ansatz.certify.parity.report import FamilyResult, certify, render

__all__ = ["FamilyResult", "certify", "render"]
