"""Odd inputs for every verb: damaged files, files of another kind, and options with values that nobody meant.

Each input is a function of (verb, number), so a failure can be repeated with that pair.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from ansatz.config.layers import merge
from ansatz.config.schema import Config, flat_keys

HUGE = 10**400
SMALL: dict[str, Any] = {
    "model": {"tiny": {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "head_dim": 16}},
    "rollout": {"prompts_per_step": 2, "samples_per_prompt": 2, "max_response_tokens": 16},
    "threads": 1,
}
"""So that a recipe takes seconds to check."""
QUICK = [
    *("--sft.steps", "0", "--train.steps", "0", "--evaluate.problems", "1", "--evaluate.k", "1"),
    *(
        "--evaluate.samples_per_prompt",
        "1",
        "--rollout.max_response_tokens",
        "8",
        "--evaluate.max_response_tokens",
        "8",
    ),
]
"""So that a recipe of which a part was cut off, and which now has the defaults, is quick too."""
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    1e308,
    math.nan,
    math.inf,
    "",
    "x",
    "[/b]",
    "\ud800",
    "x" * 3000,
    "\n\r\t",
    [],
    {},
    [[[]]],
    [None],
    {"": None},
    ["a", {"b": [1, 2]}],
)
EXTREME_VALUES: tuple[Any, ...] = (1, 2, 10**6, 10**9, 10**14, 0.5, 1e-300, 1e300, False, "/dev/full", "none.py:none")
"""Of a type that many keys accept."""
ODD_BYTES: tuple[tuple[str, bytes], ...] = (
    ("empty", b""),
    ("null bytes", b"\0" * 100),
    ("binary junk", bytes(range(256)) * 20),
    ("half a JSON object", b'{"id": "a", "question": "1 + '),
    ("a number", b"7\n"),
    ("null", b"null\n"),
    ("a list", b"[1, 2]\n"),
    ("a huge integer", b'{"answer": 1' + b"0" * 5000 + b', "question": "q", "response": "r"}\n'),
    ("a large integer", b'{"answer": 1' + b"0" * 400 + b', "step": 1' + b"0" * 400 + b"}\n"),
    ("deep lists", b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    ("deep lists below the limit of the parser", b'{"answer": ' + b"[" * 950 + b"]" * 950 + b"}\n"),
    ("deep objects", b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"\n"),
    ("lone surrogates", b'{"answer": "\\ud800", "question": "\\udfff 1", "response": "\\ud800", "id": "\\ud800"}\n'),
    ("not a number", b'{"answer": NaN, "question": Infinity, "response": -Infinity, "step": NaN}\n'),
    ("a byte order mark", b'\xef\xbb\xbf{"answer": 1, "question": "1?", "response": "\\\\boxed{1}"}\n'),
    ("one long line", b"x" * 300_000),
    ("latin-1", "caf\xe9: 1\n".encode("latin-1")),
    ("deep yaml", b"[" * 3000 + b"\n"),
    ("yaml aliases", b"a: &a [x]\nb: &b [*a, *a, *a]\nc: [*b, *b]\n"),
    ("yaml tags", b"!!python/object/apply:os.system ['true']\n"),
    ("a wrong yaml tag", b"name: !!bool x\n"),
    ("dates in yaml", b"seed: 2020-01-01\nalgorithm: {preset: 2020-01-01}\n"),
    ("yaml keys that are not text", b"1: a\nnull: b\ntrain: {2020-01-01: c}\n"),
    ("a list as the name of a preset", b"algorithm: {preset: [1]}\n"),
    ("a huge hexadecimal integer", b"seed: 0x" + b"f" * 5000 + b"\n"),
    (
        "a yaml alias bomb",
        b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40)),
    ),
    ("a yaml alias of itself", b"train: &a [*a]\n"),
    ("utf-16", '{"answer": "1", "question": "1?"}\n'.encode("utf-16")),
    ("carriage returns", b'{"answer": "1",\r\n"question": "1?"}\r'),
    ("duplicate keys", b'{"answer": "1", "answer": "2", "question": "1?", "response": "2", "response": "1"}\n'),
    (
        "half characters in the level and subject",
        b'{"answer": "1", "question": "1?", "id": "1", "subject": "\\ud800"}\n',
    ),
    ("an absurd header of safetensors", b"\xff" * 8 + b"{}"),
    ("a wrong header of gzip", b"\x1f\x8b\x08" + b"\xff" * 30),
)
TRACKER = f"{Path(__file__).parent / 'track' / 'file_sink.py'}:open_run"
OPTION_VALUES = (
    "",
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "9" * 26,
    "1e400",
    "x",
    "\ud800x",
    "[/b]",
    "/",
    ".",
    "{}",
    "true",
    "x" * 300,
    "x/" * 3000 + "x",
    "/proc/none/x",
    "/proc/self/mem",
    "/dev/full",
    "/dev/null/x",
)
LINKS = {
    "device": "/dev/zero",
    "memory": "/proc/self/mem",
    "unreadable": "/proc/self/attr/current",
}
"""What nobody can read or write, not even root, for whom a file without permission is like any other. Nothing here may
be harmed by a command that appends to it."""


_NEED_MORE = ("gsm8k", "judge", "reasoning_gym", "distill")
OWN_RECIPES = [
    path
    for path in sorted((Path(__file__).parents[1] / "recipes").glob("tiny_*_cpu.yaml"))
    if not any(name in path.stem for name in _NEED_MORE)
]
"""The recipes that need no network, server, package or file: all are made from generated problems."""


def odd_file(rng: random.Random, path: Path) -> str:
    """Damage the file, or replace it; returns what was done."""
    as_text = path.suffix in (".json", ".jsonl", ".yaml", ".yml")
    instead = ("folder", "missing", "link", "dangling link", "pipe", *LINKS)
    kind = rng.choice((*["bytes"] * 3, *["values"] * 9, "cut", "flip", *instead))
    if kind == "bytes" or not path.is_file():
        name, content = rng.choice(ODD_BYTES)
        _remove(path)
        path.write_bytes(content)
        return name
    if kind in instead:
        _remove(path)
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(path)
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "dangling link":
            path.symlink_to(path.with_name("nothing"))
        elif kind in LINKS:
            path.symlink_to(LINKS[kind])
        return kind
    content = path.read_bytes()
    if kind == "cut":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif content and (kind == "flip" or not as_text):
        at = rng.randrange(len(content))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :])
    elif as_text:
        _odd_values(rng, path)
    return kind


def _odd_values(rng: random.Random, path: Path) -> None:
    """One to three values inside the file's JSON or YAML become odd ones, or their keys are left out."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        lines = text.splitlines()
        at = rng.randrange(len(lines)) if lines else 0
        lines[at : at + 1] = [json.dumps(_changed(rng, json.loads(lines[at])))] if lines else ["7"]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    elif path.suffix in (".yaml", ".yml"):
        path.write_text(json.dumps(_changed(rng, yaml.safe_load(text))), encoding="utf-8")
    else:
        path.write_text(json.dumps(_changed(rng, json.loads(text))), encoding="utf-8")


def _changed(rng: random.Random, value: Any) -> Any:
    for _ in range(rng.randint(1, 3)):
        value = _with_one_change(rng, value)
    return value


def _with_one_change(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _with_one_change(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _with_one_change(rng, value[at]), *value[at + 1 :]]
    return rng.choice(ODD_VALUES)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def recipe_keys(recipe: Mapping[str, Any]) -> list[str]:
    """The dotted keys that a recipe can be given: its own at any depth, and those of the schema."""
    own = flat_keys(dict(recipe))
    parents = {key[:end] for key in own for end, letter in enumerate(key) if letter == "."}
    return sorted({*own, *parents, *_schema_keys(Config)})


def _schema_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    keys = list[str]()
    for name, info in section.model_fields.items():
        keys.append(f"{prefix}{name}")
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            keys += _schema_keys(kind, f"{prefix}{name}.")
    return keys


Arguments = list[str]
Case = Callable[[random.Random, Path], tuple[str, Arguments]]


def verbs(base: Path) -> Mapping[str, Case]:
    """The verbs by name. A case makes its files in an empty folder and returns what is odd and the arguments.

    base: a folder with rows.jsonl, run/ (of `ansatz train`), eval/ (of `ansatz eval`), cases.json (of parity) and
    recipe.yaml.
    """

    def copy(name: str, folder: Path) -> Path:
        target = folder / name
        (shutil.copytree if (base / name).is_dir() else shutil.copy)(base / name, target)
        return target

    def on_rows(*arguments: str, options: Arguments = []) -> Case:  # noqa: B006 (never changed)
        def case(rng: random.Random, folder: Path) -> tuple[str, Arguments]:
            rows = copy("rows.jsonl", folder)
            extension = rng.choice(
                (".jsonl", ".jsonl", ".jsonl", ".json", ".csv", ".tsv", ".jsonl.gz", ".parquet", ".txt")
            )
            what = odd_file(rng, rows) if rng.random() < 0.8 else "as it is"
            if what != "missing":
                rows = rows.rename(folder / f"rows{extension}")
            filled = [part.format(rows=rows, folder=folder, model=base / "run" / "model") for part in arguments]
            return f"{extension}: {what}", filled + _odd_options(rng, options, folder)

        return case

    def on_folder(name: str, *arguments: str, options: Arguments = [], only: str = "*") -> Case:  # noqa: B006
        def case(rng: random.Random, folder: Path) -> tuple[str, Arguments]:
            target = copy(name, folder)
            files = sorted(p for p in target.rglob(only) if p.is_file() and p.stat().st_size < 200_000)
            file = rng.choice(files)
            what = f"{file.relative_to(target)}: {odd_file(rng, file)}" if rng.random() < 0.9 else "as it is"
            filled = [part.format(it=target, base=base, folder=folder) for part in arguments]
            return what, filled + _odd_options(rng, options, folder)

        return case

    def on_recipe(verb: str, *arguments: str, options: Arguments = []) -> Case:  # noqa: B006
        def case(rng: random.Random, folder: Path) -> tuple[str, Arguments]:
            recipe = copy("recipe.yaml", folder)
            what = odd_file(rng, recipe) if rng.random() < 0.7 else "as it is"
            filled = [part.format(folder=folder) for part in arguments]
            return f"recipe: {what}", [verb, str(recipe), *filled, *_odd_options(rng, options, folder)]

        return case

    def on_keys(*arguments: str) -> Case:
        """A recipe of ours, made small, in which one or two keys have an odd value."""

        def case(rng: random.Random, folder: Path) -> tuple[str, Arguments]:
            source = rng.choice(OWN_RECIPES)
            recipe = merge(yaml.safe_load(source.read_text(encoding="utf-8")), SMALL)
            keys = rng.sample(recipe_keys(recipe), k=rng.choice((1, 1, 2)))
            values = [rng.choice(rng.choice((ODD_VALUES, EXTREME_VALUES))) for _ in keys]
            for key, value in zip(keys, values, strict=True):
                for part in reversed(key.split(".")):
                    value = {part: value}
                recipe = merge(recipe, value)
            path = folder / "recipe.yaml"
            path.write_text(yaml.safe_dump(recipe), encoding="utf-8")  # JSON has no form of infinity that YAML reads
            what = ", ".join(f"{key} = {value!a:.60}" for key, value in zip(keys, values, strict=True))
            return f"{source.stem}: {what}", [part.format(recipe=path) for part in arguments]

        return case

    def on_target(*arguments: str, options: Arguments = []) -> Case:  # noqa: B006
        """A folder to write to, of all kinds."""

        def case(rng: random.Random, folder: Path) -> tuple[str, Arguments]:
            target = copy("run", folder)
            file = target / "config.yaml"
            kind = rng.choice(("missing", "empty", "in use", "in a file", "odd"))
            if kind == "in a file":
                target = file / "deeper"
            elif kind == "odd":
                what, target = odd_file(rng, file), file
                kind = f"a file: {what}"
            elif kind != "in use":
                shutil.rmtree(target)
                if kind == "empty":
                    target.mkdir()
            name = rng.choice((str(target), str(target), *OPTION_VALUES)).replace("\ud800", "\udcff")
            filled = [part.format(target=name) for part in arguments]
            return f"{kind}, called {name!a:.60}", filled + _odd_options(rng, options, folder)

        return case

    out = ["--out", "{folder}/out.jsonl"]
    keys = ["--question-key", "--answer-key", "--answer-from", "--id-key", "--out"]
    sampling = [
        "--samples-per-prompt",
        "--temperature",
        "--top-p",
        "--top-k",
        "--min-p",
        "--seed",
        "--batch",
        "--device",
    ]
    sampling += ["--dtype", "--threads", "--template", "--thinking-budget", "--min-response-tokens", "--closing"]
    short = ["--max-response-tokens", "4", "--threads", "1"]
    some_keys = [
        "--train.lr",
        "--seed",
        "--threads",
        "--train.optimizer",
        "--model.tiny",
        "--rewards",
        "--data.train",
    ]
    some_keys += ["--algorithm", "--rollout.temperature", "--model.lora", "--name", "--model.path", "--data.template"]
    return {
        "score": on_rows(
            "score", "{rows}",
            options=["--workers", "--mode", "--gold-key", "--response-key", "--answer-from", "--out"],
        ),
        "data tag": on_rows("data", "tag", "{rows}", *out, options=[*keys, "--classifier", "--field"]),
        "data check": on_rows("data", "check", "{rows}", options=keys),
        "data peek": on_rows("data", "peek", "{rows}", options=[*keys[:-1], "--show", "--tokenizer"]),
        "data dedup": on_rows(
            "data", "dedup", "{rows}", *out, options=[*keys, "--threshold", "--ngram", "--embeddings", "--min-cosine"]
        ),
        "data decontaminate": on_rows(
            "data", "decontaminate", "{rows}", *out, "--against", f"{base}/rows.jsonl", options=[*keys, "--min-frac"]
        ),
        "data split": on_rows(
            "data", "split", "{rows}", *out, "--heldout", "{folder}/held.jsonl",
            options=[*keys, "--heldout-frac", "--seed", "--by"],
        ),
        "data filter": on_rows(
            "data", "filter", "{rows}", *out,
            options=[*keys, "--drop", "--max-words", "--max-question-tokens", "--model"]
        ),
        "data difficulty": on_rows(
            "data", "difficulty", "{rows}", *out, "--model", "{model}", *short, "--samples-per-prompt", "2",
            options=[*keys, *sampling, "--min-rate", "--max-rate", "--work"],
        ),
        "data select": on_folder(
            "eval", "data", "select", "{it}", *out,
            options=["--per-prompt", "--pick", "--mode", "--language", "--shape", "--drop-longer-than", "--seed"],
        ),
        "sample": on_rows(
            "sample", "{model}", "--data", "{rows}", "--out", "{folder}/samples", *short, "--samples-per-prompt", "2",
            options=[*keys, *sampling],
        ),
        "eval": on_rows(
            "eval", "{model}", "--suite", "{rows}", "--out", "{folder}/eval", *short, "--samples-per-prompt", "2",
            options=[*sampling, "--problems", "--thinking-budgets", "--suites", "--out"],
        ),
        "eval of a broken model": on_folder(
            "run/model", "eval", "{it}", "--suite", "{base}/rows.jsonl", "--out", "{folder}/eval", *short,
            "--samples-per-prompt", "2", only="*",
        ),
        "eval in a damaged folder": on_folder(
            "eval", "eval", "{base}/run/model", "--suite", "{base}/rows.jsonl", "--out", "{it}", *short,
            "--samples-per-prompt", "2",
        ),
        "eval --rescore": on_folder("eval", "eval", "--rescore", "{it}"),
        "compare": on_folder("eval", "compare", "{it}", "{base}/eval", options=["--mode", "--num-changed", "--out"]),
        "ask": on_folder(
            "run/model", "ask", "{it}", "1 + 1?", *short, options=[*sampling, "--answer"], only="*config.json"
        ),
        "export": on_folder("run", "export", "{it}", "{folder}/out"),
        "report": on_folder("run", "report", "{it}"),
        "track": on_folder("run", "track", "{it}", "--to", TRACKER, options=["--group"]),
        "train --resume": on_folder("run", "train", "--resume", "{it}", options=["--train.lr", "--seed"]),
        "train": on_recipe("train", "--out", "{folder}/runs", *QUICK, options=some_keys),
        "explain": on_recipe("explain", options=[*some_keys, "--memory", "--run"]),
        "explain --run": on_folder("run", "explain", "{base}/recipe.yaml", "--run", "{it}"),
        "check": on_recipe("check", "--prompts", "1", options=[*some_keys, "--prompts", "--overlay"]),
        "check of any key": on_keys("check", "{recipe}", "--prompts", "1"),
        "init": on_target("init", "{target}"),
        "doctor": on_target("doctor", "--folder", "{target}", options=["--folder", "--nodes", "--address"]),
        "doctor --cluster": on_target("doctor", "--cluster", "--folder", "{target}", options=["--address"]),
        "parity": on_folder("cases", "parity", "{it}/cases.json"),
        "recipes": on_recipe("recipes"),
    }  # fmt: skip


def _odd_options(rng: random.Random, options: Arguments, folder: Path) -> Arguments:
    """No option, one or two, with odd values. Files that exist and folders are values too."""
    chosen = rng.sample(options, k=min(len(options), rng.choice((0, 1, 1, 2))))
    values = [*OPTION_VALUES, str(folder), str(folder / "none" / "x"), str(folder / "rows.jsonl" / "x")]
    return [part for option in chosen for part in (option, rng.choice(values).replace("\ud800", ""))]
