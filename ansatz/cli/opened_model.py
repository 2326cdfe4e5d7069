"""A model that a command samples from: its policy, its prompt template, and the engine that samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansatz.cli.sampling_options import ModelSampling
from ansatz.config.chat import AUTO, ChatTemplate, Template

if TYPE_CHECKING:
    from ansatz.models.load import Policy
    from ansatz.rollout.base import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """path: the folder, or name on the hub, that the user gave. template: the chosen one, never `auto`. threads: CPU
    threads that the policy uses."""

    path: Path
    policy: Policy
    sampler: Sampler
    template: Template
    threads: int
    engine: str

    def settings(self) -> dict[str, Any]:
        """The settings that say on what the responses were computed."""
        return {
            "device": self.policy.device.type,
            "dtype": str(self.policy.dtype).removeprefix("torch."),
            "threads": self.threads,
            **({} if self.engine == "native" else {"engine": self.engine}),
        }


@contextmanager
def open_model(model: Path, sampling: ModelSampling) -> Iterator[OpenedModel]:
    """The model in the precision and on the device of the options, until the block ends."""
    from ansatz.loop.template_choice import choose_template
    from ansatz.models.load import cast, compute_dtype, load_policy
    from ansatz.models.threads import set_threads, usable_cores
    from ansatz.rollout.engines import engine_of

    threads = sampling.threads or usable_cores()
    set_threads(threads)
    policy = load_policy(model, device=sampling.device)
    cast(policy, compute_dtype(sampling.dtype, policy.device))
    template = template_of(sampling.template)
    if template == AUTO:
        template, why = choose_template(Path(policy.path), has_chat_template=bool(policy.tokenizer.chat_template))
        print(f"template: {template} ({why})")
    num_responses = sampling.batch * sampling.options.samples_per_prompt
    sampler = engine_of({"name": sampling.engine, "max_concurrent": num_responses})(policy)
    try:
        yield OpenedModel(
            path=model, policy=policy, sampler=sampler, template=template, threads=threads, engine=sampling.engine
        )
    finally:
        sampler.close()


def template_of(text: str) -> Template:
    """The value of --template: a name, a .txt file, or {name: chat, system: ..., arguments: ...} as in a recipe.

    ConfigError for a mapping that a recipe would not take either.
    """
    from ansatz.config.load import parse_section, parse_yaml

    if not text.startswith("{"):
        return text
    value = parse_yaml(text, where="the value of --template")
    return parse_section(ChatTemplate, value, name="--template")
