"""Preference optimisation, as a stage of a recipe: learn from pairs of a chosen and a rejected response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from ansatz.config.fields import Count, LearningRate, Positive, Section, as_mapping
from ansatz.config.stage import SAMPLING_CAPS, StageDeclaration, is_missing, over_caps
from ansatz.config.stages.core import UPDATES, SftSection

POLICY = "policy"
"""The source of pairs that are sampled from the policy at the start of the stage."""
_PROBLEMS = 8
"""Problems that a toy run samples pairs of."""


class PreferenceSection(Section):
    """Preference optimisation: learn from pairs of a chosen and a rejected response, with DPO and its relatives. null:
    no such stage. See [algorithms](algorithms.md#preferences)."""

    pairs: dict[str, Any] = Field(default_factory=lambda: {"source": POLICY})
    """{source: policy, ...} samples pairs from the policy at the start of the stage, {source: file, path: ...} reads
    them from a file, {source: hub, dataset: ...} from a data set; the settings are below."""
    losses: dict[str, dict[str, Any] | None] | None = None
    """The loss is the weighted sum of these, each with its settings and its `weight` (default 1.0). `likelihood` next
    to a preference loss keeps the chosen responses likely. null: {dpo: {}}."""
    divergence: dict[str, Any] = Field(default_factory=lambda: {"name": "reverse_kl"})
    """The f-divergence of the scores, by name; the names are listed below."""
    steps: Count = 0
    """Number of optimizer steps. 0: as many as `preference.epochs` takes."""
    epochs: Count = 1
    """Passes over the pairs, if `preference.steps` is 0."""
    batch_size: Positive = 32
    """Pairs in one step; with kto, labelled responses."""
    lr: LearningRate | None = None
    """Learning rate, after warm-up and before decay. null: 1e-6 with `model.path`, otherwise 1e-4."""
    warmup_steps: Count = 5
    """Steps of linear warm-up, from a learning rate near 0."""
    decay_steps: Count = 0
    """Steps of decay at the end, as `train.decay` says; 0: no decay."""

    @model_validator(mode="after")
    def teaches_something(self) -> PreferenceSection:
        if not self.steps and not self.epochs:
            raise ValueError("epochs = 0 with steps = 0 teaches nothing; set one of them to 1 or more")
        return self

    def schedule(self, *, num_pairs: int, is_built: bool) -> SftSection:
        """Return the learning rate, the schedule and the number of steps on that many pairs.

        is_built: whether the model is built with random weights instead of loaded.
        """
        lr = self.lr if self.lr is not None else (1e-4 if is_built else 1e-6)
        return SftSection(
            steps=self.steps,
            epochs=0 if self.steps else self.epochs,
            batch_size=self.batch_size,
            lr=lr,
            warmup_steps=self.warmup_steps,
            decay_steps=self.decay_steps,
        ).with_steps(num_pairs)


def _toy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of a toy run to the pairs. The policy's pairs replace pairs of the hub."""
    given = as_mapping(settings.get("pairs"))
    if is_missing(given):
        return {"pairs": {**dict.fromkeys(given), "source": POLICY, "problems": _PROBLEMS}}
    pairs = over_caps(given, {**SAMPLING_CAPS, "problems": _PROBLEMS})
    return {"pairs": pairs} if pairs else {}


def _learns_from_given(settings: Mapping[str, Any]) -> bool:
    return as_mapping(settings.get("pairs")).get("source") not in (None, POLICY)


PREFERENCE = StageDeclaration(
    name="preference",
    runs="ansatz.loop.stages.preference:PreferenceStage",
    section=PreferenceSection,
    caps={"steps": 3, "epochs": 1, "batch_size": 8, "warmup_steps": 1, "decay_steps": 1},
    toy=_toy,
    learns_from_given=_learns_from_given,
    reads=("data.train", "data.template", "rollout", "rewards", *UPDATES),
)
