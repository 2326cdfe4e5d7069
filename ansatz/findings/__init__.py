"""Experiments: arms that share problems, order and noise within a block, and one row for each run.

`ansatz sweep FILE` runs the missing cells of a sweep file and adds their rows to a file that is committed. In the
repository, `tools.findings` draws verdicts, pages and figures from the rows.
"""
