"""The command `ansatz`: one short file a verb."""
