"""Certificates: our pieces on other projects' inputs, against the numbers that those projects' own code gave."""

from ansatz.objectives.parity.report import FamilyResult, certify, render

__all__ = ["FamilyResult", "certify", "render"]
