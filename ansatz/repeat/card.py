"""card.json: the recipe of a run, the digests of its inputs, and the chain of digests of its steps.

A card is a file of somebody else: its recipe may not name code or files of this machine unless the user allows it
(`config_of`). Its size, its values and the responses in it are checked before anything is made from them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ansatz import __version__
from ansatz.config.fields import as_mapping
from ansatz.config.layers import laid_over
from ansatz.config.load import check, override_layer, parse_yaml
from ansatz.config.paths import can_be_place
from ansatz.config.schema import Config, flat_keys
from ansatz.errors import ConfigError, DataError
from ansatz.files import is_special, write_text
from ansatz.json_text import read_object
from ansatz.links import list_folders, read_text
from ansatz.loop.chain import CHAIN_FILE, TRACED_SAMPLES, TRACED_TOKENS
from ansatz.loop.held_run import read_digests
from ansatz.loop.run_record import read_record
from ansatz.loop.stages.plan import folder_names
from ansatz.registry import suggest
from ansatz.track.jsonl import read_jsonl
from ansatz.trust import TrustedText, is_signed

CARD_FILE = "card.json"
MAX_BYTES = 64 * 2**20
"""Of a card that is read. A step takes 50 kB at most, and a tenth of that in a stage of 1,000 steps."""
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "ray", "vllm", "triton")

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Trace(_Part):
    """Marks of the responses of a step, as in `loop.chain`. lengths: tokens of the first responses, which `tokens`
    has a mark of; logps: log-probs of the first of these tokens. The other texts are bytes in base64."""

    samples: Annotated[str, Field(max_length=2 * TRACED_SAMPLES)]
    lengths: list[Annotated[int, Field(ge=0, le=TRACED_TOKENS)]] = Field(max_length=TRACED_SAMPLES)
    tokens: Annotated[str, Field(max_length=2 * TRACED_TOKENS)]
    logps: Annotated[str, Field(max_length=8 * TRACED_TOKENS)] | None = None

    def marks(self) -> bytes:
        """Return the mark of each response."""
        return base64.b64decode(self.samples, validate=True)

    def responses(self) -> list[tuple[bytes, list[float]]]:
        """Return the marks of the tokens and the log-probs of each traced response, as far as there are log-probs.

        Raise ValueError if there are not as many as the lengths say.
        """
        total, tokens = sum(self.lengths), base64.b64decode(self.tokens, validate=True)
        raw = base64.b64decode(self.logps or "", validate=True)
        if len(tokens) != total or len(raw) > 4 * total or len(raw) % 4:
            raise ValueError(f"a trace of {total} tokens has {len(tokens)} marks and {len(raw)} bytes of log-probs")
        logps, starts = np.frombuffer(raw, "<f4").tolist(), [0, *accumulate(self.lengths)]
        return [(tokens[start:end], logps[start:end]) for start, end in pairwise(starts)]


class Step(_Part):
    """The digests of a step, as in `loop.chain`; None where there is none. arithmetic: where a process begins."""

    step: Annotated[int, Field(ge=0, le=10**9)]
    arithmetic: dict[str, Any] | None = None
    rollouts: Digest | None = None
    logps: Digest | None = None
    weights: Digest | None = None
    trace: Trace | None = None


class Card(_Part):
    """The content of a card.

    packages: versions. data: SHA-256 by path within the run, of its problems and of the model that it built. code:
    SHA-256 by path of the user's own files and models. num_changes: changes of the recipe that a resumed run has
    accepted. signatures: of the user who has started the run. stages: the rows of each stage, by its folder. chain: one
    digest for all of them.
    """

    format: Literal[1]
    ansatz: str
    recipe: dict[str, Any]
    packages: dict[str, str]
    data: dict[str, str]
    code: dict[str, str]
    num_changes: Annotated[int, Field(ge=0)]
    signatures: list[str] = Field(max_length=100)
    stages: dict[str, Annotated[list[Step], Field(max_length=10**6)]]
    chain: Digest

    @property
    def changes(self) -> str:
        """Return a sentence about the changes of the recipe; empty without one."""
        times = "once" if self.num_changes == 1 else f"{self.num_changes} times"
        sentence = f"recipe: changed {times} while the run was resumed; the card has its last form"
        return sentence if self.num_changes else ""

    def steps_of(self, stage: str) -> dict[int, Step]:
        """Return the rows of the steps of a stage, by step."""
        return {row.step: row for row in self.stages.get(stage, []) if row.step > 0 and row.arithmetic is None}

    def arithmetic_at(self, stage: str, step: int) -> dict[str, Any]:
        """Return the arithmetic class of a step; empty if it is not known."""
        known = [row.arithmetic for row in self.stages.get(stage, []) if row.step < step and row.arithmetic is not None]
        return known[-1] if known else {}


def chain_of(stages: Mapping[str, list[Step]]) -> str:
    """Return the digest of all digests: equal for runs with equal bits, whoever sampled, and however often they died.

    Each step is linked to all before it, in the order of the stages.
    """
    link = b""
    for stage, rows in stages.items():
        for row in rows:
            if row.step > 0 and row.arithmetic is None:
                digests = [row.rollouts, row.logps, row.weights]
                link = hashlib.sha256(link + json.dumps([stage, row.step, *digests]).encode()).digest()
    return link.hex()[:16] or "0" * 16


def write_card(run: Path, config: Config) -> Path:
    """Write the card of a run into its folder, and return the file. Raise DataError for a damaged chain."""
    recipe: dict[str, Any] = parse_yaml(read_text(run / "config.yaml"), where=str(run / "config.yaml"))
    record = read_record(run)
    folders = {folder.name: folder for folder in list_folders(run)}
    rows = {name: read_jsonl(folders[name] / CHAIN_FILE) for name in folder_names(config) if name in folders}
    stages = {
        name: [_checked(Step, row, run / name / CHAIN_FILE) for row in each] for name, each in rows.items() if each
    }
    content = {
        "format": 1,
        "ansatz": __version__,
        "chain": chain_of(stages),
        "packages": installed_versions(),
        "num_changes": 0 if record is None else len(record.changes),
        "signatures": [] if record is None else list(record.signatures),
        "data": read_digests(run),
        "code": {} if record is None else dict(record.code or {}),
        "recipe": {key: value for key, value in recipe.items() if key != "out"},
        "stages": {name: [row.model_dump(exclude_none=True) for row in each] for name, each in stages.items()},
    }
    write_text(run / CARD_FILE, _layout(content))
    return run / CARD_FILE


def _layout(content: Mapping[str, Any]) -> str:
    """Return JSON with a line for each step, so that two cards can be compared line by line."""
    others = {key: value for key, value in content.items() if key != "stages"}
    parts = [
        f"  {json.dumps(stage)}: [\n" + ",\n".join(f"   {json.dumps(row)}" for row in rows) + "\n  ]"
        for stage, rows in content["stages"].items()
    ]
    head = json.dumps(others, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{head},\n "stages": {{\n' + ",\n".join(parts) + "\n }\n}\n"


def installed_versions() -> dict[str, str]:
    found = {"ansatz": __version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def read_card(path: Path) -> Card:
    """Read a card, or the card in a folder. Raise ConfigError for a file that is not one, is too large or was changed.

    Example: `read_card(Path("runs/mine")).chain`.
    """
    file = path / CARD_FILE if path.is_dir() else path
    advice = "Give the card.json that `ansatz train` wrote at the end of a run, or a folder that holds one."
    if not file.is_file() or is_special(file):
        raise ConfigError(f"{str(file)!r} is not a file. {advice}")
    if (size := file.stat().st_size) > MAX_BYTES:
        raise ConfigError(f"{file} has {size:,} bytes; a card has at most {MAX_BYTES:,}. {advice}")
    return check_card(read_object(file, error=ConfigError, advice=advice), file)


def copy_card(run: Path, folder: Path) -> None:
    """Put the card of a run into another folder, if it has one. Raise ConfigError for one that `read_card` refuses."""
    if (run / CARD_FILE).is_file():
        read_card(run)
        write_text(folder / CARD_FILE, read_text(run / CARD_FILE))


def check_card(content: Mapping[str, Any], file: Path) -> Card:
    """Return the card with this content. Raise ConfigError, which names the file, if it is none or was changed."""
    if content.get("format") != 1:
        raise ConfigError(
            f"{file} has the card format {content.get('format')!r:.40}; this version of Ansatz reads format 1."
        )
    card = _checked(Card, content, file)
    if (now := chain_of(card.stages)) != card.chain:
        raise ConfigError(
            f"{file} was changed: its steps add up to the chain {now}, and it says {card.chain}. Get the card again "
            "from whom you have it."
        )
    return card


def _checked(kind: Any, content: Mapping[str, Any], file: Path) -> Any:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:200]
        raise (ConfigError if kind is Card else DataError)(
            f"{file} is not a card: {place} = {first['input']!r:.60}: {first['msg'][:100]}. It is damaged, or another "
            "program wrote it."
        ) from error


def config_of(card: Card, file: Path, overrides: Mapping[str, str], *, trust_code: bool = False) -> Config:
    """Return the recipe of a card, to be run under another name with other workers and ranks.

    overrides: keys that change no result, and files and models in place of those that the card names. Raise
    ConfigError for others. Unless trust_code is set or this user has made the run, the recipe may not name code
    (UntrustedCodeError) or anything that exists on this machine (ConfigError).
    """
    for key in overrides:
        if not _can_be_given(key):
            raise ConfigError(
                f"--{key} would change the run, so it would not be the card's any more. Only keys of the sections "
                f"cluster and save can be set, threads, name, out, and places of files and models.{suggest(key, _FREE)}"
            )
    own = trust_code or is_signed(card.recipe, card.signatures)
    name = re.sub(r"\W+", "_", str(card.recipe.get("name")))[:60]
    recipe = {**card.recipe, "name": f"repeat_{name}", "out": "runs", "cluster": _ranks(card.recipe)}
    if not recipe.get("threads"):
        recipe["threads"] = _threads(card)
    config = check(laid_over(recipe, override_layer(overrides)), found_in=None if own else file)
    if not own:
        _refuse_own_files(config)
    return config


_FREE = ("name", "out", "threads", "cluster.", "save.", "grader_workers")


def _can_be_given(key: str) -> bool:
    return key.startswith(_FREE) or key.endswith((".path", ".paths"))


def _ranks(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the ranks that train. The bits depend on no other part of the section cluster."""
    cluster = as_mapping(recipe.get("cluster"))
    kept = ("trainers", "min_trainers", "trainer_threads", "shard_size")
    return {key: cluster[key] for key in kept if key in cluster}


def _threads(card: Card) -> int:
    known = (row.arithmetic.get("threads") for rows in card.stages.values() for row in rows if row.arithmetic)
    return next((count for count in known if type(count) is int and 0 < count <= 1024), 0)


def _refuse_own_files(config: Config) -> None:
    """Raise ConfigError if a text of the card's recipe is the path of something on this machine."""
    for key, value in flat_keys(config.model_dump()).items():
        for last, text in _texts(value, key.rpartition(".")[2]):
            if isinstance(text, TrustedText) or not (can_be_place(last, text) and _is_here(text)):
                continue
            option = f"say so with --{key} PLACE, or " if _can_be_given(key) else ""
            raise ConfigError(
                f"{key} = {str(text)!r:.200}: the card names a place on this machine, and nothing there was read. If "
                f"you want it to be used, {option}allow everything that the card names with --trust-code."
            )


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value, at any depth, under the last key above it."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _texts(inner, name)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner, key)


def _is_here(text: str) -> bool:
    if text.startswith(("/", "~", ".")) or ("/" in text and any(mark in text for mark in "*?[")):
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False
