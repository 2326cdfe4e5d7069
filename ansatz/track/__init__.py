"""The records of a run and how they are shown: metrics, TensorBoard, console, samples, report."""

from ansatz.track.base import ConsoleSink, Evaluation, TrackerLike
from ansatz.track.tracker import Tracker

__all__ = ["ConsoleSink", "Evaluation", "Tracker", "TrackerLike"]
