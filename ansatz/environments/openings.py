"""The opening of a conversation: the text or messages that `reset` of an environment adds to the prompt.

The opening becomes a part of the problem, so that prompts, judges and stored responses all show the same conversation.
`meta["environment_opening"]` keeps the problem as it was before; `reset` gets that problem again for every response.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from ansatz.environments.base import EnvironmentSpec
from ansatz.environments.calls import EnvironmentCalls
from ansatz.environments.episode import Episode, at_once
from ansatz.environments.opened_problems import is_opened
from ansatz.errors import ConfigError
from ansatz.types import Problem


def with_openings(problems: Sequence[Problem], spec: EnvironmentSpec | None) -> list[Problem]:
    """Return the problems with the openings of their environment. Problems that have an opening are left as they are.

    An error in `reset` is not an error here: the prompt then has no opening, and every response gets the error (see
    `Episode`). Raise ConfigError if the environment opens with messages that the prompt template cannot show.
    """
    if spec is None or not spec.opens:
        return list(problems)
    new = [index for index, problem in enumerate(problems) if not is_opened(problem)]
    episodes = [Episode(spec, problems[index]) for index in new]
    if spec.sample.instant:
        openings = [at_once(episode.opened()) for episode in episodes]
    else:
        with closing(EnvironmentCalls(spec)) as calls:
            openings = calls.opened(episodes)
    shown = list(problems)
    for index, problem in zip(new, openings, strict=True):
        if spec.chat is None and len(problem.earlier_turns) > len(problems[index].earlier_turns):
            raise ConfigError(
                f"environment {spec.name!r} opens the conversation with messages, which only the prompt template chat "
                "can show. Set data.template to chat, or return a text from reset()."
            )
        shown[index] = problem
    return shown
