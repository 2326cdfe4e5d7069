"""Rejection sampling, as a stage of a recipe: sample responses, keep correct ones, and fine-tune on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from ansatz.config.fields import Count, Positive, Section, as_mapping
from ansatz.config.stage import SAMPLING_CAPS, StageDeclaration, over_caps
from ansatz.config.stages.core import SFT_CAPS, UPDATES, toy_steps


class RejectionSection(Section):
    """Rejection sampling, between SFT and RL: sample responses, keep correct ones, and fine-tune on them. null: no such
    stage."""

    model_config = ConfigDict(extra="allow")  # the settings of the selection, and sampling options

    rounds: Annotated[Positive, Field(le=1000)] = 1
    """Rounds of sampling and fine-tuning, at most 1000. Each writes its own folder."""
    teacher: str | None = None
    """The model to sample from (a folder or a hub name, as `model.path`). null: the policy at the start of the
    round."""
    template: str | None = None
    """The teacher's prompt template. null: `data.template`."""
    from_start: bool = False
    """Every round trains the model that the stage began with, instead of the policy of the round before."""
    problems: Count = 0
    """Problems per round, in the order of data.train and from the first again after the last; 0: all of them."""
    batch: Positive = 64
    """Problems sampled together; a kill loses at most one batch."""
    sft: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Keys of the recipe's `sft` section that are different for the fine-tuning of a round."""

    @model_validator(mode="after")
    def settings_have_an_effect(self) -> RejectionSection:
        if self.template is not None and self.teacher is None:
            raise ValueError(
                "template is the prompt template of the teacher and has no effect without rejection.teacher; leave it "
                "out, or name a teacher"
            )
        if self.from_start and self.rounds == 1:
            raise ValueError(
                "from_start has no effect with one round; leave it out, or set rejection.rounds to 2 or more"
            )
        return self

    @property
    def others(self) -> dict[str, Any]:
        """The given settings of the selection and the given sampling options, which are not fields."""
        return dict(self.model_extra or {})


def _toy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of a toy run to the fine-tuning of a round."""
    fine_tuning = over_caps(settings.get("sft"), SFT_CAPS) | toy_steps(as_mapping(settings.get("sft")))
    return {"sft": fine_tuning} if fine_tuning else {}


REJECTION = StageDeclaration(
    name="rejection",
    runs="ansatz.loop.stages.rejection:RejectionStage",
    section=RejectionSection,
    caps={"rounds": 2, **SAMPLING_CAPS},
    toy=_toy,
    models=("teacher",),
    reads=("sft", "data.train", "data.template", "rollout", "rewards", *UPDATES),
)
