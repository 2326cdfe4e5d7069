"""Worker processes: what starts, calls and kills them, and how their health is judged."""
