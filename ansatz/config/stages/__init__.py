"""The declarations of the installed stages, each with its section. No torch."""
