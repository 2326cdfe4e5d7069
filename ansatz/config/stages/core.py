"""The stages of every recipe: problems and model at the start of a run, SFT and RL.

The sections of RL are `rollout`, `algorithm` and `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ansatz.config.fields import Count, LearningRate, Positive
from ansatz.config.schema import Config, ScheduleSection
from ansatz.config.stage import StageDeclaration


class SftSection(ScheduleSection):
    """Supervised fine-tuning on the worked solutions of `data.sft`. The optimizer, the clipping of gradients and the
    microbatches are taken from `train`."""

    steps: Count = 350
    """Number of optimizer steps. 0: no SFT stage."""
    epochs: Count = 0
    """Passes over the demonstrations, instead of `sft.steps`: as many steps as it takes to see each demonstration
    that often, the last step filled up from another pass. 0: the stage makes `sft.steps` steps."""
    batch_size: Positive = 64
    """Demonstrations in one step."""
    objective: Literal["response", "text"] = "response"
    """response: the responses of demonstrations are taught. text: every token of plain texts ([source
    text](settings_data.md#text)), packed into blocks as long as the context; `batch_size` then counts blocks."""
    responses: Literal["last", "all"] = "last"
    """Responses of a conversation that are taught. last: the response to the last question; earlier ones are context.
    all: every response to a user or a tool, in one pass over the conversation, and no token of the other turns. A chat
    template that renders earlier responses differently, for example without their thoughts, is refused."""
    weights: Literal["token", "sequence"] = "token"
    """Unit of equal weight in the loss of a step. token: every response token, so long demonstrations count for more.
    sequence: every demonstration, whatever its length."""
    heldout_every: Count = 0
    """Every N steps and after the last, measure loss and token accuracy on the worked solutions of the problems of
    `data.heldout` that the evaluations use. 0: never."""
    lr: LearningRate = 2e-3
    """Learning rate, after warm-up and before decay. Default with `model.path`: 1e-5."""
    warmup_steps: Count = 20
    """Steps of linear warm-up, from a learning rate near 0."""
    decay_steps: Count = 0
    """Steps of decay at the end, as `train.decay` says; 0: no decay."""

    @property
    def trains(self) -> bool:
        return self.steps > 0 or self.epochs > 0

    def with_steps(self, num_demonstrations: int) -> SftSection:
        """Return the section with the number of steps that `epochs` takes on that many demonstrations."""
        if self.epochs == 0:
            return self
        return self.model_copy(update={"steps": -(-self.epochs * num_demonstrations // self.batch_size)})


UPDATES = ("train.decay", "train.optimizer", "train.max_grad_norm", "train.tokens_per_microbatch")
"""The keys of `train` that stages besides RL read."""
SFT_CAPS = {"steps": 3, "epochs": 0, "heldout_every": 0, "batch_size": 8, "warmup_steps": 1, "decay_steps": 1}
"""The caps also apply to the fine-tuning of other stages."""


def _has_sft(config: Config) -> bool:
    return config.data.sft is not None and config.section(SftSection).trains


def _always(settings: Any) -> bool:
    return True


def toy_steps(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return the steps of a toy run's fine-tuning if its settings say epochs, which `SFT_CAPS` takes away."""
    return {"steps": SFT_CAPS["steps"]} if settings.get("epochs") else {}


SFT = StageDeclaration(
    name="sft",
    runs="ansatz.loop.stages.sft:SftStage",
    section=SftSection,
    optional=False,
    works=_has_sft,
    needs="data.sft and sft.steps or sft.epochs above 0",
    caps=SFT_CAPS,
    toy=toy_steps,
    own_model={"lr": 1e-5},
    learns_from_given=_always,
    reads=("data.sft", "data.template", "rollout", *UPDATES),
)


def _has_rl(config: Config) -> bool:
    return config.train.steps > 0


PROBLEMS = StageDeclaration(name="problems", runs="ansatz.loop.stages.problems:ProblemsStage", works=_always)
MODEL = StageDeclaration(name="model", runs="ansatz.loop.stages.model:ModelStage", works=_always)
RL = StageDeclaration(
    name="rl",
    runs="ansatz.loop.stages.rl:RlStage",
    works=_has_rl,
    needs="train.steps above 0",
    variants={"teacher": "ansatz.teachers.stage:TaughtRlStage"},
    reads=(
        *("data.train", "data.template", "data.curriculum"),
        *("rollout", "algorithm", "teacher", "train", "rewards", "watchdog"),
    ),
)
