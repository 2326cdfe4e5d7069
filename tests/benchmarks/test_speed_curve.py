"""The benchmark of speed: floors, ratios, which side is the best peer, and a console that the pipeline can use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "speed"))
import curve
from peer_ansatz import OnDemand

from ansatz.track.base import ConsoleSink


def sampled(*rates: float) -> dict[str, float]:
    return dict(zip(map(str, curve.ROWS), rates, strict=True))


MEASURED = {
    "parameters": 100_000_000,
    "dtype": "float32",
    "bandwidth": 4e10,
    "matrix_rate": 2e11,
    "prompt_tokens": 36.0,
    "sampled": {
        "Ansatz": sampled(50, 200, 400, 600, 800),
        "transformers generate, float32, sdpa": sampled(25, 90, 200, 250, 300),
        "transformers generate, float32, sdpa, static": sampled(20, 100, 100, 200, 400),
        "vLLM, float32, compiled": sampled(40, 100, 100, 150, 200),
        "llama.cpp, F32, decoding alone": sampled(100, 100, 200, 300, 400),
        "llama.cpp, Q8_0, decoding alone": sampled(400, 400, 800, 900, 900),
    },
    "steps": {"Ansatz": 60.0, "TRL, float32": 150.0, "TRL, float32, static": 120.0},
}


def test_a_lone_row_is_bound_by_reading_the_weights_and_many_rows_by_the_products():
    assert curve.floor_tokens_per_s(MEASURED, 1) == pytest.approx(100)  # 0.4 GB at 40 GB/s
    assert curve.floor_tokens_per_s(MEASURED, 128) == pytest.approx(1000)  # 0.2 GFLOP a token at 200 GFLOP/s


def test_the_floor_of_a_step_counts_what_is_sampled_read_and_learned_from():
    tokens = 8 * 36 + 64 * 64  # a prompt is computed once for its eight responses
    sampling, reading, learning = 64 * 64 / 1000, 2 * 8 * 36 * 1e8 / 2e11, 6 * tokens * 1e8 / 2e11
    assert curve.floor_step_s(MEASURED) == pytest.approx(sampling + reading + learning)


def test_the_best_peer_of_each_row_counts_and_weights_of_8_bits_are_no_peer():
    ratios = curve.ratios(MEASURED)
    assert ratios["generate"] == {1: 2.0, 4: 2.0, 16: 2.0, 64: 2.4, 128: 2.0}
    assert ratios["vLLM"] == {1: 1.25, 4: 2.0, 16: 4.0, 64: 4.0, 128: 4.0}
    assert ratios["llama.cpp"] == {1: 0.5, 4: 2.0, 16: 2.0, 64: 2.0, 128: 2.0}


def test_the_table_has_a_row_for_each_number_of_rows_and_one_for_the_step():
    lines = curve.table({"135": MEASURED}).splitlines()
    assert "| 135 M | 1 | 50 | 50% | 2.00 | 1.25 | 0.50 |" in lines
    assert "| 135 M | 60 | 29% | 2.00 |" in lines


def test_the_console_of_a_side_has_every_method_that_a_run_calls():
    wanted = {name for name in vars(ConsoleSink) if not name.startswith("_")}
    assert wanted
    assert not [name for name in sorted(wanted) if not callable(getattr(OnDemand, name, None))]


def test_the_figure_has_a_line_for_each_peer():
    drawing = curve.draw({"3": MEASURED, "135": MEASURED})
    assert all(f"{name}" in drawing for name in ("generate, 1 row", "generate, 128 rows", "llama.cpp, 16 rows", "TRL"))
