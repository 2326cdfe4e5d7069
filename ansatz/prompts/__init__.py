"""Turns problems into prompts: templates and chat rendering. Instructions about the answer's form are only here."""
