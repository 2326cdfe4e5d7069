"""The update: samples to batches, batches to optimiser steps, and checkpoints that survive a kill."""
