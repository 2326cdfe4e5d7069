"""Worker processes: the code that starts, calls and kills them, and how their health is judged."""
