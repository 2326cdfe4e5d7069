"""A step bundle: one RL step as numbers, in a folder that can be read without a GPU and without the project behind it.

    bundle.json          format, project, version, step, options, expected, rollouts, and the digest of each array
    arrays.safetensors   the arrays

Axes: N rollouts, T flat tokens (prompt and response of each rollout, one rollout after the other), K rewards. The last
part of an array's name is its axes. These names have a meaning for the audit; the others are kept:

    token_T, segment_T                   ids; the rollout of each token, ascending
    prompt_length_N, group_N             tokens before the response; the prompt of each rollout, by any numbers
    sampled_mask_T, mask_T               tokens that the policy sampled; tokens that count in the loss
    observation_T                        tokens of the response that an environment wrote
    policy_logp_T, old_logp_T, behavior_logp_T, ref_logp_T     nats, as in the glossary
    reward_N, component_NK               the reward, and its parts before their weights
    advantage_N, advantage_T             as computed; as the loss saw it
    gradient_T                           of the step's loss with respect to policy_logp_T, as autograd gave it
    entropy_T, correction_T              of the policy; the factor for sampler mismatch that the project applied
    recomputed_policy_logp_T, ..._old_..., ..._ref_...   from the same weights by a second, plain forward pass
    recomputed_raw_logp_T, ..._ref_raw_..., ..._bfloat16_...   at temperature 1: old, ref; old in that dtype
    version_T, microbatch_N              the policy version of each token; the microbatch, -1: not in this update
    truncated_N                          cut off at the limit of length

An unknown value is absent, never zero. A bundle can be somebody else's file: nothing that it names is imported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ansatz import __version__
from ansatz.errors import DataError
from ansatz.files import open_draft, write_text
from ansatz.json_text import parse_json
from ansatz.links import open_file
from ansatz.objectives.presets import KEYS

FORMAT = 1
TEXT, ARRAYS = "bundle.json", "arrays.safetensors"
MAX_TEXT, MAX_ARRAYS = 1 << 28, 1 << 32
"""Bytes of the two files. A step of a million tokens has 10^8 bytes of arrays."""

Array = np.ndarray[Any, np.dtype[Any]]
_NAME = re.compile(r"[a-z0-9_]{1,60}_(T|N|NK)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """expected: numbers that the step gave, such as loss and grad_norm. rollouts: texts of each rollout, in order:
    prompt, response, answer (the gold answer, or a list of accepted ones) and verdict, as far as they are known.
    options: of the project. notes: everything else about the step, as JSON."""

    project: str
    version: str
    step: int
    arrays: Mapping[str, Array]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    expected: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rollouts: Sequence[Mapping[str, Any]] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    path: str = ""

    def get(self, name: str) -> Array | None:
        """Return an array; numbers as float64. None: it is unknown."""
        value = self.arrays.get(name)
        return value.astype(np.float64) if value is not None and value.dtype.kind == "f" else value

    def __contains__(self, name: object) -> bool:
        return name in self.arrays

    @property
    def num_rollouts(self) -> int:
        sizes = [len(value) for name, value in self.arrays.items() if not name.endswith("_T")]
        return sizes[0] if sizes else len(self.rollouts)

    @property
    def response_T(self) -> Array:
        """True at the tokens of responses, sampled or not."""
        segment_T, prompt_N = self.arrays["segment_T"], self.arrays["prompt_length_N"]
        start_N = np.searchsorted(segment_T, np.arange(self.num_rollouts))
        return np.arange(len(segment_T)) - start_N[segment_T] >= prompt_N[segment_T]

    @property
    def trained_T(self) -> Array:
        """True at the tokens of rollouts that are in this update."""
        micro_N, segment_T = self.arrays.get("microbatch_N"), self.arrays["segment_T"]
        return np.ones(len(segment_T), bool) if micro_N is None else micro_N[segment_T] >= 0


def bundle_of(stored: Any) -> Bundle:
    """Return a `train.skipped.StoredUpdate` as a bundle: every tensor of its minibatch under the name of its field.

    A prompt ends here before the first sampled token of the rollout: forced tokens at the beginning belong to it.
    """
    batch, settings = stored.minibatch, {**dataclasses.asdict(stored.settings), "max_logprob_gap": None}
    records = (batch, batch.packed)
    found = {each.name: getattr(record, each.name) for record in records for each in dataclasses.fields(record)}
    found |= {"policy_logp_T": stored.logp_T, "entropy_T": stored.entropy_T}
    arrays = {name: value.detach().cpu().numpy() for name, value in found.items() if hasattr(value, "detach")}
    segment_T, sampled_T = arrays["segment_T"], arrays["sampled_mask_T"]
    first_N = np.full(len(arrays["reward_N"]), len(segment_T))
    np.minimum.at(first_N, segment_T[sampled_T], arrays["position_T"][sampled_T])
    about = {"cause": stored.cause, "of": stored.of, "dtype": stored.dtype, "settings": settings}
    of_pairs = not {each.name for each in dataclasses.fields(stored.objective)} <= set(KEYS)  # it has more fields
    return Bundle(
        project="ansatz",
        version=__version__,
        step=stored.step,
        arrays={**arrays, "prompt_length_N": first_N},
        options={} if of_pairs else {"algorithm": spec_of(stored.objective)},
        expected=stored.expected,
        notes={**about, "stale_corrected": batch.stale_corrected, "updates_per_step": stored.updates_per_step},
    )


def spec_of(objective: Any) -> dict[str, Any]:
    """Return the `algorithm:` section that builds an objective: names and settings of its components."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(each) for each in cast("tuple[Any, ...]", value)]
        return {"name": value.name, **value.settings} if hasattr(value, "settings") else value

    names = [each.name for each in dataclasses.fields(objective) if each.name != "preset"]
    return {name: plain(getattr(objective, name)) for name in names}


def write_bundle(folder: Path, bundle: Bundle) -> None:
    """Write a bundle into an existing folder. bundle.json comes last, so readers refuse an interrupted write."""
    _check(bundle, str(folder))
    with open_draft(folder / ARRAYS) as file:
        file.write(save({name: np.ascontiguousarray(value) for name, value in bundle.arrays.items()}))
    arrays = {name: _about(value) for name, value in bundle.arrays.items()}
    about = {"format": FORMAT, "project": bundle.project, "version": bundle.version, "step": bundle.step}
    about |= {"options": bundle.options, "expected": bundle.expected, "notes": bundle.notes, "arrays": arrays}
    write_text(folder / TEXT, json.dumps({**about, "rollouts": list(bundle.rollouts)}, indent=1))


def read_bundle(folder: Path) -> Bundle:
    """Read a bundle. Raise DataError, in one sentence, for a folder that is none, and for an array that is not the one
    that was written."""
    try:
        about: Any = parse_json(_read(folder / TEXT, MAX_TEXT))
        arrays = cast("dict[str, Array]", load(_read(folder / ARRAYS, MAX_ARRAYS)))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(f"{folder} is not a step bundle ({error}). Expected {TEXT} and {ARRAYS} in it.") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        found = about.get("format") if isinstance(about, dict) else type(about).__name__
        raise DataError(f"{folder / TEXT}: format {found!r:.40}, expected {FORMAT}. Use the Ansatz that wrote it.")
    fields = cast("dict[str, Any]", about)
    stated = fields.get("arrays")
    if not isinstance(stated, dict) or set(stated) != set(arrays):
        raise DataError(f"{folder}: {TEXT} and {ARRAYS} name different arrays. Write the bundle again.")
    for name, value in arrays.items():
        if stated[name] != _about(value):
            raise DataError(
                f"{folder / ARRAYS}: {name} has another digest than {TEXT} says. It was changed or damaged."
            )
    kinds = {"project": str, "version": str, "step": int, "options": dict, "expected": dict, "notes": dict}
    for name, kind in {**kinds, "rollouts": list}.items():
        if not isinstance(fields.get(name), kind) or (name == "rollouts" and not _are_objects(fields[name])):
            raise DataError(f"{folder / TEXT}: {name} is {fields.get(name)!r:.40}, expected {kind.__name__}.")
    bundle = Bundle(**{name: fields[name] for name in (*kinds, "rollouts")}, arrays=arrays, path=str(folder))
    _check(bundle, str(folder))
    return bundle


def read_file(path: Path, limit: int, what: str) -> bytes:
    """Read a file of a limited size. Raise DataError if it cannot be read or is longer."""
    try:
        return _read(path, limit)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as {what} ({error}).") from error


def _read(path: Path, limit: int) -> bytes:
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path.name} has more than {limit >> 20} MiB")
    return data


def _are_objects(values: Sequence[object]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _about(value: Array) -> dict[str, Any]:
    value = np.ascontiguousarray(value)
    return {
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "sha256": hashlib.sha256(value.tobytes()).hexdigest(),
    }


def _check(bundle: Bundle, place: str) -> None:
    """Raise DataError for arrays whose names or shapes do not fit together."""
    sizes = dict[str, int]()
    if bundle.rollouts:
        sizes["N"] = len(bundle.rollouts)
    for name, value in bundle.arrays.items():
        axes = name.rpartition("_")[2]
        if not _NAME.match(name) or value.ndim != len(axes) or value.dtype.kind not in "biuf":
            raise DataError(
                f"{place}: the array {name!r:.80} has the shape {value.shape} and dtype {value.dtype}, expected "
                "numbers and a name that ends with its axes: _T, _N or _NK."
            )
        for axis, size in zip(axes, value.shape, strict=True):
            if size != sizes.setdefault(axis, size):
                raise DataError(f"{place}: {name} has {size} entries on axis {axis}, other arrays {sizes[axis]}.")
    segment_T, prompt_N = bundle.arrays.get("segment_T"), bundle.arrays.get("prompt_length_N")
    if "T" in sizes and (segment_T is None or prompt_N is None):
        raise DataError(f"{place}: arrays of tokens without segment_T and prompt_length_N, which say whose they are.")
    if segment_T is not None and "N" in sizes:
        ascending = segment_T.dtype.kind in "iu" and bool((np.diff(segment_T) >= 0).all()) and len(segment_T) > 0
        if not ascending or segment_T[0] < 0 or segment_T[-1] >= sizes["N"]:
            raise DataError(f"{place}: segment_T must be ascending numbers of rollouts from 0 to {sizes['N'] - 1}.")
    for name, low, high in (("prompt_length_N", 0, np.inf), ("microbatch_N", -1, sizes.get("T", np.inf))):
        value_N = bundle.arrays.get(name)
        if value_N is not None and (value_N.dtype.kind not in "iu" or ((value_N < low) | (value_N > high)).any()):
            raise DataError(f"{place}: {name} must be integers from {low} to {high}.")
