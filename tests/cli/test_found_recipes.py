"""Recipes that came along with a model or a run of somebody else: nothing that they name is imported.

The hostile recipes name code at every key of the schema that takes text, and at every setting of every component.
"""

from __future__ import annotations

import copy
import functools
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from toy_runs import toy, toy_config

from ansatz import trust
from ansatz.cli import answer_viewer
from ansatz.config.load import check, dump, load_recipe, load_run
from ansatz.config.recipe import recipe_keys, section_at
from ansatz.data.base import bind_source, source_names
from ansatz.environments.base import bind_environment, environment_names
from ansatz.errors import AnsatzError, ConfigError, UntrustedCodeError
from ansatz.loop.run_folder import resume_config, write_done
from ansatz.loop.run_record import RunRecord, record_of
from ansatz.objectives.build import COMPONENTS, LISTS, build_objective
from ansatz.registry import settings_of
from ansatz.rewards.base import rewards
from ansatz.rollout.engines import ENGINES, check_engine
from ansatz.train.checkpoint import write_digests
from ansatz.train.optimizers import OPTIMIZERS
from ansatz.types import Problem

CANARY = '''"""Says that it was imported, and that something of it was called."""
from pathlib import Path
FILE = Path({canary!r})
FILE.write_text("imported")
def E(*_, **__):
    FILE.write_text("called")
class Stage:
    declaration = FILE
load_environment = SingleTurnEnv = Environment = score = E
'''
NAME = "NAME_OF_CODE.py:E"
HOW = ("--threads", 1, "--max-response-tokens", 4)
DEFAULTS_AND_NONE = [
    (),
    ("--environment", "none"),
    ("--template", "tiny"),
    ("--environment", "none", "--template", "tiny"),
]


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """What writes the canary file when it is imported: a file, a module, a package, and a package `verifiers`."""
    file = tmp_path / "canary.txt"
    code = tmp_path / "code"
    (code / "canary_package").mkdir(parents=True)
    for name in ("F.py", "canary_module.py", "canary_package/__init__.py", "canary_package/inner.py", "verifiers.py"):
        (code / name).write_text(CANARY.format(canary=str(file)))
    monkeypatch.syspath_prepend(code)
    before = set(sys.modules)
    yield file
    new = set(sys.modules) - before
    assert not file.exists()
    assert "this" not in new
    assert [name for name in new if str(getattr(sys.modules[name], "__file__", "")).startswith(str(code))] == []


def names_of_code(tmp_path):
    return [f"{tmp_path}/code/F.py:E", "canary_module:E", "canary_package.inner:E", "this:s", "verifiers:E"]


def forms(name):
    """Return the ways in which a key can name something."""
    settings = {"environment": name, "model": name, "path": name}
    shapes = [name, [name], {"name": name}, {"name": name, **settings}, {"source": name}, {name: {}}]
    return [*shapes, {"name": "verifiers", **settings}, {"source": "verifiers", **settings}, {"preset": name}]


@functools.cache
def keys_of_text():
    """Return the keys of the schema whose values can be text, or mappings of components."""
    places = [(key, key.rpartition(".")) for key in recipe_keys()]
    kinds = {
        key: str(section_at(above.split(".") if above else []).model_fields[last].annotation)
        for key, (above, _, last) in places
    }
    return [key for key, kind in kinds.items() if any(word in kind for word in ("str", "dict", "Mapping", "Any"))]


@functools.cache
def hostile_form(number):
    """Return a recipe in which every key has a form that may have it, as YAML in which NAME stands for the code, and
    these keys."""
    recipe, keys = full(Path("/nowhere")), []
    for key in keys_of_text():
        if key in ("name", "out"):
            continue
        *parents, last = key.split(".")
        changed = copy.deepcopy(recipe)
        section = changed
        for parent in parents:
            section = section[parent] if isinstance(section.get(parent), dict) else section.setdefault(f"{parent}", {})
        if isinstance(section, dict):
            section[last] = forms(NAME)[number]
            try:
                check(changed, found_in=Path("recipe.yaml"))
            except ConfigError:
                continue
            recipe, keys = changed, [*keys, key]
    return yaml.safe_dump(recipe), keys


def hostile_recipe(number, name):
    return yaml.safe_load(hostile_form(number)[0].replace(NAME, name))


def as_model(model, folder, recipe):
    shutil.copytree(model, folder)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def as_run(model, folder, recipe, *, signatures=()):
    """A finished run of somebody else with this recipe."""
    shutil.copytree(model, folder / "rl" / "checkpoints" / "step-000004")
    for stage in ("problems", "model", "sft", "rl"):
        (folder / stage).mkdir(exist_ok=True)
        (folder / stage / "config.yaml").write_text(yaml.safe_dump(recipe))
        output = "checkpoints/step-000004" if stage == "rl" else "config.yaml"
        write_done(folder / stage, output=output, seconds=1.0, steps=4)
    (folder / "rl" / "checkpoints" / "step-000004" / "training").mkdir()
    (folder / "rl" / "checkpoints" / "step-000004" / "training" / "state.json").write_text("{}")
    write_digests(folder / "rl" / "checkpoints" / "step-000004")
    (folder / "config.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "rl" / "metrics.jsonl").write_text("")
    RunRecord(recipe={}, signatures=signatures).write(folder)
    return folder


def full(tmp_path, changes=None):
    """A recipe as a run writes it, in which everything is said."""
    return yaml.safe_load(dump(toy_config(tmp_path, changes)))


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    return file


def test_the_hostile_recipes_name_code_at_every_key_that_takes_a_component():
    named = {key for number in range(len(forms(NAME))) for key in hostile_form(number)[1]}
    components = {"data.train", "data.heldout", "data.sft", "data.curriculum", "rollout.engine", "environment"}
    components |= {"algorithm", "rewards", "train.optimizer", "model.lora", "train.critic.path", "cluster.address"}
    assert components | {"stages", "model.path"} <= named


@pytest.mark.parametrize("number", range(9))
def test_no_key_of_a_found_recipe_imports_anything_when_it_is_read_or_used(tmp_path, canary, model, number):
    for name in names_of_code(tmp_path)[:: 2 if number else 1]:
        recipe = hostile_recipe(number, name)
        run = as_run(model, tmp_path / "runs" / name.rpartition("/")[2].replace(":", "-"), recipe)
        for listed in (None, ["sft", name, {"stage": name}, "rl"]):
            (run / "config.yaml").write_text(yaml.safe_dump({**recipe, "stages": listed}))
            config = load_run(run)
            for use in (
                lambda config=config: bind_environment(config.environment),
                lambda config=config: check_engine(config.rollout),
                lambda config=config: build_objective(config.algorithm),
                lambda config=config: OPTIMIZERS.get(config.train.optimizer),
                lambda config=config: [rewards.bind(each, {}) for each in config.rewards],
                lambda config=config: record_of(config),
                lambda config=config, name=name: config.declaration(name),
            ):
                with suppress(AnsatzError, StopIteration, TypeError):
                    use()
    trust.signature(recipe)


@pytest.mark.parametrize("options", DEFAULTS_AND_NONE, ids=lambda options: " ".join(options) or "default")
def test_a_models_recipe_runs_no_code_in_ask_eval_sample_and_difficulty(tmp_path, canary, ansatz, model, rows, options):
    for number, name in enumerate(names_of_code(tmp_path)[: None if not options else 2]):
        recipe = full(tmp_path, {"environment": {"name": name}})
        recipe["stages"] = ["sft", name, "rl"] if number % 2 else None
        folder = as_model(model, tmp_path / f"model-{number}", recipe)
        verbs = [("ask", folder, "1 + 1?"), ("eval", folder, "--suite", rows, "--out", tmp_path / f"eval-{number}")]
        verbs += [("sample", folder, "--data", rows, "--out", tmp_path / f"sample-{number}")]
        difficulty = ("data", "difficulty", rows, "--model", folder, "--out", tmp_path / f"d-{number}.jsonl")
        for verb in [*verbs, difficulty] if not number and not options else verbs[:1]:
            code, _, err = ansatz(*verb, *HOW, *options)
            if "--environment" in options:
                assert (code, err) == (0, ""), verb
            else:
                assert code == 2, verb
                assert f"environment {name!r}: {folder}/recipe.yaml, which came along with a model or a run" in err
                assert f"Read {name.rpartition(':')[0]} first, then allow it with --trust-code." in err
                assert f"The command is then: ansatz {' '.join(map(str, verb[:2]))}" in err
                assert err.endswith(" --trust-code\n")


def test_installed_environments_of_verifiers_that_a_found_recipe_names_are_not_imported(
    tmp_path, canary, ansatz, model
):
    section = {"name": "verifiers", "environment": "this"}
    folder = as_model(model, tmp_path / "model", full(tmp_path, {"environment": section}))
    code, _, err = ansatz("ask", folder, "1 + 1?", *HOW)
    assert code == 2
    assert "verifiers environment 'this': " in err


@pytest.mark.parametrize("listed", [False, True])
def test_a_run_of_somebody_else_runs_no_code_in_any_verb(tmp_path, canary, ansatz, model, rows, listed, monkeypatch):
    name = f"{tmp_path}/code/F.py:E"
    changes = {"environment": {"name": name}, "rewards": {name: {}, "math_answer": {}}}
    recipe = {**full(tmp_path, changes), "stages": ["sft", name, "rl"] if listed else None}
    run = as_run(model, tmp_path / "run", recipe)
    monkeypatch.chdir(tmp_path)
    refused = [
        *(("ask", run, "1 + 1?", *HOW, *options) for options in DEFAULTS_AND_NONE),
        ("eval", run, "--suite", rows, *HOW),
        ("sample", run, "--data", rows, *HOW),
        ("train", "--resume", run),
        ("train", run / "config.yaml", "--name", "other"),
        ("explain", run / "config.yaml"),
        ("explain", run / "rl" / "config.yaml"),
        ("check", run / "config.yaml"),
    ]
    for verb in refused:
        code, _, err = ansatz(*verb)
        if not listed and "none" in verb:
            assert code == 0, (verb, err)
            continue
        assert code == 2, (verb, err)
        assert name in err, verb
        assert "--trust-code\n" in err, verb
    code, _, err = ansatz("train", "--resume", run)
    assert f"{run}/config.yaml, which came along with a model or a run" in err
    code, _, err = ansatz("export", run, tmp_path / "exported")
    assert code == (2 if listed else 0), err
    for verb in (
        ("report", run),
        ("rollouts", run),
        ("compare", run, run),
        ("explain", "tiny_arithmetic_grpo_cpu", "--run", run),
        ("doctor", "--help"),
    ):
        ansatz(*verb)
    problem = Problem(id="1", question="1 + 1?", answers=("2",), source="here", split="all")
    with pytest.raises(ConfigError):
        list(answer_viewer.respond(run / "rl" / "checkpoints" / "step-000004", problem, "", 1, 0))


def test_training_from_somebody_elses_model_reads_its_template_and_runs_nothing(tmp_path, canary, ansatz, model):
    name = f"{tmp_path}/code/F.py:E"
    foreign = {**full(tmp_path, {"environment": {"name": name}}), "stages": ["sft", name, "rl"]}
    folder = as_model(model, tmp_path / "model", foreign)
    changes = {"model": {"path": str(folder)}, "data": {"template": "auto"}, "rollout": {"max_response_tokens": 300}}
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(yaml.safe_dump(toy(tmp_path, changes)))
    code, _, err = ansatz("explain", recipe)
    assert code == 0, err
    code, _, err = ansatz("explain", folder / "recipe.yaml")
    assert code == 2
    assert "--trust-code\n" in err


def test_no_setting_of_a_component_imports_what_a_found_recipe_names(tmp_path, canary):
    for name in names_of_code(tmp_path)[:2]:
        found = trust.mark_as_found(Path("recipe.yaml"), {"text": name, "list": [{"source": name, "split": "train"}]})

        def every(function, found=found):
            values = dict.fromkeys(settings_of(function), found["text"])
            return [{}, values, *({key: each} for key in values for each in found.values())]

        def use(call):
            with suppress(AnsatzError, OSError, ValueError, TypeError, AttributeError, KeyError):
                call()

        for reward in rewards.names():
            for settings in every(rewards.get(reward)):
                use(lambda reward=reward, settings=settings: rewards.bind(reward, settings)([]))
        for environment in environment_names():
            for settings in every(
                __import__(f"ansatz.environments.{environment}", fromlist=["x"]).__dict__[environment]
            ):
                use(lambda name=environment, settings=settings: bind_environment({"name": name, **settings}))
        for source in source_names():
            if source != "hub":
                function = __import__(f"ansatz.data.{source}", fromlist=["x"]).__dict__[source]
                for settings in every(function):
                    settings.pop("split", None)
                    use(
                        lambda source=source, settings=settings: next(
                            iter(bind_source(source, settings)(split="train"))
                        )
                    )
        for key, registry in COMPONENTS.items():
            for value in (
                found["text"],
                {"name": found["text"]},
                *({"name": each, "x": name} for each in registry.names()),
            ):
                use(lambda key=key, value=value: build_objective({key: [value] if key in LISTS else value}))
        use(lambda name=name: ENGINES.get(name))
        assert not canary.exists()


def test_components_that_reach_servers_or_secrets_refuse_what_was_found(tmp_path, monkeypatch):
    from ansatz.config.schema import ClusterSection
    from ansatz.loop.workplace import workplace_of

    monkeypatch.setenv("SECRET", "s3cret")
    mine = {"url": "http://127.0.0.1:9/v1", "model": "m"}
    found = {**mine, **trust.mark_as_found(Path("config.yaml"), {"api_key_env": "SECRET"})}
    with pytest.raises(UntrustedCodeError, match=r"rewards\.judge\.api_key_env 'SECRET'"):
        rewards.bind("judge", found)([])
    cached = {**mine, **trust.mark_as_found(Path("config.yaml"), {"cache": "x.db"})}
    with pytest.raises(UntrustedCodeError, match=r"rewards\.judge\.cache 'x\.db'"):
        rewards.bind("judge", cached)([])
    server = trust.mark_as_found(Path("config.yaml"), mine)
    with pytest.raises(UntrustedCodeError, match=r"rewards\.judge\.url '[^']*': .* was used\. Allow it with --trust"):
        rewards.bind("judge", server)([])
    weights = trust.mark_as_found(Path("config.yaml"), {"folder": "/home/me"})
    with pytest.raises(UntrustedCodeError, match=r"rollout\.engine\.folder '/home/me'"):
        ENGINES.bind("vllm", weights)(None)
    with pytest.raises(UntrustedCodeError, match=r"cluster\.address '10\.0\.0\.1:6379'"):
        workplace_of(ClusterSection(workers=1, address="10.0.0.1:6379"))


@pytest.mark.parametrize("out", ["elsewhere/..", "../elsewhere", None])
def test_a_found_recipe_does_not_choose_a_folder_outside_of_the_current_one(tmp_path, ansatz, model, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    out = out or str(tmp_path / "elsewhere")
    run = as_run(model, tmp_path / "run", {**full(tmp_path), "name": "other", "out": out})
    code, _, err = ansatz("train", run / "config.yaml")
    assert code == 2
    assert f"out {out!r}: {run}/config.yaml, which came along with a model or a run" in err
    assert not (tmp_path / "elsewhere").exists()


def test_a_found_recipe_does_not_weaken_the_sandbox():
    found = trust.mark_as_found(Path("recipe.yaml"), {"name": "python", "isolation": "available"})
    with pytest.raises(UntrustedCodeError, match="isolation 'available'"):
        bind_environment(found, template="boxed")
    assert bind_environment(trust.trusted(dict(found)), template="boxed") is not None
    assert bind_environment({**found, "isolation": "full"}, template="boxed") is not None


@pytest.mark.parametrize("option", ["--trust-code", "--environment"])
def test_code_of_a_found_recipe_runs_once_it_is_repeated_or_trusted(tmp_path, ansatz, model, option):
    echo = Path(__file__).parents[1] / "environments" / "echo.py"
    folder = as_model(model, tmp_path / "model", full(tmp_path, {"environment": {"name": f"{echo}:Echo"}}))
    assert ansatz("ask", folder, "1 + 1?", *HOW)[0] == 2
    given = (option,) if option == "--trust-code" else (option, f"{echo}:Echo")
    code, out, err = ansatz("ask", folder, "1 + 1?", *HOW, *given)
    assert (code, err) == (0, "")
    assert (f"environment: {echo}:Echo" in out) == (option == "--trust-code")


def test_a_run_is_ones_own_wherever_it_lies_until_its_recipe_names_something_else(tmp_path, model, monkeypatch):
    name = f"{Path(__file__).parents[1]}/environments/echo.py:Echo"
    config = toy_config(tmp_path, {"environment": {"name": name}})
    run = as_run(model, tmp_path / "run", full(tmp_path, {"environment": {"name": name}}))
    record_of(config).write(run)
    moved = run.rename(tmp_path / "moved")
    assert bind_environment(load_run(moved).environment)
    assert bind_environment(load_run(moved / "rl").environment)
    assert bind_environment(resume_config(moved, {"train.steps": "9"}).environment)
    assert bind_environment(load_recipe(moved / "config.yaml").environment)

    written = yaml.safe_load((moved / "config.yaml").read_text())
    (moved / "config.yaml").write_text(yaml.safe_dump({**written, "seed": 7}))
    assert load_run(moved).found_in is None
    forged = {**written, "rewards": {"other.py:reward": {}}}
    (moved / "config.yaml").write_text(yaml.safe_dump(forged))  # with the signature of the run before
    assert load_run(moved).found_in == moved / "config.yaml"
    (moved / "config.yaml").write_text(yaml.safe_dump(written))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody"))
    assert load_run(moved).found_in == moved / "config.yaml"
    with pytest.raises(UntrustedCodeError):
        bind_environment(load_run(moved).environment)
    with pytest.raises(UntrustedCodeError):
        bind_environment(load_run(moved / "rl").environment)
    assert bind_environment(resume_config(moved, {"environment.name": name}).environment)


def test_worked_problems_of_a_run_are_shown_if_it_is_ones_own_or_they_are_repeated_or_trusted(
    tmp_path, ansatz, model, monkeypatch
):
    shots = tmp_path / "shots.jsonl"
    shots.write_text(json.dumps({"question": "2 + 2?", "solution": "4"}) + "\n")
    changes = {"data": {"template": {"name": "tiny", "shots": str(shots), "num_shots": 1}}}
    run = as_run(model, tmp_path / "run", full(tmp_path, changes))
    record_of(toy_config(tmp_path, changes)).write(run)
    ask, template = ("ask", run, "1 + 1?", *HOW), f'{{name: tiny, shots: "{shots}", num_shots: 1}}'
    code, out, err = ansatz(*ask)
    assert (code, err) == (0, "")
    assert f"template: {template} (as in the run run)" in out
    checkpoint = run / "rl" / "checkpoints" / "step-000004"
    problem = Problem(id="1", question="1 + 1?", answers=("2",), source="here", split="all")
    assert len(list(answer_viewer.respond(checkpoint, problem, "", 1, 0))) == 1
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody"))
    code, _, err = ansatz(*ask)
    assert (code, f"then give --template '{template}'." in err) == (2, True)
    with pytest.raises(ConfigError, match="then give ansatz ask --template"):
        list(answer_viewer.respond(checkpoint, problem, "", 1, 0))
    for given in (("--template", template), ("--trust-code",)):
        code, _, err = ansatz(*ask, *given)
        assert (code, err) == (0, "")


def test_a_run_that_is_resumed_with_trust_is_ones_own_from_then_on(tmp_path, model):
    name = f"{Path(__file__).parents[1]}/environments/echo.py:Echo"
    run = as_run(model, tmp_path / "run", full(tmp_path, {"environment": {"name": name}}))
    with pytest.raises(UntrustedCodeError):
        bind_environment(resume_config(run, {}).environment)
    record_of(resume_config(run, {}, trust_code=True)).write(run)
    assert bind_environment(resume_config(run, {}).environment)
