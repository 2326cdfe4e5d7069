"""Every sabotage of the objectives turns the tests red.

A sabotage is one edit of the package's source. The package is loaded again from the edited text, in this process, and
the fast tests run over it until one fails; an edit that none of them notices is a hole in the tests.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest

HERE = Path(__file__).parent
PACKAGE = "ansatz.objectives"
SUITE = {
    "test_losses": ("surrogates", "ratios", "kl", "weights"),
    "test_objective": ("objective",),
    "test_clip_counts": ("surrogates", "objective"),
    "test_corrections": ("corrections",),
    "test_advantages": ("advantages", "segments"),
    "test_token_advantages": ("token_advantages", "advantage_rule"),
    "test_preference": ("preference",),
}
"""Test files with the source files whose faults they should see; those run first."""
RELOADED = (PACKAGE, "token_batches")

SABOTAGES: dict[str, tuple[str, str, str]] = {
    "clip count: dual clip not counted": ("surrogates", "high_T | (bad_T & (loss_T > bound_T))", "high_T"),
    "clip count: gmpo's bounds taken for bounds on the ratio": (
        "surrogates",
        "high_T=(log_ratio_T > high)",
        "high_T=(log_ratio_T.exp() > 1 + high)",
    ),
    "clip count: not reported by corrections": ("objective", "high_T | above_T", "high_T"),
    "surrogate: sign flipped": (
        "surrogates",
        "return -log_ratio_T.exp() * advantage_T",
        "return log_ratio_T.exp() * advantage_T",
    ),
    "surrogate: REINFORCE climbs down": (
        "surrogates",
        "return -advantage_T * policy_logp_T",
        "return advantage_T * policy_logp_T",
    ),
    "clip: upper side dropped": ("surrogates", "ratio_T.clamp(1 - low, 1 + high)", "ratio_T.clamp(min=1 - low)"),
    "clip: lower side dropped": ("surrogates", "ratio_T.clamp(1 - low, 1 + high)", "ratio_T.clamp(max=1 + high)"),
    "clip: min for max": (
        "surrogates",
        "torch.maximum(-ratio_T * advantage_T",
        "torch.minimum(-ratio_T * advantage_T",
    ),
    "dual clip: on the wrong sign": (
        "surrogates",
        "bad_T, bound_T = advantage_T < 0",
        "bad_T, bound_T = advantage_T > 0",
    ),
    "cispo: gradient through the ratio": (
        "surrogates",
        "ratio_T = log_ratio_T.detach().exp()\n    if outside",
        "ratio_T = log_ratio_T.exp()\n    if outside",
    ),
    "sapo: temperatures swapped": (
        "surrogates",
        "masked_fill(advantage_T > 0, tau_pos)",
        "masked_fill(advantage_T < 0, tau_pos)",
    ),
    "gmpo: sum for mean": (
        "surrogates",
        "segments.total(inside_T, segment_T, num_rollouts) / length_N",
        "segments.total(inside_T, segment_T, num_rollouts) / 1",
    ),
    "ratio: upside down": (
        "ratios",
        "log_ratio_T = policy_logp_T - anchor_logp_T\n    return log_ratio_T if",
        "log_ratio_T = anchor_logp_T - policy_logp_T\n    return log_ratio_T if",
    ),
    "ratio: sum for the sequence's mean": ("ratios", "/ length_N)[segment_T]", "/ 1)[segment_T]"),
    "kl: k3 of the wrong direction": ("kl", "torch.expm1(-x_T) + x_T", "torch.expm1(x_T) - x_T"),
    "kl: k2 without its half": ("kl", "return x_T.square() / 2", "return x_T.square()"),
    "kl: straight through the wrong estimator": (
        "kl",
        "value_T = value_T.detach() + square_T - square_T.detach()",
        "value_T = value_T + square_T - square_T.detach()",
    ),
    "kl: sign in the loss": ("objective", "loss + self.kl_coef * kl_loss", "loss - self.kl_coef * kl_loss"),
    "kl: sign in the reward": ("advantage_rule", "- segments.total(kl_T", "+ segments.total(kl_T"),
    "entropy: punished": ("objective", "loss = loss - entropy_coef", "loss = loss + entropy_coef"),
    "weights: a slice's own denominator": ("objective", '(term_T * inputs["weight_T"]).sum()', "term_T.mean()"),
    "weights: mean over tokens for mean over rollouts": (
        "weights",
        "(_counted(length_N, rollouts) * (length_N[segment_T]",
        "(len(segment_T) * (torch.ones_like(segment_T)",
    ),
    "weights: rollouts of the fixed length forgotten": ("weights", "1 / (counted * max_tokens)", "1 / max_tokens"),
    "mask: shifted by one": (
        "advantage_rule",
        "return None if value_T is None else value_T[mask_T]",
        "return None if value_T is None else value_T[mask_T.roll(1)]",
    ),
    "mask: dropped from the advantages": (
        "advantage_rule",
        "segments.count(segment_T[mask_T], len(reward_N))",
        "segments.count(segment_T, len(reward_N))",
    ),
    "mask: masks ignored": ("objective", "kept_T = kept_T & component(inputs)", "kept_T = kept_T | component(inputs)"),
    "advantage: ddof": ("segments", "count(segment_N, num_segments) - ddof)", "count(segment_N, num_segments) - 1)"),
    "advantage: epsilon lost": (
        "advantages",
        "_divided(centered_N, std_N + eps), reward_N",
        "_divided(centered_N, std_N + 1e-12), reward_N",
    ),
    "advantage: leave-one-out without the factor": ("advantages", "* size_N / (size_N - 1).clamp(min=1)", "* 1"),
    "advantage: mean of the batch for the group": (
        "segments",
        "value_N - mean_S[segment_N]",
        "value_N - value_N.mean()",
    ),
    "advantage: lambda for gamma lambda": ("token_advantages", "= gamma * lam\n", "= lam\n"),
    "advantage: value of the next rollout": (
        "segments",
        "return following_T * ~last_of_segment(segment_T)",
        "return following_T",
    ),
    "advantage: discount runs the wrong way": (
        "segments",
        "for column_S in reversed(padded_SL.unbind(1)):",
        "for column_S in padded_SL.unbind(1):",
    ),
    "advantage: whitening without centring": (
        "token_advantages",
        "return _centered(values, mean_eps) if center else values",
        "return values",
    ),
    "correction: upside down": (
        "corrections",
        "log_T = old_logp_T - behavior_logp_T",
        "log_T = behavior_logp_T - old_logp_T",
    ),
    "correction: truncation lost": ("corrections", ".clamp(lowest, highest)", ""),
    "correction: not applied": (
        "objective",
        "loss_T, low_T, high_T = loss_T * factor_T,",
        "loss_T, low_T, high_T = loss_T,",
    ),
    "correction: mismatch weight not applied": (
        "objective",
        "weight_T = weight_T * component(inputs)",
        "weight_T = weight_T",
    ),
    "correction: mismatch weight over kept tokens only": (
        "objective",
        "mask_T = batch.sampled_mask_T",
        "mask_T = batch.mask_T",
    ),
    "correction: good rollouts dropped for bad": (
        "corrections",
        "~((advantage_T < 0) & (gap_N",
        "~((advantage_T > 0) & (gap_N",
    ),
    "trust region: sides swapped": (
        "corrections",
        "torch.where(advantage_T > 0, moved_T > 0, moved_T < 0)",
        "torch.where(advantage_T > 0, moved_T < 0, moved_T > 0)",
    ),
    "value: better for worse": ("surrogates", "error_T = torch.maximum(error_T,", "error_T = torch.minimum(error_T,"),
    "preference: chosen and rejected swapped": (
        "preference",
        "_smoothed(beta * (chosen_score_P - rejected_score_P)",
        "_smoothed(beta * (rejected_score_P - chosen_score_P)",
    ),
    "early stop: the other way round": (
        "objective",
        'float(sums["ratio"]) > self.max_ratio',
        'float(sums["ratio"]) < self.max_ratio',
    ),
}


# No shrinking, nothing remembered, the same examples every time.
hypothesis.settings.register_profile(
    "sabotage", max_examples=6, database=None, derandomize=True, phases=[hypothesis.Phase.generate], deadline=None
)


class _Edited(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module of the package and gives it an edited source."""

    def __init__(self, name: str, old: str, new: str) -> None:
        self.name, self.old, self.new = name, old, new

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        origin = importlib.machinery.PathFinder.find_spec(fullname, path)
        return importlib.util.spec_from_loader(fullname, self, origin=origin.origin if origin else None)

    def exec_module(self, module: ModuleType) -> None:
        origin = module.__spec__.origin if module.__spec__ else None
        assert origin is not None
        source = Path(origin).read_text()
        assert source.count(self.old) >= 1, f"the sabotage's text is gone from {origin}: {self.old!r}"
        exec(compile(source.replace(self.old, self.new), origin, "exec"), module.__dict__)


@contextmanager
def edited(name: str | None, old: str = "", new: str = "") -> Iterator[None]:
    """The package freshly loaded with one edit; afterwards everything is as it was."""
    saved = {key: module for key, module in sys.modules.items() if key.startswith(RELOADED)}
    finder = _Edited(f"{PACKAGE}.{name}", old, new)
    for key in saved:
        del sys.modules[key]
    if name is not None:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if name is not None:
            sys.meta_path.remove(finder)
        for key in [key for key in sys.modules if key.startswith(RELOADED)]:
            del sys.modules[key]
        sys.modules.update(saved)


def first_failure(source: str = "") -> str | None:
    """The first test of the suite that fails over the package as it is now, None when all pass."""
    hypothesis.settings.load_profile("sabotage")
    try:
        return _first_failure(sorted(SUITE, key=lambda name: source not in SUITE[name]))
    finally:
        hypothesis.settings.load_profile("default")


def _first_failure(names: list[str]) -> str | None:
    for name in names:
        spec = importlib.util.spec_from_file_location(f"sabotaged_{name}", HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for title, test in vars(module).items():
            if title.startswith("test_"):
                for arguments in _parameters(test):
                    try:
                        test(**arguments)
                    except Exception:
                        return title
    return None


def _parameters(test: Any) -> list[dict[str, Any]]:
    """The keyword arguments of some six cases of a parametrized test, spread over them; one empty for a plain one."""
    axes: list[list[dict[str, Any]]] = []
    for mark in getattr(test, "pytestmark", []):
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        axes.append([dict(zip(names, row, strict=True)) for row in rows])
    cases = [{key: value for part in choice for key, value in part.items()} for choice in itertools.product(*axes)]
    return cases[:: max(len(cases) // 6, 1)]


def test_the_suite_is_green_without_a_sabotage():
    with edited(None):
        assert first_failure() is None


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_every_sabotage_turns_the_suite_red(sabotage: str):
    name, old, new = SABOTAGES[sabotage]
    with edited(name, old, new):
        assert first_failure(name) is not None, f"nothing noticed: {old!r} -> {new!r}"
