"""The formula that a run's own options promise, as the `algorithm:` section of a recipe. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansatz.audit.bundle import Bundle
from ansatz.errors import ConfigError
from ansatz.objectives.projects import PROJECTS, trl
from ansatz.objectives.projects.options import Options, merged, nested

RUN_OPTIONS = (
    "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation",
    "max_completion_length", "max_response_tokens", "reward_weights", "temperature", "top_p", "top_k", "min_p", "bf16",
    "fp16", "max_grad_norm", "learning_rate",
)  # fmt: skip
"""Options that a bundle can have although no formula depends on them, or only some formulas."""
_WHOLE_STEP = ("dapo", "cispo", "vespo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """spec: the section. per_microbatch: token weights are computed within each microbatch, and the microbatches are
    averaged; else over the whole step. scale: of the loss. whole: the bundle's rollouts are those that advantages were
    computed over, and not a part of them, or several such batches."""

    spec: Mapping[str, Any]
    per_microbatch: bool = False
    scale: float = 1.0
    whole: bool = True

    def component(self, key: str) -> tuple[str, dict[str, Any]]:
        """Return the name and the settings of a component."""
        value = self.spec.get(key, "none")
        if isinstance(value, Mapping):
            return str(value["name"]), {name: setting for name, setting in value.items() if name != "name"}
        return str(value), {}


def promise_of(bundle: Bundle) -> Promise | str:
    """Return the promise that the options make, or the reason why it is unknown."""
    try:
        if bundle.project == "ansatz":
            spec = bundle.options.get("algorithm")
            if not isinstance(spec, Mapping):
                return "the bundle is not an update of RL"
            coef = bundle.notes.get("settings", {}).get("entropy_coef")  # as adapted so far
            now = {} if coef is None else {"entropy_coef": coef}
            return Promise(spec={**spec, **now}, whole=bundle.notes.get("updates_per_step", 1) == 1)
        if bundle.project not in PROJECTS:
            return f"the project {bundle.project!r} is not one of {', '.join(PROJECTS)}"
        if not bundle.options:
            return f"the options of {bundle.project} are not in the bundle"
        project = PROJECTS[bundle.project]
        options = Options(merged(nested(project.options), _undotted(bundle.options)))
        options.ignore(*RUN_OPTIONS)
        promise = _trl(bundle, options) if project.name == "trl" else Promise(spec=project.spec(options))
        options.refuse_unused(project.name, project.options)
        return promise
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the options of {bundle.project} could not be read ({error})"


def _undotted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Nest options by their dotted names."""
    out = dict[str, Any]()
    for name, value in options.items():
        for key in reversed(name.split(".")):
            value = {key: value}
        out = merged(out, value)
    return out


def _trl(bundle: Bundle, options: Options) -> Promise:
    """GRPOTrainer of TRL 1.16. Old log-probs are used only if an update can see samples of earlier weights."""
    given = bundle.options
    every = int(given.get("steps_per_generation", 1)) * int(given.get("num_iterations", 1))
    accumulation = int(given.get("gradient_accumulation_steps", 1))
    whole = accumulation <= int(given.get("steps_per_generation", accumulation))
    spec = trl.spec(options, aligned=accumulation % max(every, 1) == 0)
    if options["loss_type"] not in _WHOLE_STEP:
        return Promise(spec=spec, per_microbatch=True, whole=whole)
    mask_T, micro_N = bundle.arrays.get("mask_T"), bundle.arrays.get("microbatch_N")
    scale = 1.0
    if mask_T is not None and micro_N is not None and (micro_N < 0).any():
        here = float((mask_T != 0).sum())  # the denominator is a share of the tokens of the whole generation
        everywhere = here + float(bundle.arrays["sampled_mask_T"][micro_N[bundle.arrays["segment_T"]] < 0].sum())
        scale = here / (everywhere * accumulation / int(given.get("steps_per_generation", accumulation)))
    return Promise(spec=spec, scale=scale, whole=whole)


def lengths(bundle: Bundle) -> Any:
    """Return the number of sampled tokens of each rollout, 0 where it is unknown."""
    sampled_T = bundle.arrays.get("sampled_mask_T")
    if sampled_T is None:
        return np.zeros(bundle.num_rollouts)
    return np.bincount(bundle.arrays["segment_T"][sampled_T != 0], minlength=bundle.num_rollouts)
