"""A Triton kernel that stores noise, to compare its bits."""

# pyright: reportMissingImports=false

from __future__ import annotations

import triton
import triton.language as tl

from ansatz.rollout.gumbel_kernels import noise_of


@triton.jit
def store_noise(seeds, out, tokens):
    row, token = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tl.store(out + row * tokens + token, noise_of(token, seeds, row))
