"""Audits of training runs of any project: step bundles, their readers and writers, and checks of their numbers."""
