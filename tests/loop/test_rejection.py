"""Rejection sampling in whole toy runs, with a reward that calls every other response correct."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fake_grader import FakeGrader
from fake_sampler import FakeSampler
from safetensors.torch import load_file
from tiny_models import tiny_policy
from toy_runs import toy_config

from ansatz.config.stages.core import SftSection
from ansatz.config.stages.rejection import RejectionSection
from ansatz.data.hygiene.select import Candidate
from ansatz.data.store import read_problems
from ansatz.errors import ConfigError, DataError, ModelError
from ansatz.evaluate.selection import Selection
from ansatz.loop.context import RunContext
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.loop.run_sources import RunSources
from ansatz.loop.selection import (
    SELECTED_FILE,
    problems_of_round,
    sample_responses,
    sampling_seconds,
    write_selection,
)
from ansatz.loop.stages.rejection import fine_tuning_config, round_sampling, selection_of
from ansatz.loop.workplace import OwnProcess
from ansatz.rollout.base import Sampling
from ansatz.track.jsonl import append_jsonl, read_jsonl
from ansatz.track.metrics import check_known
from ansatz.track.report import write_report
from ansatz.train.sample import TrainSample
from ansatz.types import Problem, Prompt

REWARDS = Path(__file__).with_name("user_rewards.py")
CORRECT = {f"{REWARDS}:every_other": {}}
REJECTION = {"samples_per_prompt": 4, "per_prompt": 1, "problems": 10, "batch": 4, "sft": {"steps": 4}}


def config(folder, rejection=None, **more_changes):
    folder.mkdir(exist_ok=True)
    changes = {
        "rejection": {**REJECTION, **(rejection or {})},
        "rewards": CORRECT,
        "train": {"steps": 0},
        "rollout": {"max_response_tokens": 16},
        "evaluate": {"problems": 2},
        "save": {"tensorboard": False},
        "data": {"sft": None},
    }
    return toy_config(folder, {**changes, **more_changes})


@pytest.fixture
def ending(monkeypatch):
    """Random weights rarely end a response; here every response counts as finished."""
    monkeypatch.setattr(
        "ansatz.evaluate.selection.candidate",
        lambda response, mode="": Candidate(
            problem_id=response.id,
            sample=response.sample,
            text=response.response,
            tokens=response.tokens,
            correct=response.verdicts["reward"].correct,
            finished=True,
            transcript=response.transcript,
            observations=response.observations,
        ),
    )
    monkeypatch.setattr("ansatz.loop.rendering.LengthChecker.fits_demonstration", lambda self, problem: True)
    monkeypatch.setattr("ansatz.loop.rendering.render_demonstration", unlimited)


def unlimited(problem, template, tokenizer, **_):
    from ansatz.prompts.render import render_demonstration

    return render_demonstration(problem, template, tokenizer)


def untimed(rows):
    return [{k: v for k, v in row.items() if k != "seconds" and not k.startswith(("time/", "perf/"))} for row in rows]


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(left, right):
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)


def test_a_round_stores_all_responses_and_teaches_selected_correct_ones(tmp_path, ending):
    run = run_pipeline(config(tmp_path / "a"))
    folder = run / "rejection_1"
    rows = read_jsonl(folder / "responses" / "rollouts.jsonl")
    assert [row["verdicts"]["reward"]["correct"] for row in rows] == [False, True] * 20
    taught = read_jsonl(folder / "selected.jsonl")
    texts = {f"{row['id']}#{row['sample']}": row["response"] for row in rows if row["sample"] % 2}
    assert len(taught) == 10
    assert all(texts[row["id"]] == row["solution"] for row in taught)
    report = json.loads((folder / "selected.report.json").read_text())
    assert (report["responses"], report["kept"], report["kinds"]["wrong"]) == (40, 10, 20)
    first, *steps = read_jsonl(folder / "metrics.jsonl")
    assert (first["step"], first["rejection/pass_rate"], first["rejection/kept_frac"]) == (0, 0.5, 0.25)
    assert (first["rejection/taught_responses"], first["rejection/taught_problems_frac"]) == (10, 1)
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    check_known([name for name in first if name not in ("step", "seconds")])
    summary = json.loads((run / "summary.json").read_text())
    assert [(row["stage"], row["step"]) for row in summary["evaluations"]] == [("model", 0), ("rejection_1", 4)]
    assert summary["model"] == str(folder / "checkpoints" / "step-000004")
    page = write_report(run).read_text()
    assert "Curves: rejection_1" in page
    assert "pass@1 after rejection_1, step 4" in page


def test_what_an_environment_answers_is_not_taught(tmp_path, ending, monkeypatch):
    taught = []
    of_demonstration = TrainSample.from_demonstration

    def keep(demonstration, **fields):
        taught.append(demonstration)
        return of_demonstration(demonstration, **fields)

    monkeypatch.setattr(TrainSample, "from_demonstration", keep)
    echo = f"{Path(__file__).parents[1] / 'environments' / 'echo.py'}:Greeting"
    run = run_pipeline(
        config(tmp_path / "a", environment={"name": echo, "turns": 3}, rollout={"max_response_tokens": 40})
    )
    rows = read_jsonl(run / "rejection_1" / "selected.jsonl")
    answered = [row for row in rows if row["meta"].get("observations")]
    assert answered
    for row in answered:
        for start, end in row["meta"]["observations"]:
            text = row["solution"][start:end]
            assert text.startswith("<")
            assert text.endswith(">") or end == len(row["solution"])  # the length limit cut it off
    assert all(f"Rule {row['id'].partition('#')[0]}: be brief." in row["question"] for row in rows)
    assert any(not all(demonstration.assistant_mask) for demonstration in taught)
    assert all("Rule " in demonstration.prompt.text for demonstration in taught)


@pytest.mark.parametrize("from_start", [False, True])
def test_rounds_sample_from_the_newest_policy_and_train_it_or_the_start(tmp_path, ending, monkeypatch, from_start):
    sampled, trained = [], []
    make_sampler, make_trainer = RunContext.sampler, OwnProcess.place

    def folder_of(policy):
        return str(Path(policy.path).relative_to(tmp_path / "a" / "runs" / "toy"))

    monkeypatch.setattr(
        RunContext,
        "sampler",
        lambda self, policy, **options: sampled.append(folder_of(policy)) or make_sampler(self, policy, **options),
    )
    monkeypatch.setattr(
        OwnProcess,
        "place",
        lambda self, spec, folder: trained.append(Path(spec.path).name) or make_trainer(self, spec, folder),
    )
    run = run_pipeline(config(tmp_path / "a", {"rounds": 2, "from_start": from_start}))
    last = "rejection_1/checkpoints/step-000004"
    # one sampler for the evaluation of the model stage, then two for each round: the responses and the evaluation
    assert sampled[1] == "model"
    assert sampled[3] == last
    assert trained == ["model", "model" if from_start else "step-000004"]
    first, second = (read_jsonl(run / f"rejection_{n}" / "responses" / "rollouts.jsonl") for n in (1, 2))
    assert [row["response"] for row in first] != [row["response"] for row in second]
    stages = [row["stage"] for row in json.loads((run / "summary.json").read_text())["evaluations"]]
    assert stages == ["model", "rejection_1", "rejection_2"]


def test_a_teacher_is_sampled_from_and_the_policy_is_taught(tmp_path, ending):
    teacher = run_pipeline(config(tmp_path / "teacher")) / "rejection_1" / "checkpoints" / "step-000004"
    run = run_pipeline(config(tmp_path / "a", {"teacher": str(teacher)}, seed=1))
    initial = weights(run / "model")
    assert not same(weights(teacher), initial)
    rows = read_jsonl(run / "rejection_1" / "responses" / "rollouts.jsonl")
    without_teacher = run_pipeline(config(tmp_path / "b", seed=1))
    assert rows != read_jsonl(without_teacher / "rejection_1" / "responses" / "rollouts.jsonl")
    taught = weights(run / "rejection_1" / "checkpoints" / "step-000004")
    assert max(float((taught[name] - initial[name]).abs().max()) for name in initial) < 4 * 10 * 2e-3


@pytest.mark.parametrize("at", ["sampling", "teaching"])
def test_an_interrupted_and_resumed_round_ends_with_the_same_bytes(tmp_path, ending, monkeypatch, at):
    whole = run_pipeline(config(tmp_path / "a"))
    with monkeypatch.context() as interrupting:
        if at == "sampling":
            interrupting.setattr(
                "ansatz.evaluate.response_store.append_jsonl",
                interrupts_after(22, append_jsonl),
            )
        else:
            interrupting.setattr(
                "ansatz.loop.stages.sft.TrainSample.from_demonstration",
                interrupts_after(25, TrainSample.from_demonstration),
            )
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(config(tmp_path / "b"))
    interrupted = tmp_path / "b" / "runs" / "toy"
    assert (interrupted / "rejection_1" / "selected.jsonl").exists() == (at == "teaching")
    resumed = run_pipeline(resume_config(interrupted), resume=True)
    for name in ("responses/rollouts.jsonl", "responses/settings.json", "selected.jsonl"):
        assert (resumed / "rejection_1" / name).read_bytes() == (whole / "rejection_1" / name).read_bytes()
    seconds = json.loads((resumed / "rejection_1" / "done.json").read_text())["seconds"]
    assert seconds >= sampling_seconds(resumed / "rejection_1") > 0
    rows = [untimed(read_jsonl(run / "rejection_1" / "metrics.jsonl")) for run in (whole, resumed)]
    assert rows[0] == rows[1]
    last = [run / "rejection_1" / "checkpoints" / "step-000004" / "model.safetensors" for run in (whole, resumed)]
    assert last[0].read_bytes() == last[1].read_bytes()


def interrupts_after(count, function):
    calls = iter(range(count))

    def interrupted(*arguments, **settings):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **settings)

    return interrupted


def test_a_round_without_a_correct_response_is_an_error_with_the_counts(tmp_path):
    with pytest.raises(DataError, match=r"none of 40 responses can be taught \(cut_off 20, wrong 20\)"):
        run_pipeline(config(tmp_path / "a", rollout={"max_response_tokens": 2}))


def test_rl_starts_from_the_last_round(tmp_path, ending):
    run = run_pipeline(config(tmp_path / "a", train={"steps": 1}))
    stages = [row["stage"] for row in json.loads((run / "summary.json").read_text())["evaluations"]]
    assert stages == ["model", "rejection_1", "rl"]
    taught = weights(run / "rejection_1" / "checkpoints" / "step-000004")
    reinforced = weights(run / "rl" / "checkpoints" / "step-000001")
    assert max(float((reinforced[name] - taught[name]).abs().max()) for name in taught) < 10 * 1e-4


def test_rejection_sft_overrides_the_sft_section(tmp_path):
    recipe = toy_config(tmp_path, {"sft": {"steps": 9, "batch_size": 3, "lr": 1e-3}})
    other = recipe.model_copy(update={"rejection": RejectionSection(sft={"steps": 2, "decay_steps": 1})})
    taught = fine_tuning_config(other).section(SftSection)
    assert (taught.steps, taught.decay_steps, taught.batch_size, taught.lr) == (2, 1, 3, 1e-3)
    assert other.section(SftSection).steps == 9
    same = recipe.model_copy(update={"rejection": RejectionSection()})
    assert fine_tuning_config(same) == same


def test_no_round_shares_its_noise_with_another_or_with_a_step_of_rl(tmp_path):
    steps = [round_sampling(toy_config(tmp_path, {"rejection": {}}), number).step for number in (1, 2, 3)]
    assert len(set(steps)) == 3
    assert max(steps) < 0


@pytest.mark.parametrize(
    ("rejection", "sentence"),
    [
        ({"samples_per": 4}, "rejection has no key 'samples_per'. Did you mean 'samples_per_prompt'"),
        ({"samples_per_prompt": 0}, r"rejection\.samples_per_prompt = 0: it should be greater than 0"),
        ({"samples_per_prompt": "many"}, r"rejection\.samples_per_prompt = 'many'"),
        ({"rounds": 0}, r"rejection\.rounds = 0"),
        ({"rounds": 10**9}, r"rejection\.rounds = 1000000000: it should be less than or equal to 1000"),
        ({"pick": "longest"}, "pick = 'longest' is unknown"),
        ({"per_prompt": 0}, "per_prompt = 0"),
        ({"template": "boxed"}, r"rejection\.template is the prompt template of the teacher"),
        ({"from_start": True}, "from_start has no effect with one round"),
        ({"teacher": "nowhere"}, "'nowhere'"),
        ({"sft": {"step": 3}}, "sft has no key 'step'. Did you mean 'steps'"),
        ({"sft": {"steps": 0}}, "a round with 0 steps of fine-tuning learns nothing"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, rejection, sentence):
    with pytest.raises(Exception, match=sentence) as error:
        run_pipeline(toy_config(tmp_path, {"rejection": rejection}))
    assert isinstance(error.value, ConfigError | ModelError)
    assert not (tmp_path / "runs").exists()


def test_the_section_has_the_settings_of_the_selection():
    section = RejectionSection.model_validate({"per_prompt": 3, "pick": "shortest", "temperature": 0.7})
    assert selection_of(section) == Selection(per_prompt=3, pick="shortest")
    with pytest.raises(ConfigError, match="expected at least 1 response per problem"):
        selection_of(RejectionSection.model_validate({"per_prompt": -1}))


def test_each_round_takes_the_next_problems_and_none_twice():
    problems = [Problem(id=name, question="?", answers=("1",), source="test", split="train") for name in "abcde"]
    taken = ["".join(problem.id for problem in problems_of_round(problems, number=n, size=2)) for n in (1, 2, 3, 4)]
    assert taken == ["ab", "cd", "ea", "bc"]
    assert [problems_of_round(problems, number=3, size=n) for n in (0, 5, 6)] == [problems] * 3


def test_a_response_over_a_limit_of_the_recipe_is_rejected(tmp_path, ending):
    prompts = [
        Prompt(
            problem=Problem(id=name, question="?", answers=("1",), source="test", split="train"),
            text="?",
            token_ids=(1,),
        )
        for name in "ab"
    ]
    responses = sample_responses(
        cast("RunContext", SimpleNamespace(grader=FakeGrader(), console=None)),
        tmp_path,
        prompts,
        sampler=FakeSampler(lambda prompt, sample: f"{prompt.problem.id}{sample}"),
        sampling=Sampling(num_samples=2, max_response_tokens=9),
        batch=2,
    )
    write_selection(
        tmp_path,
        responses,
        [prompt.problem for prompt in prompts],
        selection=Selection(),
        seed=0,
        fits=lambda problem: problem.solution != "a1",
        seconds=1.0,
    )
    problems = read_problems(tmp_path / SELECTED_FILE)
    assert sorted(problem.solution or "" for problem in problems) == ["a0", "b0", "b1"]
    assert json.loads((tmp_path / "selected.report.json").read_text())["kinds"] == {"no_fit": 1}


def test_at_toy_size_wrong_responses_are_taught_if_none_is_correct(tmp_path):
    """Random weights answer nothing correctly, and a toy run is to go through every stage."""
    recipe = config(tmp_path, rewards={"math_answer": {}})
    with pytest.raises(DataError, match="can be taught"):
        run_pipeline(recipe)
    toy = recipe.model_copy(update={"name": "small", "model": recipe.model.model_copy(update={"toy": ("all",)})})
    run = run_pipeline(toy)
    report = json.loads((run / "rejection_1" / "selected.report.json").read_text())
    assert report["kept"] == 10
    assert report["pass_rate"] == 0
    assert [row["step"] for row in read_jsonl(run / "rejection_1" / "metrics.jsonl")] == [0, 1, 2, 3, 4]


def test_a_demonstration_that_is_one_token_too_long_does_not_fit(tmp_path):
    recipe = toy_config(tmp_path, {"rollout": {"max_response_tokens": 4}, "data": {"template": "none"}})
    policy = tiny_policy()
    lengths = RunSources(recipe).lengths(policy)
    short, long = (
        Problem(id="p", question="t5", answers=("1",), source="test", split="train", solution=" ".join(["t7"] * count))
        for count in (3, 4)
    )
    assert lengths.fits_demonstration(short)  # three tokens and the end
    assert not lengths.fits_demonstration(long)
