"""Evaluate the formula that `explain` prints: from its words to numbers, without the code that they describe.

Axes: N rollouts, T response tokens (flat). Everything is computed at the tokens, in float64, and gradients are those of
autograd. A sentence that is not known here is an AssertionError, so a new word needs a meaning first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The tokens of a step. logps: policy (with gradient), old, behavior, ref."""

    reward_N: Tensor
    group_N: Tensor
    segment_T: Tensor
    logps: dict[str, Tensor]


def evaluate(formula: str, step: Step) -> tuple[Tensor, Tensor]:
    """(loss, advantage_T) of a printed formula."""
    lines = _lines(formula)
    env = _names(step)
    env["A"] = _advantage(lines, step, env)
    env["rho"] = _ratio(lines.pop("ratio"), env)
    env["weight"] = _weight(lines.pop("weight"), step)
    if "penalties" in lines:
        env["penalty_weight"] = _weight(lines.pop("penalties").removeprefix("penalty weight = "), step)
    env["surrogate"] = _surrogate(lines.pop("surrogate"), env)
    for correction in lines.pop("correction", "").split("\n"):
        env["surrogate"] = env["surrogate"] * _correction(correction, step, env).detach()
    if "KL" in lines:
        env["KL"], _ = _kl(lines.pop("KL"), env)
    total = lines.pop("loss")
    assert not lines, f"not evaluated: {lines}"
    return value(total.removeprefix("loss = sum over response tokens of "), env).sum(), env["A"]


def _lines(formula: str) -> dict[str, str]:
    """The text of each line by its title; lines of one title, and lines without one, are joined."""
    first, *rest = formula.splitlines()
    lines, title = {"loss": first.partition(": ")[2]}, ""
    for line in rest:
        match = re.fullmatch(r"  (\w*) +(.*)", line)
        assert match is not None, line
        title = match[1] or title
        lines[title] = f"{lines[title]}\n{match[2]}" if title in lines else match[2]
    return lines


def _names(step: Step) -> dict[str, Any]:
    ones = torch.ones_like(step.logps["old"])
    env: dict[str, Any] = {name: logp.exp() for name, logp in step.logps.items()}
    return {
        **env,
        "abs": torch.abs,
        "clip": lambda x, low, high: x.clamp(low, high),
        "constant": torch.Tensor.detach,
        "exp": torch.exp,
        "inf": torch.inf,
        "log": torch.log,
        "min": torch.minimum,
        "ones": ones,
    }


def value(text: str, env: dict[str, Any]) -> Tensor:
    """An expression: names side by side are multiplied, and so are those with an x between them."""
    text = text.replace("penalty weight", "penalty_weight")
    text = re.sub(r"\|([^|]+)\|", r"abs(\1)", text)
    text = re.sub(r"\blog (\w+)", r"log(\1)", text).replace("^", "**")
    tokens = re.findall(r"\d+\.?\d*(?:e-?\d+)?|\w+|\*\*|[-+/(),]", text)
    assert "".join(tokens) == re.sub(r"\s", "", text), text
    python = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        if token == "x":
            token = "*"
        elif re.match(r"[\w(]", token) and re.fullmatch(r"[\w.]+|\)", before) and before != "x":
            python += "" if token == "(" and callable(env.get(before)) else " * "
        python += token
    return eval(python, {"__builtins__": {}}, env)


def _advantage(lines: dict[str, str], step: Step, env: dict[str, Any]) -> Tensor:
    text, *more = lines.pop("advantage").split("\n")
    env["r"] = step.reward_N
    expression, _, keeps = text.removeprefix("A = ").partition("; a prompt's only rollout has ")
    expression = expression.replace("mean reward of the prompt", "mean")
    expression = re.sub(r"std of the group's rewards \(ddof (\d)\)", r"std (ddof \1)", expression)
    expression, _, of_others = expression.partition(", both of the prompt's other rewards")
    ddof = re.search(r"std \(ddof (\d)\)", expression)
    expression = re.sub(r"std \(ddof \d\)", "std", expression)
    assert of_others in ("", "; undivided where that std is 0")
    advantages = list[float]()
    rewards, groups = step.reward_N.tolist(), step.group_N.tolist()
    for place, (reward, group) in enumerate(zip(rewards, groups, strict=True)):
        others = [r for other, (r, g) in enumerate(zip(rewards, groups, strict=True)) if g == group and other != place]
        seen = torch.tensor(others if of_others else [reward, *others], dtype=torch.float64)
        std = seen.std(correction=int(ddof[1])).item() if ddof and len(seen) > 1 else 0.0
        here = {**env, "r": reward, "mean": seen.mean().item(), "std": std}
        if of_others and std == 0:
            advantages.append(reward - here["mean"])
        else:
            alone = keeps if keeps and not others else expression
            advantages.append(float(value(alone, here)))
    advantage_T = torch.tensor(advantages, dtype=torch.float64)[step.segment_T]
    for line in more:
        bounds = re.fullmatch(r"clipped to \[(-?[\d.]+), (-?[\d.]+)\]", line)
        assert bounds, line
        advantage_T = advantage_T.clamp(float(bounds[1]), float(bounds[2]))
    if "\n" in lines.get("KL", ""):  # a KL that is part of the advantage
        _, subtracted = _kl(lines.pop("KL"), {**env, "policy": env["old"]})
        return advantage_T - subtracted(step.segment_T)
    return advantage_T


def _ratio(text: str, env: dict[str, Any]) -> Tensor:
    text, _, anchor = text.partition(", anchor = ")
    env["anchor"] = value(anchor, env).detach()
    place, _, bound = text.partition(", log rho within +-")
    assert place == "rho = policy / anchor of the token", place
    ratio_T = env["policy"] / env["anchor"]
    return ratio_T.log().clamp(-float(bound), float(bound)).exp() if bound else ratio_T


def _surrogate(text: str, env: dict[str, Any]) -> Tensor:
    text, _, bound = text.partition(", at most ")
    result = value(text, env)
    if bound:
        expression, _, where = bound.partition(" where ")
        assert where == "A < 0", where
        result = torch.where(env["A"] < 0, torch.minimum(result, value(expression, env)), result)
    return result


def _weight(text: str, step: Step) -> Tensor:
    text, _, added = text.partition(", ")
    eps = float(added.removesuffix(" added to the tokens") or 0)
    length_N = torch.bincount(step.segment_T, minlength=len(step.reward_N)).double() + eps
    for phrase, name in (
        ("response tokens of the step", "tokens"),
        ("response tokens of the rollout", "length"),
        ("all rollouts of the step", "rollouts"),
    ):
        text = text.replace(phrase, name)
    env = {"tokens": len(step.segment_T) + eps, "length": length_N[step.segment_T], "rollouts": len(step.reward_N)}
    return value(text, env)


def _correction(text: str, step: Step, env: dict[str, Any]) -> Tensor:
    if not text:
        return env["ones"]
    if moved := re.fullmatch(r"x 0 where (.*) > (\S+) \(A > 0\) or > (\S+) \(else\) in the direction of A", text):
        up = env["A"] > 0
        far = value(moved[1], env) > torch.where(up, float(moved[2]), float(moved[3]))
        risen = env["policy"] > env["anchor"]
        fallen = env["policy"] < env["anchor"]
        return (~(far & torch.where(up, risen, fallen))).double()
    body, _, place = text.removeprefix("x ").partition(", w = old / behavior ")
    log_T = (env["old"] / env["behavior"]).log()
    if place == "multiplied over the rollout":
        log_T = torch.zeros(len(step.reward_N), dtype=torch.float64).index_add(0, step.segment_T, log_T)[step.segment_T]
    else:
        assert place == "of the token", place
    env = {**env, "w": log_T.exp()}
    if inside := re.fullmatch(r"w where (\S+) <= w <= (\S+), else 0", body):
        kept = (env["w"] >= float(inside[1])) & (env["w"] <= float(inside[2]))
        return env["w"] * kept
    return value(body, env)


def _kl(text: str, env: dict[str, Any]) -> tuple[Tensor, Any]:
    """The KL of each token; and for a KL in the advantage, the function of segment_T that gives what is subtracted."""
    text, _, subtracted = text.partition("\n")
    text, _, reference = text.partition(", reference = ")
    env = {**env, "reference": env[reference]}
    expression, *notes = text.split(", ")
    if notes and notes[0].startswith("log(policy / reference) within +-"):
        bound = float(notes.pop(0).rpartition("+-")[2])
        inside = (env["policy"] / env["reference"]).log().clamp(-bound, bound)
        bounded = inside.exp()  # of policy / reference
        expression = expression.replace("policy / reference", "bounded").replace("reference / policy", "1 / bounded")
        env["bounded"] = bounded
    kl_T = value(expression, env)
    for note in notes:
        if note.startswith("times "):
            kl_T = kl_T * value(note.removeprefix("times "), env)
        else:
            bound = float(note.removeprefix("within +-"))
            kl_T = kl_T.clamp(-bound, bound)
    if not subtracted:
        return kl_T, None
    coef, _, words = subtracted.partition(" x ")
    assert words == "KL from the token on subtracted from A", words

    def to_go(segment_T: Tensor) -> Tensor:
        sums = [kl_T[place:][segment_T[place:] == segment].sum() for place, segment in enumerate(segment_T)]
        return float(coef) * torch.stack(sums).detach()

    return kl_T, to_go
