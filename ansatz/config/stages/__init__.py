"""What recipes know about the installed stages: their declarations, each with its section. No torch."""
