"""Audits of training runs of any project: step bundles, their readers and writers, and what their numbers say."""
