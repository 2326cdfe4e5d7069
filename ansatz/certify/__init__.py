"""Certificates: laws that must hold for any recipe, and agreement with other projects' own numbers."""
