"""Problems: sources, synthetic tasks and resumable cursors. A source is one file here, found by its name (`base`)."""
