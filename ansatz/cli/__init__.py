"""The command `ansatz`: one short file per verb."""
