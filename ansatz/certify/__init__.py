"""Certificates: what must hold for any recipe, and agreement with other projects' own numbers."""
