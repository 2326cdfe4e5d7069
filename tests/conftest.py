from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when torch starts its threads

import torch

torch.set_num_threads(2)
