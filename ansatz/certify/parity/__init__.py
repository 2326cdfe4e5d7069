"""Certificates: our components on other projects' inputs, against the numbers that those projects' own code gave."""

from ansatz.certify.parity.report import FamilyResult, certify, render

__all__ = ["FamilyResult", "certify", "render"]
