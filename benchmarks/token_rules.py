"""How long two samplers stay on the same tokens: Gumbel-max against inverting the cumulative distribution.

    python benchmarks/token_rules.py vocabulary
    python benchmarks/token_rules.py precisions CHECKPOINT RESPONSES
    python benchmarks/token_rules.py runs RUN_A RUN_B

vocabulary: noise on the logits of a synthetic vocabulary of 2,048 tokens with an entropy of about one nat.
precisions: a model in bfloat16 and in float32 at the same contexts, those of the responses of a
file of samples of a run whose tokens are stored.
runs: the share of equal responses of two runs by step. They differ in one setting, such as the learning rate.

Axes: B rows, V vocabulary, T tokens of all contexts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer

from ansatz.models.load import head_logits, load_policy
from ansatz.rollout.sampling import draw_seeds, find_winners, noise_key
from ansatz.track.jsonl import read_jsonl
from ansatz.track.step_files import groups_path, step_files, tokens_path
from ansatz.track.token_file import read_tokens

VOCABULARY = 2_048
NOISES = (0.003, 0.02, 0.1)
REPEATS = 20
"""Draws of noise at each token of a response."""
DRAWS = 200
"""Draws of noise for each distribution of the synthetic vocabulary."""


def gumbel_tokens(logits_BV: Tensor, key_B: Tensor, position_B: Tensor) -> Tensor:
    """Choose tokens [B] as the sampler does."""
    mass_BV = (logits_BV - logits_BV.amax(-1, keepdim=True)).exp()
    return find_winners(logits_BV, mass_BV, draw_seeds(key_B, position_B))[:, 0]


def inverse_tokens(logits_BV: Tensor, key_B: Tensor, position_B: Tensor) -> Tensor:
    """Choose tokens [B] at which the cumulative distribution, in the order of the vocabulary, passes a number."""
    bits_B = draw_seeds(key_B, position_B).long()[:, 0, 0] & 0x7FFFFFFF
    uniform_B1 = ((bits_B.double() + 0.5) * 2.0**-31)[:, None]
    sum_BV = logits_BV.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(sum_BV, uniform_B1 * sum_BV[:, -1:])[:, 0]


RULES = {"inverse": inverse_tokens, "gumbel_max": gumbel_tokens}


def compare_vocabulary(num_rows: int) -> None:
    """Print, by size of the noise, the least possible share of changed tokens and that of each rule."""
    generator = torch.Generator().manual_seed(0)
    for noise in NOISES:
        least, entropy, changed = 0.0, 0.0, dict.fromkeys(RULES, 0)
        for row in range(num_rows):
            # Six likely tokens, and a tail with about two hundredths of the mass: an entropy of about one nat.
            logits_BV = torch.randn(1, VOCABULARY, generator=generator).mul_(0.7) - 10
            logits_BV[0, torch.randperm(VOCABULARY, generator=generator)[:6]] = (
                torch.randn(6, generator=generator) * 1.5
            )
            other_BV = logits_BV + torch.randn(1, VOCABULARY, generator=generator) * noise
            least += float((logits_BV.softmax(-1) - other_BV.softmax(-1)).abs().sum()) / 2
            entropy -= float((logits_BV.softmax(-1) * logits_BV.log_softmax(-1)).sum())
            key_B, position_B = torch.full((DRAWS,), noise_key(0, row, "row", 0)), torch.arange(DRAWS)
            for name, rule in RULES.items():
                tokens = [rule(values.expand(DRAWS, -1), key_B, position_B) for values in (logits_BV, other_BV)]
                changed[name] += int((tokens[0] != tokens[1]).sum())
        shares = {name: round(count / num_rows / DRAWS, 5) for name, count in changed.items()}
        row = {"noise": noise, "entropy": round(entropy / num_rows, 2), "least": round(least / num_rows, 5), **shares}
        print(json.dumps(row), flush=True)


def compare_precisions(checkpoint: Path, responses: Path) -> None:
    """Print the share of tokens that differ between bfloat16 and float32 at the same contexts, by rule."""
    rows = [row for row in read_jsonl(responses) if row["tokens_at"] is not None]
    prompts = {row["group"]: row["prompt"] for row in read_jsonl(groups_path(responses))}
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    wide, narrow = load_policy(checkpoint, device="cpu"), load_policy(checkpoint, device="cpu")
    narrow.model.to(torch.bfloat16)
    num_tokens, least, changed = 0, 0.0, dict.fromkeys(RULES, 0)
    with torch.inference_mode():
        for index, row in enumerate(rows):
            prompt = tokenizer.encode(prompts[row["group"]], add_special_tokens=False)
            response = read_tokens(tokens_path(responses), *row["tokens_at"])["id"].tolist()
            token_BT = torch.tensor([[*prompt, *response]])
            position_BT = torch.arange(token_BT.shape[1])[None]
            logits = [
                head_logits(
                    policy.hidden(token_BT, position_BT)[0, len(prompt) - 1 : -1], policy.head.weight, 1.0, None
                )
                for policy in (wide, narrow)
            ]
            num_tokens += len(response)
            least += float((logits[0].softmax(-1) - logits[1].softmax(-1)).abs().sum()) / 2
            for repeat in range(REPEATS):
                key_T = torch.full((len(response),), noise_key(1, index, "row", repeat))
                for name, rule in RULES.items():
                    tokens = [rule(values, key_T, torch.arange(len(response))) for values in logits]
                    changed[name] += int((tokens[0] != tokens[1]).sum())
    shares = {name: round(count / num_tokens / REPEATS, 5) for name, count in changed.items()}
    print(json.dumps({"tokens": num_tokens, "least": round(least / num_tokens, 5), **shares}))


def compare_runs(first: Path, second: Path) -> None:
    """Print the share of equal responses of each step, and the first step of which less than half are equal."""
    half = None
    for _, _, path in step_files(first / "rl", "samples"):
        texts = [[row["text"] for row in read_jsonl(run / "rl/samples" / path.name)] for run in (first, second)]
        share = sum(left == right for left, right in zip(*texts, strict=True)) / len(texts[0])
        half = path.stem if half is None and share < 0.5 else half
        print(json.dumps({"step": path.stem, "equal": round(share, 3)}))
    print(json.dumps({"first step below one half": half}))


def main() -> None:
    """Run one of the three comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("vocabulary").add_argument("--rows", type=int, default=200)
    precisions = kinds.add_parser("precisions")
    precisions.add_argument("checkpoint", type=Path)
    precisions.add_argument("responses", type=Path)
    runs = kinds.add_parser("runs")
    runs.add_argument("first", type=Path)
    runs.add_argument("second", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.kind == "vocabulary":
        compare_vocabulary(given.rows)
    elif given.kind == "precisions":
        compare_precisions(given.checkpoint, given.responses)
    else:
        compare_runs(given.first, given.second)


if __name__ == "__main__":
    main()
