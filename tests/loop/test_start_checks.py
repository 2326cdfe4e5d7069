"""What `ansatz train` refuses before it starts, `ansatz explain` refuses with the same sentence; and the reverse."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from toy_runs import command, toy_recipe

from ansatz.config.load import load_recipe
from ansatz.config.recipe import default_class
from ansatz.config.stages.rejection import RejectionSection
from ansatz.data.curriculum import CurriculumSettings
from ansatz.data.word_problems import word_problems
from ansatz.errors import AnsatzError
from ansatz.evaluate.selection import Selection
from ansatz.loop import pipeline
from ansatz.loop.run_sources import GENERATED
from ansatz.loop.start_checks import explained
from ansatz.models.lora import add_adapters
from ansatz.models.tiny import TinyModel, build_tiny_model
from ansatz.objectives.objective import Objective
from ansatz.registry import settings_of
from ansatz.rewards.math_answer import math_answer

Refusals = Callable[[Mapping[str, Any]], tuple[str, str]]
ODD_VALUES: tuple[Any, ...] = (None, True, -1, 0, 3, 10**9, 0.5, 1e308, float("nan"), "", "x", "/no/such", [], {})
PLACES = {("out",), ("name",)}
"""Where the run is written, which only `train` does."""


def fields_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


SAMPLING = ("samples_per_prompt", "max_response_tokens", "temperature")
COMPONENTS: dict[tuple[str, ...], list[str]] = {
    **{("data", split): ["source", *settings_of(word_problems)] for split in ("sft", "train", "heldout")},
    ("data", "curriculum"): fields_of(CurriculumSettings),
    ("model", "tiny"): fields_of(TinyModel),
    ("model", "lora"): list(settings_of(add_adapters)),
    ("rewards", "math_answer"): ["weight", *settings_of(math_answer)],
    ("rewards", "overlong"): ["max_tokens", "buffer"],
    ("rollout", "engine"): ["name", "max_concurrent"],
    ("train", "optimizer"): ["name", "betas", "weight_decay"],
    ("algorithm",): ["preset", "like", "kl_coef", *fields_of(Objective)],
    ("rejection",): [*RejectionSection.model_fields, *fields_of(Selection), *SAMPLING],
}
"""The settings of components, which the schema leaves open."""


def keys(section: type[BaseModel], *parents: str) -> Iterator[tuple[str, ...]]:
    """The keys of the schema, those of its sections included."""
    for name, field in section.model_fields.items():
        yield (*parents, name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys(field.annotation, *parents, name)


OF_COMPONENTS = {(*parents, name) for parents, names in COMPONENTS.items() for name in names}
KEYS = sorted({*keys(default_class()), *OF_COMPONENTS} - PLACES)


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return value


class Started(Exception):
    """The run begins, so everything that is checked before has been."""


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Refusals:
    """refusals(changes) -> the sentences of `train` and of `explain`; empty if the recipe is accepted, or the schema,
    which both read, refuses it."""

    def begin(*_: Any, **__: Any) -> None:
        raise Started

    def sentence(call: Callable[[], object]) -> str:
        try:
            call()
        except Started:
            return ""
        except (AnsatzError, OSError) as error:
            return str(error)
        return ""

    def both(changes: Mapping[str, Any]) -> tuple[str, str]:
        try:
            config = load_recipe(toy_recipe(tmp_path, changes))
        except AnsatzError:
            return "", ""
        train = partial(pipeline.run_pipeline, config)
        return sentence(train), sentence(partial(explained, config, elsewhere=False))

    monkeypatch.setattr(pipeline, "prepare_run_dir", begin)
    monkeypatch.setattr(pipeline, "set_threads", lambda threads: None)
    return both


SMALL = {"data": {split: {"count": 2} for split in ("sft", "train", "heldout")}}


def assert_same(key: tuple[str, ...], values: Sequence[Any], refusals: Refusals) -> None:
    for value in values:
        train, explain = refusals({**SMALL, **nested(key, value)})
        assert train == explain, value


@pytest.mark.parametrize("number", range(len(KEYS)), ids=[".".join(key) for key in KEYS])
def test_what_train_refuses_for_a_key_explain_refuses_with_the_same_sentence(number: int, refusals: Refusals) -> None:
    first = 2 * number % len(ODD_VALUES)  # two values for each key, others for the next one
    assert_same(KEYS[number], ODD_VALUES[first : first + 2], refusals)


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS, ids=".".join)
def test_that_holds_for_every_key_and_value(key: tuple[str, ...], refusals: Refusals) -> None:
    assert_same(key, ODD_VALUES, refusals)


def test_some_values_of_many_keys_are_refused_by_the_checks_and_not_by_the_schema(refusals: Refusals) -> None:
    """Without this, the tests above would also pass if both refused nothing."""
    several = [key for key in KEYS if key[-1] in ("count", "split", "preset", "keep", "name", "pick", "math_answer")]
    refused = {key[0] for key in several if any(refusals(nested(key, value))[0] for value in (0, "x", 10**9))}
    assert refused == {"data", "rollout", "train", "algorithm", "rejection"}


def rows(path: Path, *rows: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def data_of(path: str) -> dict[str, Any]:
    return {"train": {"source": "jsonl", "split": "train", "path": path}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data": {"train": {"split": "dev"}}}, "split = 'dev', expected 'train' or 'heldout'"),
        ({"data": {"train": {"count": 0}}}, "count = 0, expected 1 or more"),
        ({"data": {"heldout": {"count": -1}}}, "count = -1, expected 1 or more"),
        ({"data": data_of("gone.jsonl")}, "'gone.jsonl' does not exist"),
        ({"data": data_of("no*.jsonl")}, "no file matches the pattern 'no*.jsonl'"),
        ({"data": data_of("FOLDER")}, "is a folder; expected a JSONL file"),
        ({"data": data_of("FOLDER/bad.jsonl")}, "bad.jsonl line 2: the row has no field 'answer'"),
        ({"data": data_of("FOLDER/gold.jsonl")}, "cannot be used"),
        ({"data": {"curriculum": {}, "train": {"count": 2}}}, "data.train has only 2 problems"),
        ({"data": {"template": "gone.txt"}}, "prompt template 'gone.txt' does not exist"),
        ({"model": {"path": "/no/such/model"}}, "model.path = '/no/such/model' is not a folder"),
        ({"model": {"path": "FOLDER"}}, "has no config.json"),
        ({"train": {"critic": {"path": "/no/critic"}}, "algorithm": {"preset": "ppo"}}, "train.critic.path = "),
        ({"rejection": {"teacher": "/no/teacher"}}, "rejection.teacher = '/no/teacher' is not a folder"),
        ({"rewards": {"gone.py:mine": {}}}, "'gone.py' does not exist"),
        ({"rewards": {"math_answer": {"sources": ["math"]}}}, "rewards.math_answer.sources: no problem is from 'math'"),
        (
            {
                "data": {
                    "heldout": {
                        "source": "mixture",
                        "split": "heldout",
                        "parts": [{"source": "arithmetic", "count": 2, "template": "boxedd"}],
                    }
                }
            },
            "prompt template 'boxedd' is unknown",
        ),
        ({"save": {"best": "hard"}}, "save.best = 'hard': expected true, false or one of several sources"),
        ({"evaluate": {"rewards": {"math_answer": {}}}}, "evaluate.rewards.math_answer is in rewards already"),
        ({"evaluate": {"rewards": {"repetition": {"weight": 1}}}}, "evaluate.rewards.repetition has a weight, but"),
    ],
    ids=str,
)
def test_missing_and_wrong_inputs(changes: Any, sentence: str, refusals: Refusals, tmp_path: Path) -> None:
    good = {"question": "1 + 1?", "answer": "2"}
    rows(tmp_path / "bad.jsonl", good, {"question": "2 + 2?"})
    rows(tmp_path / "gold.jsonl", good, {"question": "2 + 2?", "answer": "\\frac{"})
    changes = json.loads(json.dumps(changes).replace("FOLDER", str(tmp_path)))
    train, explain = refusals(changes)
    assert train == explain
    assert sentence in train


def test_a_full_disk_stops_a_run_and_is_noted_by_explain(refusals: Refusals) -> None:
    train, explain = refusals({"save": {"every": 1, "keep": 10**9}, "train": {"steps": 10**9}})
    assert "GB are free on this disk" in train
    assert explain == ""


NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
SHOWN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
CHAT_WITH_SYSTEM = {"name": "chat", "user": "boxed", "system": "Be brief."}
LONG = {"question": "Ana has 3 pens. " * 60 + "How many?", "answer": "3"}
SHORT = {"question": "Ana has 3 pens. How many?", "answer": "3"}
SAME = {"question": "1+1?", "answer": "2", "id": "a"}
WITH_SYSTEM = {"question": "1+1?", "answer": "2", "system": "Be kind."}
PAIR = {"prompt": "1+1?", "chosen": "2 " * 150, "rejected": "3"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """model(...) -> a folder of a tiny model whose context has 300 tokens."""

    def build(*, chat_template: str | None = SHOWN, end: str | None = "<|end|>") -> str:
        folder = tmp_path_factory.mktemp("model")
        build_tiny_model(folder, texts=["Ana has 3 pens."], max_context=300, hidden_size=16, num_layers=1)
        (folder / "chat_template.jinja").unlink()
        if chat_template is not None:
            (folder / "chat_template.jinja").write_text(chat_template, encoding="utf-8")
        if end is None:
            for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
                settings = json.loads((folder / name).read_text())
                kept = {key: value for key, value in settings.items() if key not in ("eos_token", "eos_token_id")}
                (folder / name).write_text(json.dumps(kept))
        return str(folder)

    return build


def of_file(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The changes that train on rows of a file, the second of which is the given one."""
    return {
        "data": {"train": {"source": "jsonl", "split": "train", "path": [SHORT, row]}},
        "sft": {"steps": 0},
        **changes,
    }


def of_model(template: Any, *, rollout: Mapping[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    limits = {"max_response_tokens": 40, "max_prompt_tokens": 250, **(rollout or {})}
    return {
        "model": {"path": model, "tiny": {}},
        "data": {"template": template},
        "rollout": limits,
        "sft": {"steps": 0},
    }


REFUSED_TEXTS: list[tuple[dict[str, Any], str]] = [
    ({"rollout": {"max_prompt_tokens": 5}}, "tokens, but the limit is 5"),
    ({"rollout": {"max_response_tokens": 5}}, "the demonstration of problem"),
    ({"model": {"tiny": {"max_context": 60}}}, "over the model's context of 60"),
    ({"evaluate": {"max_response_tokens": 10**6}}, "over the model's context of"),
    (of_file(LONG), "1 of 2 rows cannot be used"),
    (of_file(LONG, stages=["rl", {"stage": "rl", "rollout": {"max_prompt_tokens": 8}}]), "rows cannot be used"),
    (of_file(WITH_SYSTEM), "the prompt template 'tiny' cannot show"),
    (of_file(SHORT, data={"train": {"source": "jsonl", "split": "train", "path": [SAME, SAME]}}), "have the id 'a'"),
    (of_model("tiny", rollout={"max_response_tokens": 290}), "over the model's context of 300"),
    (of_model("chat", chat_template=None), "needs a tokenizer with a chat template"),
    (of_model(CHAT_WITH_SYSTEM, chat_template=NO_SYSTEM + SHOWN), "refuses the prompt of problem"),
    (of_model(CHAT_WITH_SYSTEM, chat_template="{{ messages[-1]['content'] }}"), "drops the system prompt"),
    (of_model("tiny", end=None), "names an end token"),
    (
        {"rejection": {"teacher": {}, "sft": {"steps": 1}, "max_response_tokens": 295}},
        "over the model's context of 300",
    ),
    (
        {"preference": {"pairs": {"source": "file", "path": [PAIR]}}, "rollout": {"max_response_tokens": 60}},
        "1 of 1 rows",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED_TEXTS, ids=str)
def test_texts_that_do_not_fit_are_refused_before_anything_is_written(
    changes: dict[str, Any], sentence: str, refusals: Refusals, model: Callable[..., str], tmp_path: Path
) -> None:
    train, explain = refusals({**SMALL, **stored(changes, model, tmp_path)})
    assert train == explain
    assert sentence in train


def stored(value: Any, model: Callable[..., str], folder: Path, key: str = "") -> Any:
    """The changes with files and models in place of their descriptions."""
    if key in ("path", "teacher") and isinstance(value, dict):
        return model(**value)
    if key == "path" and isinstance(value, list):
        return rows(folder / "rows.jsonl", *value)
    if isinstance(value, dict):
        return {name: stored(item, model, folder, name) for name, item in value.items()}
    return value


@pytest.mark.parametrize(("changes", "sentence"), [REFUSED_TEXTS[0], REFUSED_TEXTS[9]], ids=str)
def test_the_three_verbs_end_with_the_same_code_and_sentence(
    changes: dict[str, Any], sentence: str, model: Callable[..., str], tmp_path: Path
) -> None:
    recipe = toy_recipe(tmp_path, {**SMALL, **stored(changes, model, tmp_path)})
    answers = {command(verb, recipe)[::2] for verb in ("train", "explain", "check")}
    assert len(answers) == 1, answers
    code, said = answers.pop()
    assert (code, sentence in said) == (2, True)
    assert not (tmp_path / "runs").exists()


def test_only_an_installed_recipe_may_miss_its_files_its_models_and_the_disk_space(tmp_path: Path) -> None:
    changes = {"data": data_of("gone.jsonl"), "rejection": {"teacher": "/no/teacher"}, "train": {"steps": 10**9}}
    config = load_recipe(toy_recipe(tmp_path, {**changes, "save": {"every": 1, "keep": 10**9}}))
    sources, missing = explained(config, elsewhere=True)
    assert [part in sentence for part, sentence in zip(("gone.jsonl", "/no/teacher"), missing, strict=True)]
    assert any(" GB " in note for note in sources.notes)


def test_a_key_that_the_stage_of_an_entry_does_not_read_is_named(tmp_path: Path) -> None:
    sft = {"stage": "sft", "train": {"lr": 0.1, "max_grad_norm": 2.0}, "rewards": {"format": {}}, "sft": {"lr": 0.1}}
    rl = {"stage": "rl", "train": {"lr": 0.1}, "sft": {"steps": 9}}
    sources, _ = explained(load_recipe(toy_recipe(tmp_path, {"stages": [sft, rl]})), elsewhere=False)
    assert [note for note in sources.notes if note.startswith("stages")] == [
        "stages, entry 1 (sft): train.lr has no effect, because the stage does not read it. Did you mean sft.lr?",
        "stages, entry 1 (sft): rewards.format has no effect, because the stage does not read it. Leave it out.",
        "stages, entry 2 (rl): sft.steps has no effect, because the stage does not read it. Did you mean train.steps?",
    ]


def test_a_file_that_stands_for_a_section_of_data_is_of_the_split_of_its_key(tmp_path: Path) -> None:
    path = rows(tmp_path / "mine.jsonl", *[{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(9)])
    overrides = {"data.train": path, "data.heldout": path}
    sources, _ = explained(load_recipe(toy_recipe(tmp_path), overrides=overrides), elsewhere=False)
    for split in ("train", "heldout"):
        assert {problem.split for problem in sources.source(split)} == {split}


def test_what_the_hub_has_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    config = load_recipe(toy_recipe(tmp_path, {"model": {"path": "nobody/knows", "tiny": {}}}))
    _, missing = explained(config, elsewhere=False)
    assert missing == ["the model nobody/knows is not on this machine; a run downloads it."]
    wrong = {"model": {"path": "nobody/knows", "tiny": {}}, "train": {"critic": {"path": "/no/critic"}}}
    with pytest.raises(AnsatzError, match=r"train\.critic\.path = '/no/critic' is not a folder"):
        explained(load_recipe(toy_recipe(tmp_path, {**wrong, "algorithm": {"preset": "ppo"}})), elsewhere=False)


def test_the_gold_answers_of_a_generator_are_sampled_and_those_of_a_file_are_all_read(tmp_path: Path) -> None:
    """A generator of 10**8 problems would otherwise take hours to explain."""
    explained(load_recipe(toy_recipe(tmp_path, {"data": {"train": {"count": 10**8}}})), elsewhere=False)
    good = {"question": "1 + 1?", "answer": "2"}
    path = rows(tmp_path / "long.jsonl", *[good] * (GENERATED + 5), {"question": "2?", "answer": "\\frac{"})
    with pytest.raises(AnsatzError, match=f"line {GENERATED + 6}"):
        explained(load_recipe(toy_recipe(tmp_path, {"data": data_of(path)})), elsewhere=False)
