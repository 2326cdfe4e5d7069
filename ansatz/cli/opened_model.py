"""A model that a command samples from: its policy, its prompt template, and the engine that samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansatz.cli.sampling_options import NONE, ModelSampling
from ansatz.config.chat import AUTO, ChatTemplate, FewShotTemplate, Template
from ansatz.config.load import parse_section, parse_yaml
from ansatz.errors import ConfigError
from ansatz.hub import model_folder
from ansatz.loop.run_record import is_run_folder
from ansatz.trust import trusted
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.environments.base import EnvironmentSpec
    from ansatz.models.load import Policy
    from ansatz.rollout.base import Sampler
    from ansatz.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """path: the folder, or name on the hub, that the user gave; of a run, its final model. template: the chosen one,
    never `auto`. environment: as the section of a recipe; None without one. spec: the environment that this section
    names. threads: CPU threads that the policy uses.
    """

    path: Path
    policy: Policy
    sampler: Sampler
    template: Template
    environment: Mapping[str, Any] | None
    spec: EnvironmentSpec | None
    threads: int
    engine: str

    def with_openings(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return the problems with the openings of their environments."""
        from ansatz.environments.openings import with_openings

        return with_openings(problems, self.spec)

    def sampler_for(self, sampling: ModelSampling) -> Sampler:
        """Return the sampler, or one that makes thoughts go on up to `min_thinking_budget`. Raise ConfigError for an
        environment with it."""
        from ansatz.rollout.longer_thoughts import LongerThoughts

        if (budget := sampling.min_thinking_budget) == 0:
            return self.sampler
        if self.spec is not None:
            raise ConfigError("--min-thinking-budget needs responses of one turn: give --environment none with it.")
        end_ids, tokenizer = self.policy.end_ids, self.policy.tokenizer
        return LongerThoughts(self.sampler, tokenizer, end_ids=end_ids, budget=budget, wait=sampling.wait)

    def settings(self) -> dict[str, Any]:
        """Return the settings that say where and how the responses were computed."""
        return {
            "device": self.policy.device.type,
            "dtype": str(self.policy.dtype).removeprefix("torch."),
            "threads": self.threads,
            **({} if self.engine == "native" else {"engine": self.engine}),
            **({} if self.environment is None else {"environment": self.environment}),
        }


def check_model(model: Path) -> None:
    """Raise ModelError for a path that is neither a run nor a model. Call this before the imports that load models,
    because they take seconds."""
    if not is_run_folder(model):
        model_folder(model)


@contextmanager
def open_model(model: Path, sampling: ModelSampling, *, evaluates: bool = False) -> Iterator[OpenedModel]:
    """Yield the model in the precision and on the device of the options, until the block ends. Of a run, its final
    model. evaluates: see `choose_template`."""
    check_model(model)

    from ansatz.environments.base import bind_environment, prompt_template
    from ansatz.loop.model_recipe import choose_template
    from ansatz.loop.run_models import model_of
    from ansatz.models.load import cast, compute_dtype, load_policy
    from ansatz.models.threads import set_threads, usable_cores
    from ansatz.rollout.engines import engine_of

    threads = sampling.threads or usable_cores()
    set_threads(threads)
    run, model = model, model_of(model, trust_code=sampling.trust_code)
    if model != run:
        say(f"model: {model} (the final one of the run {run.resolve().name})")
    policy = load_policy(model, device=sampling.device)
    if policy.text_part:
        say(policy.text_part)
    cast(policy, compute_dtype(sampling.dtype, policy.device))
    template = template_of(sampling.template)
    if template == AUTO:
        has_chat_template = bool(policy.tokenizer.chat_template)
        template, why = choose_template(
            Path(policy.path),
            has_chat_template=has_chat_template,
            evaluates=evaluates,
            trust_code=sampling.trust_code,
        )
        say(f"template: {template} ({why})")
    section = environment_of(sampling.environment, Path(policy.path), trust_code=sampling.trust_code)
    num_responses = sampling.batch * sampling.options.samples_per_prompt
    engine = {"name": sampling.engine, "max_concurrent": num_responses}
    environment = bind_environment(section, template=template)
    template = prompt_template(template, environment)
    make_sampler = engine_of(engine) if environment is None else engine_of(engine, environment)
    with closing(make_sampler(policy)) as sampler:
        yield OpenedModel(
            path=model,
            policy=policy,
            sampler=sampler,
            template=template,
            environment=section,
            spec=environment,
            threads=threads,
            engine=sampling.engine,
        )


def environment_of(text: str, model: Path, *, trust_code: bool | None = None) -> Mapping[str, Any] | None:
    """Return the section `environment` that the value of --environment stands for; None without an environment.

    The value is a name, a section as in a recipe, `auto` for the environment of the run that the model comes from, or
    `none`. trust_code: see `recipe_of`.

    Raise ConfigError for a value that is none of these. Whether the environment exists is checked where it is bound.
    """
    from ansatz.loop.model_recipe import recipe_of

    if text == NONE:
        return None
    if text == AUTO:
        recipe = recipe_of(model, option="--environment", trust_code=trust_code)
        if recipe is None or recipe.config.environment is None:
            return None
        say(f"environment: {recipe.config.environment.get('name')} (as in {recipe.where})")
        return recipe.config.environment
    if not text.startswith("{"):
        return trusted({"name": text})
    section = trusted(parse_yaml(text, where="the value of --environment"))
    if not isinstance(section, Mapping):
        raise ConfigError(
            f"--environment {text}: expected a name, or a section such as {{name: calculator, turns: 4}}."
        )
    return section


def template_of(text: str) -> Template:
    """Return the value of --template: a name, a .txt file, or {name: chat, system: ..., arguments: ...} as in a recipe.

    Raise ConfigError for a mapping that a recipe would not take either.
    """
    if not text.startswith("{"):
        return text
    value = parse_yaml(text, where="the value of --template")
    is_chat = not isinstance(value, Mapping) or value.get("name", "chat") == "chat"
    return parse_section(ChatTemplate if is_chat else FewShotTemplate, value, name="--template")
