"""Language consistency: the share of a response's words that are in the target language.

DeepSeek-R1 pays it against mixed languages (arXiv:2501.12948 sec. 2.3.2) and says no more than that. Here: code,
mathematics and tags are left out; words are gathered by writing system, for a Chinese word in an English sentence must
not vanish in it, then in windows of sentences, for a detector errs on single words; each window is in one language.
"""

from __future__ import annotations

import copy
import functools
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.errors import ConfigError, MissingExtraError
from ansatz.registry import suggest
from ansatz.rewards.base import RewardResult
from ansatz.rewards.prose import prose_only, sentences, words
from ansatz.types import Rollout

AMONG = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "pt", "ru", "th", "vi", "zh")
_WINDOW_WORDS = 12
_DOUBT = 0.25
"""A window counts for the target where it is this share as likely as the likeliest language, or more: short and formal
text is often undecided, and doubt is no offence."""
_EAST_ASIAN = ("HIRAGANA", "KATAKANA", "BOPOMOFO")

Likelihoods = Callable[[str], dict[str, float]]


def language(
    rollouts: Sequence[Rollout], *, target: str = "en", among: Sequence[str] = AMONG, empty: float = 1.0
) -> list[RewardResult]:
    """The share of words in the target language, in [0, 1]; `empty` for a response without words.

    target: ISO 639-1, such as en or zh. among: the languages that are told apart; the fewer, the surer. Where writing
    has no blanks between words, each character counts as one. MissingExtraError where the detector is not installed.
    """
    detect = detector(tuple(sorted({target, *among})))
    return [RewardResult(value=share(rollout.text, target, detect, empty=empty)) for rollout in rollouts]


def share(text: str, target: str, detect: Likelihoods, *, empty: float = 1.0) -> float:
    """The share of the text's words that stand in windows of the target language."""
    counts = {True: 0, False: 0}
    for window in windows(text):
        likely = detect(" ".join(window))
        counts[likely[target] >= _DOUBT * max(likely.values())] += len(window)
    total = counts[True] + counts[False]
    return counts[True] / total if total else empty


def windows(text: str) -> list[list[str]]:
    """The words of the prose, in windows of one writing system: whole sentences, together at least 12 words.

    What is left at the end of a writing system's words joins the window before, or is one of its own.
    """
    gathered: dict[str, list[list[str]]] = {}
    for sentence in sentences(prose_only(text)):
        parts: dict[str, list[str]] = {}
        for word in words(sentence):
            parts.setdefault(_writing(word[0]), []).append(word)
        for writing, part in parts.items():
            made = gathered.setdefault(writing, [])
            if made and len(made[-1]) < _WINDOW_WORDS:
                made[-1] += part
            else:
                made.append(part)
    for made in gathered.values():
        if len(made) > 1 and len(made[-1]) < _WINDOW_WORDS:
            short = made.pop()
            made[-1] += short
    return [window for made in gathered.values() for window in made]


@functools.lru_cache(maxsize=4096)
def _writing(letter: str) -> str:
    """The letter's writing system by its Unicode name; Japanese mixes three, and they are one here."""
    first = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return "CJK" if first in _EAST_ASIAN else first


@functools.cache
def detector(languages: tuple[str, ...]) -> Likelihoods:
    """From a text to the probability of each of the languages."""
    identifier = copy.copy(_identifier())  # the languages are state of the copy; the model behind it is shared
    for code in languages:
        if code not in identifier.labels:
            raise ConfigError(f"rewards.language: the language {code!r} is unknown.{suggest(code, identifier.labels)}")
    identifier.set_languages(languages)
    return lambda text: dict(identifier.rank(text))


@functools.cache
def _identifier() -> Any:
    """py3langid's, for all its languages; its model comes with the package."""
    try:
        from py3langid import langid  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "rewards.language needs the package py3langid, which is not installed. Install it with: "
            "pip install 'ansatz-rl[language]'."
        ) from error
    untyped: Any = langid
    return untyped.LanguageIdentifier.from_model_file(untyped.MODEL_FILE, norm_probs=True)
