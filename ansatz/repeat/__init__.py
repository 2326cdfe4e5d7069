"""Cards of runs. From its `card.json`, anybody can repeat a run and see where the bits differ, if they do."""
