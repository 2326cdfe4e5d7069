"""What holds for every stage, and what `ansatz explain` and `ansatz train` refuse before anything is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from toy_runs import toy_config, toy_recipe

from ansatz.cli.explain import explain
from ansatz.cli.train import train
from ansatz.config.recipe import list_stages
from ansatz.errors import AnsatzError
from ansatz.loop import rendering, run_sources
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.stages.plan import find_stage

FOLDER = Path(__file__).parents[2] / "ansatz" / "loop" / "stages"


def test_every_declared_stage_is_a_module_and_every_module_a_declared_stage() -> None:
    modules = {f"ansatz.loop.stages.{path.stem}" for path in FOLDER.glob("*.py")}
    modules -= {f"ansatz.loop.stages.{name}" for name in ("__init__", "plan", "stage")}
    declared = {declaration.runs.partition(":")[0] for declaration in list_stages()}
    assert modules == declared - {"ansatz.reward_models.stage"}  # a feature with a folder of its own
    assert [find_stage(each).declaration for each in list_stages()] == list(list_stages())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"data": {"train": {"source": "word_problem", "split": "train"}}},
            "data source 'word_problem' is unknown. Did you mean",
        ),
        ({"data": {"train": {"max_stepz": 2}}}, "has no setting 'max_stepz'. Did you mean 'max_steps'?"),
        ({"data": {"heldout": {"source": "jsonl", "split": "x"}}}, "needs the setting 'path'"),
        ({"data": {"template": "tinny"}}, "'tinny'"),
        ({"data": {"curriculum": {"sampler": "varianze"}}}, "Did you mean 'variance'?"),
        ({"rewards": {"math_anser": {}}}, "reward 'math_anser' is unknown. Did you mean 'math_answer'?"),
        ({"rewards": {"math_answer": {"mode": "lenient"}}}, "mode"),
        ({"model": {"tiny": {"hiden_size": 8}}}, "model.tiny has no setting 'hiden_size'. Did you mean 'hidden_size'?"),
        ({"model": {"lora": {"rnak": 2}}}, "model.lora has no setting 'rnak'. Did you mean 'rank'?"),
        ({"rollout": {"engine": {"name": "natve"}}}, "Did you mean 'native'?"),
        ({"rejection": {"rounds": 0}}, "rejection.rounds = 0: it should be greater than 0."),
        ({"rejection": {"sft": {"steps": 0}}}, "a round with 0 steps of fine-tuning learns nothing."),
        ({"algorithm": {"preset": "grppo"}}, "Did you mean"),
        ({"algorithm": {"preset": "grpo_process"}}, "algorithm.advantage"),
        ({"rollout": {"samples_per_prompt": 1}}, "rollout.samples_per_prompt = 1"),
        ({"train": {"optimizer": {"name": "sgd"}}}, "sgd"),
    ],
    ids=str,
)
def test_explain_and_train_refuse_a_recipe_with_the_same_sentence(tmp_path, changes, sentence) -> None:
    recipe, sentences = toy_recipe(tmp_path, changes), []
    for verb in (explain, train):
        with pytest.raises(AnsatzError) as error:
            verb(Context(), recipe)
        sentences.append(str(error.value))
    assert sentences[0] == sentences[1]
    assert sentence in sentences[0]
    assert "\n" not in sentences[0]
    assert not (tmp_path / "runs").exists()


class Context:
    """What the command line hands to a verb: no overrides."""

    obj: dict[str, str] = {}  # noqa: RUF012


def test_a_run_reads_and_renders_each_problem_once(tmp_path, monkeypatch) -> None:
    """Two RL steps of 4 problems in an epoch of 4, two evaluations after the first: everything occurs several times."""
    read, rendered = Counter[str](), Counter[str]()
    original_read, original_render = run_sources.read_problems, rendering.render

    def counted_read(path):
        read[path.name] += 1
        return original_read(path)

    def counted_render(problem, *arguments, **settings):
        rendered[problem.id] += 1
        return original_render(problem, *arguments, **settings)

    monkeypatch.setattr(run_sources, "read_problems", counted_read)
    monkeypatch.setattr(rendering, "render", counted_render)
    changes = {
        "data": {"train": {"count": 4}},
        "sft": {"steps": 0},
        "train": {"steps": 2},
        "rollout": {"max_response_tokens": 16},
        "evaluate": {"every": 1},
        "save": {"tensorboard": False},
    }
    run_pipeline(toy_config(tmp_path, changes))
    assert read == {"train.jsonl": 1, "heldout.jsonl": 1}
    assert sorted(rendered.values())[-2:] == [1, 2], "the first problem is rendered once more, to be shown"
    assert len(rendered) == 4 + 6  # the training problems, and those of the evaluations
