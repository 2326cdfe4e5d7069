"""GRPO in one file: a small transformer learns to add on a CPU in less than a minute.

Only four parts of Ansatz are used: the generator of problems, the builder of a tiny model, the verifier, and the
objective. The rest of what `ansatz train` does at scale is written out here in the plainest way:

1. A model with random weights reads demonstrations (SFT). Half of them contain a slip, so about half of what the model
   then writes is wrong.
2. It samples 8 responses to each problem. The verifier grades them, and GRPO makes the correct ones more likely. The
   mean reward rises from 0.43 in the first step to 0.84, the mean of the last five (seed 0).

The capital letters at the end of a tensor's name are its axes: N rollouts, L columns of a padded matrix, V vocabulary,
T sampled tokens of all rollouts, one after the other.

    python examples/grpo_from_scratch.py
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from ansatz_verify import verify
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from ansatz.data.arithmetic import arithmetic
from ansatz.models.tiny import build_tiny_model
from ansatz.objectives.build import build_objective
from ansatz.objectives.objective import Objective
from ansatz.types import Problem

SIZES = {"vocab_size": 300, "hidden_size": 64, "num_layers": 2, "intermediate_size": 192, "head_dim": 16}
SFT_BATCH, SLIP_RATE = 64, 0.5
PROMPTS_PER_STEP, SAMPLES_PER_PROMPT, UPDATES_PER_STEP = 32, 8, 2
MAX_RESPONSE_TOKENS, ANSWER_LIMIT = 24, 30


@dataclass
class Batch:
    """What `Objective.loss` reads, for sampled tokens only; every tensor has one entry per token."""

    segment_T: Tensor  # the rollout that each token belongs to
    advantage_T: Tensor
    weight_T: Tensor  # the loss is the sum over tokens of weight x loss of the token
    mask_T: Tensor  # tokens that count in the loss: here all
    sampled_mask_T: Tensor  # tokens that the policy sampled: here all
    old_logp_T: Tensor  # log-probs before the step's first update
    behavior_logp_T: Tensor  # log-probs of the sampler, which here is the old policy
    ref_logp_T: Tensor | None = None  # only for a KL term
    penalty_weight_T: Tensor | None = None  # of KL and entropy terms; None: as weight_T
    likelihood_weight_T: Tensor | None = None  # only for a likelihood term on correct responses


def sums(*, count: int, seed: int) -> list[Problem]:
    """`count` problems such as "What is 6 + 13?" with an answer below `ANSWER_LIMIT`."""
    generated = arithmetic(split="train", count=10**9, seed=seed, max_level=1)
    return list(islice((p for p in generated if " + " in p.question and int(p.answer) < ANSWER_LIMIT), count))


def demonstrate(problem: Problem) -> str:
    """The worked solution; in half of the cases the answer is 10 too large, as after a carry too many."""
    solution = str(problem.solution)
    slip = torch.rand(()) < SLIP_RATE
    return solution.replace(problem.answer, str(int(problem.answer) + 10)) if slip else solution


def prompt_text(problem: Problem) -> str:
    return f"Question: {problem.question}\nAnswer:\n"


def build_policy(problems: Sequence[Problem], seed: int) -> tuple[Any, Any]:
    """A model with random weights and a tokenizer trained on the problems' own text."""
    texts = [prompt_text(problem) + str(problem.solution) for problem in problems]
    with tempfile.TemporaryDirectory() as folder:
        build_tiny_model(folder, texts=texts, seed=seed, **SIZES)
        return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def fine_tune(model: Any, tokenizer: Any, problems: Sequence[Problem], *, steps: int, lr: float) -> None:
    """SFT: next-token prediction on the tokens of the solution."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        texts, starts = [], []
        for index in range(step * SFT_BATCH, (step + 1) * SFT_BATCH):
            problem = problems[index % len(problems)]
            texts.append(prompt_text(problem) + demonstrate(problem) + tokenizer.eos_token)
            starts.append(len(tokenizer.encode(prompt_text(problem))))
        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
        target_NL = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        for row, start in enumerate(starts):
            target_NL[row, :start] = -100  # the prompt is given, not learned
        logits_NLV = model(**batch).logits
        loss = cross_entropy(logits_NLV[:, :-1].flatten(0, 1), target_NL[:, 1:].flatten())
        optimizer.param_groups[0]["lr"] = lr * min(1.0, 2 * (1 - step / steps))  # constant, then linearly to 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def sample(model: Any, tokenizer: Any, problems: Sequence[Problem], *, num_samples: int) -> tuple[Tensor, Tensor, int]:
    """(token_NL, mask_NL, width of the prompts): prompts padded on the left, as the tokenizer is set, responses on the
    right. mask_NL is True for the tokens that the policy sampled, including the end token, which is not the pad token.

    top_k=0: otherwise transformers would sample from the 50 likeliest tokens, of which `token_logps` knows nothing.
    """
    prompts = tokenizer([prompt_text(problem) for problem in problems], return_tensors="pt", padding=True)
    token_NL = model.generate(
        **prompts, do_sample=True, num_return_sequences=num_samples, max_new_tokens=MAX_RESPONSE_TOKENS, top_k=0
    )
    width = prompts.input_ids.shape[1]
    mask_NL = token_NL != tokenizer.pad_token_id
    mask_NL[:, :width] = False
    return token_NL, mask_NL, width


def token_logps(model: Any, tokenizer: Any, token_NL: Tensor, mask_NL: Tensor) -> Tensor:
    """logp_T: log-probability of each sampled token, with gradient."""
    attention_NL = (token_NL != tokenizer.pad_token_id).long()
    position_NL = (attention_NL.cumsum(-1) - 1).clamp(min=0)
    logits_NLV = model(token_NL, attention_mask=attention_NL, position_ids=position_NL).logits[:, :-1]
    logp_NL = logits_NLV.log_softmax(-1).gather(-1, token_NL[:, 1:, None]).squeeze(-1)
    return logp_NL[mask_NL[:, 1:]]


def grade(tokenizer: Any, problems: Sequence[Problem], token_NL: Tensor, width: int) -> Tensor:
    """reward_N: 1 where the verifier accepts the response, else 0."""
    texts = tokenizer.batch_decode(token_NL[:, width:], skip_special_tokens=True)
    samples = len(texts) // len(problems)
    verdicts = [verify(problems[row // samples].answer, text) for row, text in enumerate(texts)]
    return torch.tensor([float(verdict.correct) for verdict in verdicts])


def reinforce(model: Any, tokenizer: Any, problems: Sequence[Problem], objective: Objective, optimizer: Any) -> float:
    """One step of RL: sample, grade, update. Returns the mean reward of the sampled responses."""
    token_NL, mask_NL, width = sample(model, tokenizer, problems, num_samples=SAMPLES_PER_PROMPT)
    reward_N = grade(tokenizer, problems, token_NL, width)

    group_N = torch.arange(len(problems)).repeat_interleave(SAMPLES_PER_PROMPT)  # the problem of each rollout
    segment_T = mask_NL.nonzero()[:, 0]  # the rollout of each token, row by row as in `token_logps`
    mask_T = torch.ones_like(segment_T, dtype=torch.bool)
    advantage_T = objective.advantages(reward_N, group_N, segment_T=segment_T, mask_T=mask_T).advantage_T
    weight_T = objective.token_weights(segment_T, mask_T, num_rollouts=len(reward_N))

    old_logp_T = None
    for _ in range(UPDATES_PER_STEP):
        policy_logp_T = token_logps(model, tokenizer, token_NL, mask_NL)
        if old_logp_T is None:  # nothing has been updated yet, so this policy is the one that sampled
            old_logp_T = policy_logp_T.detach()
        batch = Batch(
            segment_T=segment_T,
            advantage_T=advantage_T,
            weight_T=weight_T,
            mask_T=mask_T,
            sampled_mask_T=mask_T,
            old_logp_T=old_logp_T,
            behavior_logp_T=old_logp_T,
        )
        loss = objective.loss(batch, policy_logp_T).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return float(reward_N.mean())


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Trains a model and returns the mean reward of each RL step."""
    parser = argparse.ArgumentParser(description="Teach a tiny model to add with GRPO.")
    parser.add_argument("--sft-steps", type=int, default=280)
    parser.add_argument("--steps", type=int, default=30, help="steps of RL")
    parser.add_argument("--lr", type=float, default=4e-4, help="learning rate of RL")
    parser.add_argument("--preset", default="grpo", help="a preset of docs/algorithms.md")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)

    demonstrations = sums(count=600, seed=1)
    problems = sums(count=PROMPTS_PER_STEP * options.steps, seed=2)
    model, tokenizer = build_policy(demonstrations, options.seed)
    fine_tune(model, tokenizer, demonstrations, steps=options.sft_steps, lr=4e-3)

    objective = build_objective({"preset": options.preset}, max_response_tokens=MAX_RESPONSE_TOKENS)  # dr_grpo uses it
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    rewards: list[float] = []
    for step in range(options.steps):
        start = step * PROMPTS_PER_STEP
        rewards.append(reinforce(model, tokenizer, problems[start : start + PROMPTS_PER_STEP], objective, optimizer))
        print(f"step {step + 1:3d}   mean reward {rewards[-1]:.3f}", flush=True)
    return rewards


if __name__ == "__main__":
    main()
