"""The definition of an environment, and how a recipe's name finds one.

An environment talks with the policy in turns. The policy samples a turn, the environment reads its text and answers
with an observation, and the policy continues after it, until the environment says that the response is done. A recipe
names it as `environment: {name: calculator, turns: 4, timeout_s: 5, ...settings}`. It is found by name: the module
`ansatz/environments/<name>.py` holds a function or class `<name>`, whose keyword-only parameters are the settings. A
name with a colon refers to the user's own code: `path/to/file.py:Name` or `package.module:Name`.

Without a journal, a response can be sampled again with the same result only if the environment is pure: its answers
depend on nothing but the problem and the turns. The answers of any other environment are kept with the response, whose
tokens are the journal: a resumed response is not answered again, and the ledger of a run holds whole responses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ansatz.config.chat import AUTO, ChatTemplate, Template
from ansatz.config.fields import Positive
from ansatz.errors import AnsatzError, ConfigError
from ansatz.prompts.templates import CHAT
from ansatz.registry import bind, check_required, find_in_package, names_in_package, settings_of
from ansatz.types import Problem

Message = Mapping[str, Any]
"""A turn of a conversation: role and content, and of a tool also name and tool_call_id."""
Observation = str | Sequence[Message]


class Environment:
    """The environment that one response interacts with. Responses never share one. Subclass it, and write `step`.

    All methods may be plain or `async`. Plain methods run in threads, so that none delays another response. An `async`
    method must not block. Every call has the deadline `timeout_s` of the recipe. A call of `step` that raises or misses
    its deadline gives the observation `show("error: ...")`; after a missed deadline the environment is started anew.

    turn_ends: strings that end a turn of the policy. An end-of-sequence token always ends one.
    tools: JSON schemas of the functions that the policy can call, for the prompt. They need the prompt template `chat`.
    roles: of the messages that `step` gives, such as "tool". They need the prompt template `chat`.
    open_turn: when `reward` is called, the text of a last turn that `step` has not been given, because the length limit
        or a stop string ended the response within it; empty otherwise.
    opens: `reset` may return an opening, so it is called once for every prompt. False: it never does.
    instant: the methods are plain and return at once, so they run in the thread that samples.
    parallel: how many calls may run at the same time, over all responses.
    grace_s: time beyond `timeout_s` that a call gets, for an environment that keeps the deadline itself.
    """

    turn_ends: Sequence[str] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    roles: Sequence[str] = ()
    open_turn: str = ""
    opens: bool = True
    instant: bool = False
    parallel: int = 256
    grace_s: float = 0.0

    def reset(self, problem: Problem) -> Any:
        """Start with a problem. Returns the opening of the conversation, which becomes a part of the prompt, or None.

        A text is shown on a new line after the question. A list of messages, {role, content} each, is shown before the
        question (template `chat` only); if the last one is a user's, it is shown instead of the question. The opening
        must depend on nothing but the problem: all responses to a prompt share it.
        """

    def step(self, response: str) -> Any:
        """Return the observation after a turn with this text (special tokens included). None or "": the response is
        done.

        An observation is a text, which continues the response as it is, or a list of messages, {role, content} each,
        which the chat template renders as the next turns of the conversation.
        """
        raise NotImplementedError

    def show(self, observation: str) -> Observation:
        """Return how a text looks to the policy, after it has been cut to `max_observation_chars`. It can be a
        message."""
        return observation

    def reward(self) -> Any:
        """Return the reward of the response, which the recipe's reward `environment` uses. Called once, when it has
        ended.

        A number in [0, 1] or a RewardResult. None: the other rewards of the recipe decide. An error, a missed deadline
        and any other value are a verdict of their own (crashed or timeout), with the environment as its owner.
        """
        return None

    def close(self) -> None:
        """Release the resources of the environment. Called once, when the response has ended."""


def is_overridden(method: Callable[..., Any]) -> bool:
    """Return whether a bound method of an environment is not the one of `Environment`, which does nothing."""
    return getattr(method, "__func__", None) not in (Environment.reset, Environment.reward, Environment.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The settings that every environment has in a recipe, besides its name and its own.

    turns: most turns of the policy in a response; the last one gets no observation.
    timeout_s: seconds that one call of the environment may take; after that the observation is an error.
    max_observation_chars: a longer observation is cut in the middle.
    """

    turns: Positive = 4
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0
    max_observation_chars: Positive = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """An environment as a recipe names it. make: creates the environment of one response.

    sample: an environment that is never started, for the attributes that all share.
    chat: the chat template that renders prompts with the tools of the environment; None for other templates.
    """

    name: str
    make: Callable[[], Environment]
    settings: TurnSettings
    sample: Environment
    chat: ChatTemplate | None = None

    @property
    def rewards(self) -> bool:
        """Return whether the environment rewards responses."""
        return is_overridden(self.sample.reward)

    @property
    def opens(self) -> bool:
        """Return whether the environment may open the conversation."""
        return self.sample.opens and is_overridden(self.sample.reset)


def environment_names() -> list[str]:
    """Return the environments of this package: every module that holds a function or class with the name of the
    module."""
    return names_in_package("ansatz.environments")


def find_environment(name: str) -> Callable[..., Environment]:
    """Return the function or class with this name. Raise ConfigError for an unknown name, with the nearest known
    one."""
    return find_in_package("ansatz.environments", name, kind="environment")


def bind_environment(section: Mapping[str, Any] | None, *, template: Template = AUTO) -> EnvironmentSpec | None:
    """Return the environment that a recipe's section `environment` names; None without one. template: of the prompts.

    Raise ConfigError for an unknown name, for an unknown, missing or wrong setting, for an environment that cannot run
    here, and for an environment that needs the template chat with another one.
    """
    if section is None:
        return None
    settings = dict(section)
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(
            f"environment.name = {name!r}: expected one of: {', '.join(environment_names())}, or file.py:Name."
        )
    common = {key: settings.pop(key) for key in settings_of(TurnSettings) if key in settings}
    function, what = find_environment(name), f"environment {name!r}"
    check_required(function, (*settings, *common), what=what)
    turns = bind(TurnSettings, common, what="environment")()
    settings |= {key: getattr(turns, key) for key in settings_of(TurnSettings) if key in settings_of(function)}
    make = bind(function, settings, what=what)
    try:
        sample = make()
    except AnsatzError:
        raise
    except Exception as error:  # code of a user can raise anything
        raise ConfigError(f"{what} cannot be created ({type(error).__name__}: {error}). Correct it.") from error
    if not isinstance(sample, Environment):
        raise ConfigError(f"{what} gives {sample!r:.60}, which is not an ansatz.environments.Environment. Subclass it.")
    chat = _chat_template(name, sample, template)
    return EnvironmentSpec(name=name, make=make, settings=turns, sample=sample, chat=chat)


def _chat_template(name: str, sample: Environment, template: Template) -> ChatTemplate | None:
    """Return the chat template with the tools of the environment; None if prompts have another template."""
    if isinstance(template, ChatTemplate) or template in (CHAT, AUTO):
        chat = template if isinstance(template, ChatTemplate) else ChatTemplate(name="chat")
        return chat.model_copy(update={"tools": [*map(dict, sample.tools), *chat.tools]})
    if sample.tools or sample.roles:
        raise ConfigError(
            f"environment {name!r} talks in messages, which the prompt template {template!r} cannot show. Set "
            "data.template to chat, or use an environment whose tools are called in tags."
        )
    return None


def prompt_template(template: Template, spec: EnvironmentSpec | None) -> Template:
    """Return the prompt template of a recipe, with the tools of its environment."""
    return spec.chat if spec is not None and spec.chat is not None and spec.sample.tools else template


def check_environment_reward(rewards: Collection[str], spec: EnvironmentSpec | None) -> None:
    """Raise ConfigError if the recipe names the reward `environment`, and nothing can give it. rewards: their names."""
    if "environment" not in rewards or (spec is not None and spec.rewards):
        return
    if spec is None:
        raise ConfigError(
            "rewards.environment is the reward that an environment gives, but no environment is set. Set "
            "environment.name, or remove rewards.environment."
        )
    raise ConfigError(
        f"rewards.environment: the environment {spec.name!r} gives no reward. Give it a method `reward`, or use "
        "another reward, such as math_answer."
    )
