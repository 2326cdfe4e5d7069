"""The pages of the findings: intervals, verdicts and figures from the rows that `ansatz sweep` adds.

python -m tools.findings
"""
