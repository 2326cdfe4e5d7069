"""The viewer of runs, `ansatz view`: pages made on the server from the files of a run, an index of its responses, and a
few small scripts. It reads and never writes a run, and imports no torch."""
