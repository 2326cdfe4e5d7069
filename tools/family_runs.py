"""Runs the toy model of a family through sampling, `ansatz check`, RL, resume and reload, and records the results.

python -m tools.family_runs [FAMILY ...]    all supported families, or the named ones, into tools/family_results.json

docs/models.md shows the record. tests/models/test_families.py and tests/e2e/test_family_runs.py measure the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ansatz.certify.check import check_recipe
from ansatz.config.layers import merge
from ansatz.config.load import check
from ansatz.config.schema import Config
from ansatz.files import file_digest
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.models.load import head_logits, load_policy
from ansatz.rollout.base import Sampling
from ansatz.rollout.native import NativeSampler
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Problem, Prompt
from tools.families import SIZES, SUPPORTED, VOCAB_SIZE, Family, build_folder

RESULTS = Path(__file__).parent / "family_results.json"
LOGP_TOLERANCE = 1e-4  # nats, of a token in float32

_PROBLEMS = {"source": "arithmetic", "max_level": 1}
_RECIPE: dict[str, Any] = {
    "name": "toy",
    "threads": 1,
    "data": {
        "template": "none",
        "train": {**_PROBLEMS, "split": "train", "count": 100, "seed": 2},
        "heldout": {**_PROBLEMS, "split": "heldout", "count": 20, "seed": 3},
    },
    "model": {"dtype": "float32"},
    "rollout": {"max_prompt_tokens": 40, "max_response_tokens": 24, "prompts_per_step": 2, "samples_per_prompt": 4},
    "train": {"steps": 3, "lr": 1e-2, "warmup_steps": 0},
    "evaluate": {"problems": 2, "samples_per_prompt": 2, "k": 2, "every": 0},
    "save": {"every": 1},
}
_REWARD = """
def parity(rollouts):
    return [float(sum(map(ord, rollout.text)) % 2) for rollout in rollouts]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What was measured of a family.

    settings: a digest of the toy model's settings. logp_gap: largest difference of a sampled token's log-prob from
    transformers', in nats, of the sampler and of training. check_rows, check_share: rows of `ansatz check`, and the
    largest measurement of a row as a share of its tolerance. rl_steps: steps with a gradient. same_bits: a resumed run
    ended with the weights of an uninterrupted one. reload_gap: largest difference of a log-prob between transformers
    and Ansatz, on the last checkpoint.
    """

    settings: str
    logp_gap: float
    check_rows: int
    check_share: float
    rl_steps: int
    same_bits: bool
    reload_gap: float


def digest(family: Family) -> str:
    text = json.dumps([family.config, SIZES, family.settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def transformers_logps(folder: Path, token_ids: list[int]) -> torch.Tensor:
    """The log-probs of each token after the first, by transformers' own eager attention in float32.

    ValueError if transformers would fill in weights that the folder lacks, or would ignore some.
    """
    model, report = AutoModelForCausalLM.from_pretrained(  # pyright: ignore[reportGeneralTypeIssues]
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if wrong := [*report["missing_keys"], *report["unexpected_keys"]]:
        raise ValueError(f"{folder}: transformers lacks or does not know these weights: {wrong}")
    with torch.no_grad():
        logp_TV = model.eval()(input_ids=torch.tensor([token_ids])).logits[0].log_softmax(-1)
    return logp_TV[:-1].gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0]


def logp_gap(folder: Path, *, max_response_tokens: int = 24) -> float:
    """The largest difference of a log-prob from transformers', in nats: of tokens that the sampler drew, as it reports
    them, and of all tokens as training computes them, packed on one axis."""
    policy = load_policy(folder)
    sampling = Sampling(num_samples=2, max_response_tokens=max_response_tokens, min_response_tokens=max_response_tokens)
    with closing(NativeSampler(policy, max_concurrent=6)) as sampler:
        rollouts = sampler.generate([_prompt(length) for length in (3, 7, 12)], sampling)
    texts = [[*rollout.prompt.token_ids, *rollout.token_ids] for rollout in rollouts]
    token_T = torch.tensor([token for text in texts for token in text])
    position_T = torch.cat([torch.arange(len(text)) for text in texts])
    segment_T = torch.cat([torch.full((len(text),), index) for index, text in enumerate(texts)])
    with torch.no_grad():
        hidden_TH = policy.packed_hidden(token_T, position_T, segment_T)
        logp_TV = head_logits(hidden_TH, policy.head.weight, softcap=policy.softcap).log_softmax(-1)
        unended_TV = logp_TV.clone()
        unended_TV[:, list(policy.end_ids)] = -torch.inf
    gap, start = 0.0, 0
    for rollout, text in zip(rollouts, texts, strict=True):
        expected = transformers_logps(folder, text)
        target = torch.tensor(text[1:])[:, None]
        trained = logp_TV[start : start + len(text) - 1].gather(1, target)[:, 0]
        gap = max(gap, float((trained - expected).abs().max()))
        count = len(rollout.behavior_logps)
        # The end token is masked while sampling, so the rest of the distribution is normalised again.
        mass = unended_TV[start : start + len(text) - 1].logsumexp(-1)[-count:]
        gap = max(gap, float((torch.tensor(rollout.behavior_logps) - (expected[-count:] - mass)).abs().max()))
        start += len(text)
    return gap


def _prompt(length: int) -> Prompt:
    generator = torch.Generator().manual_seed(length)
    token_ids = torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist()
    problem = Problem(id=f"p{length}", question="?", answers=("5",), source="test", split="train")
    return Prompt(problem=problem, text="", token_ids=tuple(token_ids))


def recipe(folder: Path, start: Path, **changes: Any) -> Config:
    """Three steps from the model `start`, with runs under `folder`. Rewards are 1 or 0."""
    rewards = folder / "rewards.py"
    rewards.write_text(_REWARD)
    own = {"model": {"path": str(start)}, "rewards": {f"{rewards}:parity": {}}}
    return check(merge(merge(_RECIPE, {"out": str(folder / "runs"), **own}), changes))


def check_rows(folder: Path, start: Path) -> tuple[int, float]:
    """The number of rows of `ansatz check` that apply, and their largest measurement as a share of its tolerance.

    A tolerance of 0 counts as 1 if it is exceeded and as 0 if it is not.
    """
    shares = [
        float(row.measured > 0) * 2 if row.tolerance == 0 else row.measured / row.tolerance
        for row in check_recipe(recipe(folder, start), folder / "built", num_prompts=2)
        if row.measured is not None
    ]
    return len(shares), max(shares)


def train(folder: Path, start: Path, **changes: Any) -> tuple[Path, int, bool]:
    """(checkpoint of step 3, steps with a gradient, whether a run that stops after step 2 and is resumed is equal)."""
    run = run_pipeline(recipe(folder, start, **changes))
    rows = read_jsonl(run / "rl" / "metrics.jsonl")
    steps = sum(row["train/grad_norm"] > 0 and row["align/mean_exp_gap"] < 1.0001 for row in rows)
    halted = recipe(folder, start, **merge(changes, {"out": str(folder / "halted"), "train": {"steps": 2}}))
    run_pipeline(halted)
    resumed = run_pipeline(resume_config(halted.run_dir, {"train.steps": "3"}), resume=True)
    last, again = (each / "rl" / "checkpoints" / "step-000003" for each in (run, resumed))
    return last, steps, file_digest(last / "model.safetensors") == file_digest(again / "model.safetensors")


def reload_gap(checkpoint: Path) -> float:
    """The largest difference of a token's log-prob, in nats, between transformers and Ansatz on a checkpoint."""
    token_ids = list(_prompt(30).token_ids)
    policy = load_policy(checkpoint)
    token_BL, position_BL = torch.tensor([token_ids]), torch.arange(30)[None]
    with torch.no_grad():
        hidden_BLH = policy.hidden(token_BL, position_BL)
        logp_LV = head_logits(hidden_BLH[0], policy.head.weight, softcap=policy.softcap).log_softmax(-1)
    trained = logp_LV[:-1].gather(1, token_BL[0, 1:, None])[:, 0]
    return float((trained - transformers_logps(checkpoint, token_ids)).abs().max())


def measure(family: Family) -> Results:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = build_folder(folder / "model", family.config, letters=True, **family.settings)
        rows, share = check_rows(folder, model)
        checkpoint, steps, same_bits = train(folder, model)
        return Results(
            settings=digest(family),
            logp_gap=logp_gap(model),
            check_rows=rows,
            check_share=share,
            rl_steps=steps,
            same_bits=same_bits,
            reload_gap=reload_gap(checkpoint),
        )


def check_results(results: Results) -> list[str]:
    """What is not as it must be."""
    expected = {
        f"log-probs within {LOGP_TOLERANCE} nats of transformers'": results.logp_gap < LOGP_TOLERANCE,
        "every row of `ansatz check`": results.check_rows > 10 and results.check_share <= 1,
        "two steps with a gradient": results.rl_steps >= 2,  # where all rewards of a step are equal, there is none
        "the same bits after a resume": results.same_bits,
        f"a reloaded checkpoint within {LOGP_TOLERANCE} nats": results.reload_gap < LOGP_TOLERANCE,
    }
    return [what for what, holds in expected.items() if not holds]


def read_results() -> dict[str, Any]:
    """{"transformers": VERSION, "families": {NAME: fields of `Results`}}."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def main() -> None:
    names = sys.argv[1:] or [family.name for family in SUPPORTED]
    for family in [family for family in SUPPORTED if family.name in names]:
        measured = asdict(measure(family))
        print(family.name, measured, flush=True)
        families = {**(read_results()["families"] if RESULTS.is_file() else {}), family.name: measured}
        known = {each.name: families[each.name] for each in SUPPORTED if each.name in families}
        record = {"transformers": version("transformers"), "families": known}
        RESULTS.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
