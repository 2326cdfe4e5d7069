"""The records of a run and how they are shown: metrics, TensorBoard, console, samples, report."""
