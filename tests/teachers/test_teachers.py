"""Teachers: losses and advantages against float64, prompts, and whole runs at toy size."""

from __future__ import annotations

import dataclasses
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_models import some_sequences, tiny_policy
from torch import Tensor
from toy_runs import cut_off, toy_config

from ansatz.config.schema import TrainSection
from ansatz.errors import ConfigError, ModelError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.run_folder import resume_config
from ansatz.models.load import Policy
from ansatz.models.reader import reader_of
from ansatz.models.tiny import build_tiny_model
from ansatz.objectives.build import build_objective
from ansatz.teachers.prompts import TaughtSample, _values_of_rollout, filled
from ansatz.teachers.settings import ONLY, TeacherSettings
from ansatz.teachers.trainer import TaughtTrainer
from ansatz.train.checkpoint import DIGESTS_FILE
from ansatz.train.optim import Schedule
from ansatz.train.sample import TrainSample
from ansatz.types import Finish, Group, Problem, Prompt, Reason, Rollout, Score, ScoredRollout, Verdict

TEMPERATURE, OF_TEACHER = 0.7, 1.3


def rows() -> list[TrainSample]:
    """Two responses to each of two prompts."""
    return [
        TrainSample(
            prompt_ids=[3, 4, 5, *range(6, 6 + index // 2)],
            token_ids=response,
            behavior_logps=[-1.0] * len(response),
            group=index // 2,
            reward=float(index % 2),
        )
        for index, response in enumerate(some_sequences(4, 9, 6, 7, seed=1))
    ]


def other_policy(by: float = 0.05) -> Policy:
    """A policy with weights of its own, and the same tokenizer."""
    policy = tiny_policy()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(by * torch.sin(torch.arange(parameter.numel()).view(parameter.shape).float()))
    return policy


def trainer_of(algorithm: dict[str, Any], *, teachers: Any = None, loaded: Any = None, **more: Any) -> TaughtTrainer:
    return TaughtTrainer(
        more.pop("policy", None) or tiny_policy(),
        build_objective(algorithm, max_response_tokens=9),
        teachers=teachers or {ONLY: TeacherSettings(path="other", temperature=OF_TEACHER)},
        loaded={ONLY: other_policy()} if loaded is None else loaded,
        settings=TrainSection(**more),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-2),
        temperature=TEMPERATURE,
    )


def privileged(samples: list[TrainSample]) -> list[TrainSample]:
    """The samples with a longer prompt for the teacher, another one for each, and a forced first token in some."""
    taught = list[TrainSample]()
    for place, sample in enumerate(samples):
        given = {field.name: getattr(sample, field.name) for field in dataclasses.fields(TrainSample)}
        if place % 3 == 0 and len(sample.token_ids) > 1:
            given["sampled_mask"] = [False] + [True] * (len(sample.token_ids) - 1)
        ids = (*sample.prompt_ids, *range(3, 5 + place % 4))
        taught.append(TaughtSample(**given, teacher=ONLY, teacher_ids=ids))
    return taught


def dense(policy: Policy, prompt: Any, response: Any, temperature: float) -> Tensor:
    """Log-probs [tokens of the response, V] in float64, of a forward pass without packing."""
    ids = torch.tensor([[*prompt, *response]])
    logits_TV = policy.model(input_ids=ids).logits[0].double() / temperature
    return logits_TV.log_softmax(-1)[len(prompt) - 1 : -1]


def kl(p: Tensor, q: Tensor) -> Tensor:
    return (p.exp() * (p - q)).sum(-1)


def jsd(p: Tensor, q: Tensor, mixing: float) -> Tensor:
    m = (mixing * q.exp() + (1 - mixing) * p.exp()).log()
    return mixing * kl(q, m) + (1 - mixing) * kl(p, m)


def tail(p: Tensor, q: Tensor, k: int) -> Tensor:
    """Token by token, with sets: the union of the two top k, and one entry for the rest."""
    values = []
    for p_V, q_V in zip(p, q, strict=True):
        union = sorted({*p_V.topk(k).indices.tolist(), *q_V.topk(k).indices.tolist()})
        p_S, q_S = p_V[union].exp(), q_V[union].exp()
        rest_p, rest_q = 1 - p_S.sum(), 1 - q_S.sum()
        values.append((p_S * (p_S / q_S).log()).sum() + rest_p * (rest_p / rest_q).log())
    return torch.stack(values)


DIVERGENCES: dict[str, tuple[Any, Any]] = {
    "full": ("full", kl),
    "full_reverse": ("full_reverse", lambda p, q: kl(q, p)),
    "jsd": ({"name": "jensen_shannon", "mixing": 0.3}, lambda p, q: jsd(p, q, 0.3)),
    "jsd_0": ({"name": "jensen_shannon", "mixing": 0.0}, lambda p, q: kl(q, p)),
    "jsd_1": ({"name": "jensen_shannon", "mixing": 1.0}, kl),
    "top_k": ({"name": "top_k", "k": 3}, lambda p, q: tail(p, q, 3)),
    "top_k_forward": ({"name": "top_k", "k": 3, "of": "reference"}, lambda p, q: tail(q, p, 3)),
}


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.parametrize("prompts", [list, privileged])
def test_the_loss_and_its_gradient_equal_plain_float64_ones(name: str, prompts: Any) -> None:
    component, divergence = DIVERGENCES[name]
    trainer = trainer_of({"preset": "gkd", "kl": component})
    samples = prompts(rows())
    expected, num_tokens = torch.zeros((), dtype=torch.float64), 0
    assert trainer.reference is not None
    for sample in samples:
        p = dense(trainer.policy, sample.prompt_ids, sample.token_ids, TEMPERATURE)
        ids = getattr(sample, "teacher_ids", ()) or sample.prompt_ids
        q = dense(trainer.reference, ids, sample.token_ids, OF_TEACHER).detach()
        mask = torch.tensor(sample.sampled_mask or [True] * len(sample.token_ids))
        expected = expected + divergence(p, q)[mask].sum()
        num_tokens += int(mask.sum())
    expected = expected / num_tokens
    names, parameters = zip(*trainer.policy.model.named_parameters(), strict=True)
    gradients = dict(zip(names, torch.autograd.grad(expected, parameters), strict=True))
    found: dict[str, Tensor] = {}
    step = trainer.optimizer.step

    def watched(**settings: Any) -> float:
        masters = trainer.optimizer.masters.items()
        found.update({name: master.grad.clone() for name, master in masters if master.grad is not None})
        return step(**settings)

    trainer.optimizer.step = watched  # type: ignore[method-assign]
    report = trainer.update(trainer.batch(samples), step=1)
    assert report.metrics["train/loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    assert expected > 1e-3
    norm = torch.cat([value.flatten() for value in gradients.values()]).norm()
    for each, value in gradients.items():
        assert (found[each].double() - value).norm() <= 1e-4 * norm, each


@pytest.mark.parametrize("prompts", [list, privileged])
def test_the_advantage_is_the_log_ratio_of_teacher_and_policy_at_each_token(prompts: Any) -> None:
    trainer = trainer_of({"preset": "opd", "kl_coef": 0.5, "kl": {"name": "k1", "clamp_out": 0.05}})
    samples = prompts(rows())
    batch = trainer.batch(samples)
    assert trainer.reference is not None
    beyond = 0
    for index, place in enumerate(batch.packed.sample_N.tolist()):
        sample = samples[place]
        target = torch.tensor(sample.token_ids)[:, None]
        p = dense(trainer.policy, sample.prompt_ids, sample.token_ids, TEMPERATURE).gather(-1, target)[:, 0]
        ids = getattr(sample, "teacher_ids", ()) or sample.prompt_ids
        q = dense(trainer.reference, ids, sample.token_ids, OF_TEACHER).gather(-1, target)[:, 0]
        mask = torch.tensor(sample.sampled_mask or [True] * len(sample.token_ids))
        expected = -0.5 * (p - q).clamp(-0.05, 0.05)[mask]
        beyond += int(((p - q).abs() > 0.05).sum())
        got = batch.advantage_T[(batch.segment_T == index) & batch.sampled_mask_T]
        torch.testing.assert_close(got.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    assert beyond  # the clip had something to do
    again = trainer.token_logps(samples, of_reference=True)
    assert [len(each.logps) for each in again] == [len(sample.token_ids) for sample in samples]


OPD = {"preset": "opd"}
SHORT = {"evaluate": {"problems": 2, "every": 0}, "save": {"tensorboard": False}}  # teachers have no part in these
HINT = "{question}\n\nWorked solution: {solution}\n\nIn short: {answer}"


def weights(run: Path) -> dict[str, Tensor]:
    last = max((run / "rl" / "checkpoints").glob("step-*"))
    return load_file(last / "model.safetensors")


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all((left[name] == right[name]).all() for name in left)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a toy run without RL."""
    changes = {**SHORT, "train": {"steps": 0}, "sft": {"steps": 6}}
    run = run_pipeline(toy_config(tmp_path_factory.mktemp("teacher"), changes))
    return max((run / "sft" / "checkpoints").glob("step-*"))


def taught(folder: Path, teacher: Any, algorithm: Any = None, **changes: Any) -> Path:
    recipe = {"algorithm": algorithm or OPD, "teacher": teacher, "sft": {"steps": 1}, **changes}
    return run_pipeline(toy_config(folder, {**SHORT, **recipe}))


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (OPD, {}),
        ({"preset": "gkd"}, {"prompt": HINT}),
        pytest.param(
            {"preset": "grpo", "kl_to": "teacher", "kl_coef": 0.5, "kl_in": "advantage", "kl": "k1"},
            {},
            marks=pytest.mark.slow,
        ),
        ({"preset": "gkd", "kl": "full"}, {"path": None, "average": 0.9, "prompt": HINT}),
    ],
    ids=["log_ratio", "divergence_with_hint", "with_rewards", "average"],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, teacher: Path, algorithm: Any, settings: Any) -> None:
    of_teacher = {"path": str(teacher), **settings}
    whole = taught(tmp_path / "whole", of_teacher, algorithm)
    cut = cut_off(whole, tmp_path, stage="rl", step=2)
    resumed = run_pipeline(resume_config(cut), resume=True)
    assert resumed == cut
    assert same(weights(whole), weights(resumed))
    assert not same(weights(whole), load_file(whole / "sft" / "checkpoints" / "step-000001" / "model.safetensors"))
    stored = sorted(path.name for path in (whole / "rl" / "checkpoints" / "step-000004" / "training").iterdir())
    assert ("reference.safetensors" in stored) == (settings.get("path", "") is None)


def test_no_privileged_text_reaches_the_policy(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[TaughtSample] = []
    batch = TaughtTrainer.batch

    def watched(self: TaughtTrainer, samples: Any, **more: Any) -> Any:
        seen.extend(samples)
        return batch(self, samples, **more)

    monkeypatch.setattr(TaughtTrainer, "batch", watched)
    run = taught(tmp_path, {"path": str(teacher), "prompt": HINT}, train={"steps": 1})
    tokenizer = reader_of(run / "model").tokenizer
    problems = {row["question"]: row for row in map(json.loads, (run / "problems" / "train.jsonl").open())}
    assert seen
    for sample in seen:
        policys, teachers = (tokenizer.decode(ids) for ids in (sample.prompt_ids, sample.teacher_ids))
        (problem,) = [row for question, row in problems.items() if question in policys]
        assert "Worked solution" not in policys
        assert problem["solution"] not in policys
        assert problem["solution"] in teachers


@pytest.mark.parametrize(
    ("settings", "algorithm", "message"),
    [
        ({"path": "/no/such/folder"}, OPD, r"teacher\.path = '/no/such/folder' is not a folder"),
        ({"pth": "x"}, OPD, "teacher has no setting 'pth'. Did you mean 'path'"),
        ({"prompt": "{solution}"}, OPD, r"teacher\.prompt has no \{question\}"),
        ({"prompt": "{question} {gold}"}, OPD, r"field \{gold\}. Known: \{question\}"),
        ({"average": 1.0}, OPD, r"teacher\.average = 1: expected at least 0 and less than 1"),
        ({"path": "x", "average": 0.5}, OPD, r"teacher\.average = 0\.5 has no effect on a teacher with a path"),
        ({}, {"preset": "grpo"}, "the section teacher has no effect"),
        (None, OPD, 'kl_to = "teacher", but the recipe has no teacher'),
        ({"by_source": {"a": {"by_source": {}}}}, OPD, r"teacher\.by_source\.a\.by_source"),
        ({"by_source": {"a": {"average": 0.9}}}, OPD, r"teacher\.average differs between the teachers without a path"),
    ],
)
def test_a_wrong_teacher_is_refused_before_anything_is_written(
    tmp_path: Path, settings: Any, algorithm: Any, message: str
) -> None:
    with pytest.raises((ConfigError, ModelError), match=message):
        taught(tmp_path, settings, algorithm)
    assert not (tmp_path / "runs").exists()


def test_a_source_that_no_problem_has_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(9)))
    data = {"train": {"source": "jsonl", "split": "train", "path": str(file)}}
    taught(tmp_path, {"by_source": {f"{tmp_path.name}/mine": {"prompt": HINT}}}, OPD, data=data, train={"steps": 1})
    with pytest.raises(ConfigError, match=r"teacher\.by_source\.mien: no problem of data\.train"):
        taught(tmp_path / "again", {"by_source": {"mien": {"prompt": HINT}}}, OPD, data=data, train={"steps": 1})


def test_no_model_is_held_besides_the_policy_and_the_teachers() -> None:
    teachers = {name: TeacherSettings(path=name) for name in (ONLY, "other")}
    loaded = {name: other_policy() for name in teachers}
    trainer = trainer_of({"preset": "opd"}, teachers=teachers, loaded=loaded)
    assert trainer.reference is not None
    assert trainer.reference.model is loaded[ONLY].model


def test_a_teacher_with_another_tokenizer_is_refused(tmp_path: Path, teacher: Path) -> None:
    build_tiny_model(tmp_path / "student", texts=["12+3=15"], hidden_size=16, num_layers=1, max_context=300)
    with pytest.raises(ConfigError, match=r"its tokens are not those of the policy.*rejection"):
        taught(
            tmp_path,
            {"path": str(teacher)},
            model={"path": str(tmp_path / "student")},
            data={"unfit": "drop"},
            rollout={"max_response_tokens": 64, "max_prompt_tokens": 200},
        )
    assert not (tmp_path / "runs").exists()


def test_a_student_that_is_built_has_the_tokens_of_its_teacher(tmp_path: Path, teacher: Path) -> None:
    run = taught(tmp_path, {"path": str(teacher)}, OPD, model={"tiny": {"vocab_size": 300}}, train={"steps": 1})
    own, teachers = (reader_of(path).tokenizer.get_vocab() for path in (run / "model", teacher))
    assert own == teachers
    by_source = {"by_source": {"word_problems": {"path": str(teacher)}}}
    other = taught(tmp_path / "other", by_source, OPD, model={"tiny": {"vocab_size": 300}}, train={"steps": 1})
    assert reader_of(other / "model").tokenizer.get_vocab() == teachers
    assert len(own) > 300


def test_a_problem_has_the_teacher_of_its_source(
    tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_source = {"word_problems": {"path": str(teacher), "prompt": HINT}}
    seen: list[TaughtSample] = []
    batch = TaughtTrainer.batch
    monkeypatch.setattr(
        TaughtTrainer, "batch", lambda self, samples, **more: seen.extend(samples) or batch(self, samples, **more)
    )
    run = taught(tmp_path, {"by_source": by_source}, {"preset": "gkd"}, train={"steps": 1})
    assert {(sample.teacher, bool(sample.teacher_ids)) for sample in seen} == {("word_problems", True)}
    assert (run / "rl" / "checkpoints").exists()


@pytest.mark.parametrize("algorithm", [{"preset": "opd"}, {"preset": "gkd", "kl": "full"}])
def test_each_response_is_compared_with_its_own_teacher(algorithm: dict[str, Any]) -> None:
    """Two teachers in one batch give the advantages and the loss of two batches with one teacher each."""
    teachers = {name: TeacherSettings(path=name) for name in (ONLY, "other")}
    loaded = {ONLY: other_policy(0.05), "other": other_policy(-0.05)}
    samples = privileged(rows())
    mixed = [dataclasses.replace(sample, teacher=("", "other")[place % 2]) for place, sample in enumerate(samples)]
    both = trainer_of(algorithm, teachers=teachers, loaded=loaded).batch(mixed)
    for index, place in enumerate(both.packed.sample_N.tolist()):
        name = ("", "other")[place % 2]
        alone = trainer_of(algorithm, teachers={ONLY: TeacherSettings(path=name)}, loaded={ONLY: loaded[name]})
        expected = alone.batch([dataclasses.replace(mixed[place], teacher=ONLY)])
        got_T = both.segment_T == index
        assert both.ref_logp_T is not None
        assert expected.ref_logp_T is not None
        torch.testing.assert_close(both.ref_logp_T[got_T], expected.ref_logp_T)
    report = trainer_of(algorithm, teachers=teachers, loaded=loaded)
    assert report.update(report.batch(mixed), step=1).num_updates == 1


def test_nothing_that_a_teacher_s_folder_names_is_imported(tmp_path: Path, teacher: Path) -> None:
    folder = tmp_path / "evil"
    shutil.copytree(teacher, folder, ignore=shutil.ignore_patterns(DIGESTS_FILE))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name, target in (("config.json", "AutoModelForCausalLM"), ("tokenizer_config.json", "AutoTokenizer")):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**config, "auto_map": {target: "evil.Model"}}))
    with suppress(ModelError):
        taught(tmp_path, {"path": str(folder)}, train={"steps": 1})
    assert not (tmp_path / "ran").exists()


def test_a_prompt_has_only_the_paragraphs_whose_fields_have_a_value() -> None:
    text = "{question}\n\nA right response: {response}\n\nOf yours: {verdict}"
    values = {"question": "1 + {x}?", "response": "", "verdict": "The final answer is wrong."}
    assert filled(text, values) == "1 + {x}?\n\nOf yours: The final answer is wrong."
    assert filled(text, {**values, "verdict": ""}) == "1 + {x}?"


def test_a_response_is_shown_another_correct_one_and_why_it_is_wrong() -> None:
    group = group_of({"It is 3": False, "It is 2": True, "So 2": True})
    found = [_values_of_rollout(group, member) for member in group.members]
    assert [values["response"] for values in found] == ["It is 2", "So 2", "It is 2"]
    assert [values["verdict"] for values in found] == ["The final answer is wrong.", "", ""]


def group_of(responses: dict[str, bool]) -> Group:
    problem = Problem(id="p", question="1 + 1?", answers=("2",), source="s", split="train")
    prompt = Prompt(problem=problem, text="1 + 1?", token_ids=(1,))
    of_rollout: dict[str, Any] = {"token_ids": (2,), "behavior_logps": (0.0,), "finish": Finish.STOP, "seed": 0}
    versions = {"version_min": 0, "version_max": 0}
    members = [
        ScoredRollout(
            rollout=Rollout(prompt=prompt, text=text, sample=index, **of_rollout, **versions),
            score=Score(
                value=float(correct),
                parts={},
                verdict=Verdict(correct=correct, reason=Reason.EQUAL if correct else Reason.DIFFERENT),
            ),
        )
        for index, (text, correct) in enumerate(responses.items())
    ]
    return Group(prompt=prompt, members=tuple(members))
