"""Language consistency: the fraction of a response's words that are in the target language.

DeepSeek-R1 pays this against mixed languages (arXiv:2501.12948, sec. 2.3.2) and gives no details. Here, code,
mathematics and tags are left out. Words are grouped by writing system, so that a Chinese word in an English sentence
does not vanish in it, and then into windows of sentences, because the detector is unreliable on single words. Each
window counts as one language.
"""

from __future__ import annotations

import copy
import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from ansatz.errors import ConfigError, MissingExtraError, install_command
from ansatz.registry import suggest
from ansatz.rewards.base import RewardResult
from ansatz.types import Rollout

AMONG = ("ar", "de", "en", "es", "fr", "hi", "it", "ja", "ko", "pt", "ru", "th", "vi", "zh")
_WINDOW_WORDS = 12
_MIN_RELATIVE_LIKELIHOOD = 0.25
"""A window counts as the target language if that is at least this likely relative to the most likely language. Short
and formal text is often undecided, and is not punished."""
_EAST_ASIAN = ("HIRAGANA", "KATAKANA", "BOPOMOFO")

Likelihoods = Callable[[str], dict[str, float]]


def language(
    rollouts: Sequence[Rollout], *, target: str = "en", among: Sequence[str] = AMONG, empty: float = 1.0
) -> list[RewardResult]:
    """Return the fraction of words in the target language, in [0, 1]; `empty` for a response without words.

    target: ISO 639-1, such as en or zh. among: the languages to distinguish; fewer languages give more reliable
    results. In scripts without spaces between words, each character counts as a word. Raise MissingExtraError if the
    detector is not installed.
    """
    detect = detector(tuple(sorted({target, *among})))
    return [RewardResult(value=language_frac(rollout.said, target, detect, empty=empty)) for rollout in rollouts]


def language_frac(text: str, target: str, detect: Likelihoods, *, empty: float = 1.0) -> float:
    """Return the fraction of the text's words that are in windows of the target language."""
    counts = {True: 0, False: 0}
    for window in windows(text):
        likelihoods = detect(" ".join(window))
        counts[likelihoods[target] >= _MIN_RELATIVE_LIKELIHOOD * max(likelihoods.values())] += len(window)
    total = counts[True] + counts[False]
    return counts[True] / total if total else empty


def windows(text: str) -> list[list[str]]:
    """Return the words of the prose in windows of one writing system: whole sentences, at least 12 words together.

    The remaining words of a writing system join its previous window, or form a window if there is none.
    """
    by_writing: dict[str, list[list[str]]] = {}
    for sentence in sentences(prose_only(text)):
        parts: dict[str, list[str]] = {}
        for word in words(sentence):
            parts.setdefault(_writing(word[0]), []).append(word)
        for writing, part in parts.items():
            filled = by_writing.setdefault(writing, [])
            if filled and len(filled[-1]) < _WINDOW_WORDS:
                filled[-1] += part
            else:
                filled.append(part)
    for filled in by_writing.values():
        if len(filled) > 1 and len(filled[-1]) < _WINDOW_WORDS:
            short = filled.pop()
            filled[-1] += short
    return [window for filled in by_writing.values() for window in filled]


@functools.lru_cache(maxsize=4096)
def _writing(letter: str) -> str:
    """Return the letter's writing system by its Unicode name. The three scripts of Japanese count as one."""
    first = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return "CJK" if first in _EAST_ASIAN else first


@functools.cache
def detector(languages: tuple[str, ...]) -> Likelihoods:
    """Return a function from a text to the probability of each of the languages."""
    identifier = copy.copy(_identifier())  # the languages are state of the copy; the model behind it is shared
    for code in languages:
        if code not in identifier.labels:
            raise ConfigError(f"rewards.language: the language {code!r} is unknown.{suggest(code, identifier.labels)}")
    identifier.set_languages(languages)
    return lambda text: dict(identifier.rank(text))


@functools.cache
def _identifier() -> Any:
    """Return the identifier of py3langid for all its languages. Its model is part of the package."""
    try:
        from py3langid import langid  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "rewards.language needs the package py3langid, which is not installed. Install it with: "
            + install_command("language")
        ) from error
    untyped: Any = langid
    return untyped.LanguageIdentifier.from_model_file(untyped.MODEL_FILE, norm_probs=True)


# Each alternative starts at its opening and stops at the first closing, at the next opening or at a bound: linear time
# on hostile text. Without the stop at an opening, each of many openings would look at all characters up to the bound.
_CODE = re.compile(r"```.{0,20000}?(?:```|\Z)|`[^`\n]{1,500}`", re.DOTALL)
_MATHEMATICS = re.compile(
    r"\\begin\{([a-z]{1,20}\*?)\}(?:(?!\\begin\{\1\}).){0,2000}?\\end\{\1\}"
    r"|\$\$.{0,2000}?\$\$|\\\[(?:(?!\\\[).){0,2000}?\\\]|\\\((?:(?!\\\().){0,1000}?\\\)"
    r"|(?<!\\)\$(?=\S)[^$\n]{0,500}?(?<=[^\s\\])\$(?!\d)"  # `$5 and $6` is money
    r"|\\(?:boxed|fbox)\{[^{}]{0,500}(?:\{[^{}]{0,200}\}[^{}]{0,200}){0,10}\}",
    re.DOTALL,
)
_TAG = re.compile(r"</?[A-Za-z_]{1,20}>|<\|[^|<>]{1,40}\|>")
_COMMAND = re.compile(r"\\[A-Za-z]{1,30}")
_SENTENCE = re.compile(r"[.!?;:\n。！？；：]+")
_MARKS = r"\u0300-\u036f\u0900-\u0dff"  # accents and vowel signs, which are part of a word
_UNSPACED = (
    r"\u3040-\u30ff"  # hiragana, katakana
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Chinese characters
    r"\u0e00-\u0eff"  # Thai, Lao
    r"\u1780-\u17ff\u1000-\u109f"  # Khmer, Burmese
)
_UNIT = re.compile(rf"[{_UNSPACED}]|(?:[^\W\d_{_UNSPACED}]|[{_MARKS}]){{2,}}")


def prose_only(text: str) -> str:
    """Return the text without fenced and inline code, formulas, boxes, LaTeX commands and tags; each becomes a
    space."""
    for pattern in (_CODE, _MATHEMATICS, _TAG, _COMMAND):
        text = pattern.sub(" ", text)
    return text


def sentences(text: str) -> list[str]:
    """Return the text, split at the ends of sentences and lines, without empty parts."""
    return [piece.strip() for piece in _SENTENCE.split(text) if piece.strip()]


def words(text: str) -> list[str]:
    """Return the words of at least two letters (a single letter is often a variable). In scripts without spaces between
    words, such as Chinese, each character is a word."""
    return _UNIT.findall(text)
