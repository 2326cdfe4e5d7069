"""Cards of runs: `card.json`, with which anybody can repeat a run and see where the bits differ, if they do."""
