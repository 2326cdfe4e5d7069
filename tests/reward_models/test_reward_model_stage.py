"""The stage reward_model in whole toy runs: what it writes, that it resumes to the same bits, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid
from toy_runs import toy_config, toy_recipe
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from ansatz.cli.explain import explain
from ansatz.errors import AnsatzError
from ansatz.evaluate.responses import Response
from ansatz.loop.pipeline import run_pipeline
from ansatz.reward_models.labelled_responses import LabelledGroup, StepPrefixes, read_labelled, samples_of, with_replay
from ansatz.reward_models.stage import RewardModelStage
from ansatz.reward_models.trainer import RewardTrainer
from ansatz.rewards.reasoning_steps import step_ends
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Finish, Problem, Prompt, Reason, Verdict

EVERY_OTHER = f"{Path(__file__).parents[1] / 'loop' / 'user_rewards.py'}:every_other"
SMALL = {
    "samples_per_prompt": 4,
    "problems": 6,
    "steps": 4,
    "batch_size": 3,
    "heldout_problems": 3,
    "heldout_samples": 4,
    "batch": 2,
}
SLIPS = {"source": "word_problems", "split": "heldout", "count": 8, "slip_rate": 0.5, "max_value": 50}
SHORT = {"stop": ["a", "e", "i", "o"]}  # random weights rarely end a response themselves


def changes(kind: str, reward: str, **settings: Any) -> dict[str, Any]:
    return {
        "sft": {"steps": 1},
        "rollout": SHORT,
        "reward_model": {**SMALL, "kind": kind, **settings},
        "rewards": {EVERY_OTHER: {}, reward: {}},
        "train": {"steps": 2},
        "evaluate": {"problems": 2, "samples_per_prompt": 2, "k": 2, "every": 0},
        "save": {"tensorboard": False},
    }


@pytest.fixture(scope="module")
def outcome_run(tmp_path_factory) -> Path:
    config = toy_config(tmp_path_factory.mktemp("outcome"), changes("bradley_terry", "learned"))
    return run_pipeline(config)


def test_an_outcome_model_is_trained_evaluated_and_rewards_rl(outcome_run):
    groups = read_labelled(outcome_run / "reward_model")
    assert groups is not None
    assert len(groups) == 6
    assert list(groups[0].labels) == [[0.0], [1.0], [0.0], [1.0]]
    rows = read_jsonl(outcome_run / "reward_model" / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert {"reward_model/best_of_4", "reward_model/maj_4", "reward_model/pair_accuracy"} <= rows[-1].keys()
    assert "reward_model/maj_4" not in rows[0]
    checkpoint = outcome_run / "reward_model" / "checkpoints" / "step-000004"
    assert AutoModelForSequenceClassification.from_pretrained(checkpoint).config.num_labels == 1
    learned = [row["reward/learned"] for row in read_jsonl(outcome_run / "rl" / "metrics.jsonl")]
    assert len(learned) == 2
    assert all(learned)


def evaluated(ansatz, run: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of `ansatz eval` with the run's reward model."""
    rm = run / "reward_model" / "checkpoints" / "step-000004"
    suite = ("--suite", run / "problems" / "heldout.jsonl", "--problems", 2, "--samples-per-prompt", 4)
    how = ("--reward-model", rm, "--template", "tiny", "--threads", 1, "--max-response-tokens", 24, "--out", out)
    code, printed, err = ansatz("eval", run, *suite, *how, "--stop", "a", "--stop", "e")
    assert (code, err) == (0, "")
    assert "best@4" in printed
    assert "weighted@4" in printed
    return read_jsonl(out / "rollouts.jsonl")


def test_evaluation_scores_each_response_with_the_logit_of_the_last_token(ansatz, outcome_run, tmp_path):
    """Against transformers in float64."""
    rows = evaluated(ansatz, outcome_run, tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["reward_model"]["kind"] == "bradley_terry"
    folder = settings["reward_model"]["path"]
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for row in rows:
        text = f"Question: {row['question']}\nAnswer:\n{row['response']}"
        logit = model(torch.tensor([tokenizer.encode(text)])).logits[0, 0]
        assert row["score"] == pytest.approx(logit.item(), abs=1e-5)
    assert len({row["score"] for row in rows}) > 4
    before = (tmp_path / "out" / "results.json").read_bytes()
    assert ansatz("eval", "--rescore", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "results.json").read_bytes() == before


def rollout_rows(run: Path) -> list[dict[str, Any]]:
    """The rows of all rollouts of RL."""
    return [row for path in sorted((run / "rl" / "samples").glob("step-??????.jsonl")) for row in read_jsonl(path)]


@pytest.mark.parametrize("cut", ["while it samples", "while it trains"])
def test_a_stage_that_is_cut_off_ends_in_the_same_bytes(outcome_run, tmp_path, cut):
    run = tmp_path / "runs" / "toy"
    shutil.copytree(outcome_run, run)
    stage = run / "reward_model"
    (stage / "done.json").unlink()
    shutil.rmtree(run / "rl")
    shutil.rmtree(stage / "checkpoints" / "step-000004")
    if cut == "while it samples":
        shutil.rmtree(stage / "checkpoints")
        (stage / "labelled.jsonl").unlink()
        responses = stage / "responses" / "rollouts.jsonl"
        responses.write_text("".join(responses.read_text().splitlines(keepends=True)[:5]))
    run_pipeline(toy_config(tmp_path, changes("bradley_terry", "learned")), resume=True)
    for name in ("model.safetensors", "training/optimizer.safetensors"):
        path = Path("reward_model", "checkpoints", "step-000004", name)
        assert (run / path).read_bytes() == (outcome_run / path).read_bytes(), name
    assert [row["reward"] for row in rollout_rows(run)] == [row["reward"] for row in rollout_rows(outcome_run)]


@pytest.mark.parametrize("labels", ["exact", pytest.param("soft", marks=pytest.mark.slow)])
def test_a_process_model_rewards_the_steps_of_rl(ansatz, tmp_path, labels):
    recipe = changes("process", "process", labels=labels, slips=SLIPS)
    recipe |= {"algorithm": {"preset": "grpo_process"}, "train": {"steps": 1}}
    if labels == "soft":  # completions need responses of several lines
        recipe |= {"sft": {"steps": 40, "lr": 1e-2}, "rollout": {}}
    run = run_pipeline(toy_config(tmp_path, recipe))
    row = read_jsonl(run / "reward_model" / "metrics.jsonl")[-1]
    assert {"reward_model/first_error_f1", "reward_model/calibration_error"} <= row.keys()
    checkpoint = run / "reward_model" / "checkpoints" / "step-000004"
    assert AutoModelForTokenClassification.from_pretrained(checkpoint).config.num_labels == 1
    assert (run / "reward_model" / "steps").exists() == (labels == "soft")
    steps = [row.get("steps", []) for row in rollout_rows(run)]
    assert sum(map(len, steps)) > 0
    assert all(reward > 0 for each in steps for _, reward in each)
    scores = [row["score"] for row in evaluated(ansatz, run, tmp_path / "out")]
    assert all(score < 0 for score in scores)
    assert len(set(scores)) > 2


def test_a_critic_starts_from_the_reward_model_of_the_run_and_ends_in_the_same_bytes_after_a_cut(tmp_path):
    recipe = changes("process", "process") | {"rewards": {EVERY_OTHER: {}}, "algorithm": {"preset": "ppo"}}
    recipe |= {"train": {"steps": 2, "critic": {"path": "reward_model"}}, "save": {"tensorboard": False, "every": 1}}
    run = run_pipeline(toy_config(tmp_path, recipe))
    reward_model = load_file(run / "reward_model" / "checkpoints" / "step-000004" / "model.safetensors")
    last = run / "rl" / "checkpoints" / "step-000002"
    critic = load_file(last / "training" / "critic.safetensors")
    trained = {name.removeprefix("weights/transformer.") for name in critic if name.startswith("weights/transformer.")}
    assert trained
    assert trained < reward_model.keys()
    assert critic["weights/value.weight"].any()
    before = (last / "training" / "critic.safetensors").read_bytes()
    shutil.rmtree(last)
    (run / "rl" / "done.json").unlink()
    run_pipeline(toy_config(tmp_path, recipe), resume=True)
    assert (last / "training" / "critic.safetensors").read_bytes() == before


def test_an_outcome_model_starts_from_a_process_model_and_does_not_replay_labels_of_steps(tmp_path):
    recipe = changes("correctness", "learned", steps=1, replay=0.5)
    process = {"stage": "reward_model", "reward_model": {"kind": "process"}}
    recipe |= {"stages": ["sft", process, "reward_model", "reward_model"]}
    run = run_pipeline(toy_config(tmp_path, recipe))
    first, second, third = (
        run / name / "checkpoints" / "step-000001" for name in ("reward_model", "reward_model_2", "reward_model_3")
    )
    assert AutoModelForTokenClassification.from_pretrained(first).config.num_labels == 1
    assert AutoModelForSequenceClassification.from_pretrained(second).config.num_labels == 1
    sizes = [json.loads((path / "training" / "state.json").read_text())["loop"]["stream"] for path in (second, third)]
    assert [size["size"] for size in sizes] == [6, 12]  # 6 new problems, and 6 of the second round
    assert (load_file(second / "model.safetensors")["score.weight"] != 0).any()


def test_a_second_round_trains_the_model_on_with_replay_and_rl_renews_its_reference(tmp_path):
    """18 new problems, of which 2 more are 10 % of the whole; the first round has 18 to draw them from."""
    recipe = changes("correctness", "learned", problems=18, batch=18, steps=1)
    recipe |= {"stages": ["sft", "reward_model", "rl", "reward_model", "rl"], "train": {"steps": 1}}
    recipe["algorithm"] = {"preset": "grpo", "kl_coef": 0.1}
    run = run_pipeline(toy_config(tmp_path, recipe))
    first, second = ("reward_model", "reward_model_2")
    model = {name: run / name / "checkpoints" / "step-000001" for name in (first, second, "rl", "rl_2")}
    state = json.loads((model[second] / "training" / "state.json").read_text())["loop"]["stream"]
    assert state["size"] == 20
    assert state["last_id"].endswith("@reward_model")
    weights = {name: load_file(path / "model.safetensors") for name, path in model.items()}
    moved = max(float((weights[second][name] - value).abs().max()) for name, value in weights[first].items())
    assert 0 < moved < 1e-3 / 11 * 1.02  # one step of the warm-up (lr 1e-3), from the weights of the first round
    reference = load_file(model["rl_2"] / "training" / "reference.safetensors")
    assert all(torch.equal(value, weights["rl"][name]) for name, value in reference.items())


@pytest.mark.parametrize("kind", ["bradley_terry", "correctness", "process"])
def test_the_loss_that_explain_prints_is_the_one_that_is_trained(tmp_path, monkeypatch, kind):
    """The mean that the words name, of the scores before each update, is the reported loss."""
    seen = []
    update = RewardTrainer.update

    def watched(self, batch, *, step):
        packed, score_M = batch.packed, self.scores(batch.packed).detach()
        label_M, rollout_M = packed.step_reward_T[packed.step_end_T], packed.segment_T[packed.step_end_T]
        report = update(self, batch, step=step)
        seen.append((score_M, label_M, rollout_M, packed.group_N, report.metrics["train/loss"]))
        return report

    monkeypatch.setattr(RewardTrainer, "update", watched)
    config = toy_config(tmp_path, changes(kind, "learned") | {"train": {"steps": 0}, "rewards": {EVERY_OTHER: {}}})
    run_pipeline(config)
    words = re.match(r"loss = (- )?mean over ([a-z ]+) of", RewardModelStage().explain(config))
    assert words is not None
    for score_M, label_M, rollout_M, group_N, loss in seen[1:]:  # the score head starts at 0
        means = mean_losses(score_M, label_M, rollout_M, group_N)
        assert loss == pytest.approx(means[words[2]], rel=1e-4)
    assert len(seen) == 4


def mean_losses(score_M, label_M, rollout_M, group_N):
    """The loss as a mean over each thing that it could be a mean of."""
    entropy_M = binary_cross_entropy_with_logits(score_M, label_M, reduction="none")
    last = [
        int((rollout_M == rollout).nonzero()[-1]) for rollout in range(len(group_N)) if (rollout_M == rollout).any()
    ]
    score, label, group = score_M[last], label_M[last], group_N[rollout_M[last]]
    pairs = [
        -logsigmoid(score[better] - score[worse])
        for better in range(len(last))
        for worse in range(len(last))
        if group[better] == group[worse] and label[better] > label[worse]
    ]
    return {
        "pairs": torch.stack(pairs).mean().item() if pairs else 0.0,
        "response tokens": entropy_M.mean().item(),
        "labelled tokens": entropy_M.mean().item(),
        "responses": entropy_M[last].mean().item(),
        "reasoning steps": entropy_M[last].mean().item(),
    }


def test_every_round_trains_adapters_of_its_own_on_the_model_of_the_round_before(tmp_path):
    recipe = changes("correctness", "learned", extra_layers=0, steps=1)
    recipe |= {"model": {"lora": {"rank": 2}}, "stages": ["reward_model", "rl", "reward_model"], "train": {"steps": 1}}
    run = run_pipeline(toy_config(tmp_path, recipe))
    first, second = (run / name / "checkpoints" / "step-000001" for name in ("reward_model", "reward_model_2"))
    before, after = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    adapters = load_file(second / "adapter" / "adapter_model.safetensors")
    (name,) = [name for name in adapters if name.endswith("layers.0.self_attn.q_proj.lora_A.weight")]
    a, b = adapters[name], adapters[name.replace("lora_A", "lora_B")]
    added = after["model.layers.0.self_attn.q_proj.weight"] - before["model.layers.0.self_attn.q_proj.weight"]
    torch.testing.assert_close(added, 32 / 2 * b @ a, rtol=1e-3, atol=1e-6)  # alpha / rank
    assert added.any()
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    assert torch.equal(adapters["base_model.model.score.weight"], after["score.weight"])


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({"rewards": {"learned": {}}}, "names no model, and the recipe has no stage reward_model"),
        (changes("process", "learned"), "trains one for the reward 'process'"),
        ({**changes("bradley_terry", "learned"), "rewards": {"learned": {}}}, "Its responses need verdicts"),
        (changes("bradley_terry", "learned", labels="hard"), "labels has no effect with kind: bradley_terry"),
        (changes("bradley_terry", "learned", samples_per_prompt=1), "bradley_terry compares responses"),
        (changes("correctness", "learned", path="nowhere"), "reward_model.path"),
        ({**changes("correctness", "learned"), "model": {"lora": {}}}, "either extra layers are trained or adapters"),
        ({**changes("correctness", "learned"), "model": {"lora": {}, "quantize": "nf4"}}, "with 3 training stages"),
        ({**changes("process", "process"), "rewards": {"process": {"whole": "max"}, "math_answer": {}}}, "whole"),
        ({"algorithm": {"preset": "grpo_process"}}, "Add a reward of steps"),
        ({"algorithm": {"preset": "ppo"}, "train": {"critic": {"path": "reward_model"}}}, "has no such stage"),
        (
            changes("process", "process")
            | {"rewards": {EVERY_OTHER: {}}, "algorithm": {"preset": "ppo"}, "stages": ["sft", "rl", "reward_model"]}
            | {"train": {"steps": 1, "critic": {"path": "reward_model"}}},
            "that stage only after RL",
        ),
    ],
    ids=str,
)
def test_a_recipe_that_could_not_be_rewarded_is_refused(tmp_path, recipe, sentence):
    class Context:
        obj: dict[str, str] = {}  # noqa: RUF012

    with pytest.raises(AnsatzError) as error:
        explain(Context(), toy_recipe(tmp_path, recipe))
    assert sentence in str(error.value)


def group(name: str) -> LabelledGroup:
    return LabelledGroup(id=name, prompt="?", responses=["a"], labels=[[1.0]])


def test_replay_is_the_given_fraction_of_the_whole():
    new, old = [group(f"n{index}") for index in range(18)], [group(f"o{index}") for index in range(30)]
    mixed = with_replay(new, old, frac=0.1, key=(0,))
    assert mixed[:18] == new
    assert len(mixed) == 20
    assert {each.id for each in mixed[18:]} <= {each.id for each in old}
    assert with_replay(new, old, frac=0.1, key=(0,)) == mixed != with_replay(new, old, frac=0.1, key=(1,))
    assert with_replay(new, [], frac=0.1, key=(0,)) == new


class Characters:
    """A tokenizer whose tokens are characters."""

    def __call__(self, text: str, *, return_offsets_mapping: bool) -> dict[str, list[Any]]:
        assert return_offsets_mapping
        spans = [(index, index + 1) for index in range(len(text))]
        return {"input_ids": list(map(ord, text)), "offset_mapping": spans}


@pytest.mark.parametrize(
    ("by_step", "labels", "read", "on_every_token"),
    [
        (True, [1.0, 0.5], [(2, 1.0), (5, 0.5)], [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]),
        (False, [0.0], [(5, 0.0)], [0.0] * 6),
    ],
)
def test_every_token_can_have_the_label_of_its_step_or_of_the_response(by_step, labels, read, on_every_token):
    labelled = LabelledGroup(id="p", prompt="1?", responses=["12\n345", " "], labels=[labels, []])
    (sample,) = samples_of(labelled, Characters(), number=0, step_end="line" if by_step else None)
    assert sample.steps == read
    (sample,) = samples_of(labelled, Characters(), number=0, step_end="line" if by_step else None, every_token=True)
    assert sample.steps == list(enumerate(on_every_token))


@pytest.mark.parametrize(
    ("response", "wrong_from", "labels"),
    [
        ("12\n345\n6", None, [1.0] * 8),
        ("12\n345\n6", 4, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),  # to the end of the second step
        ("12\n345\n6", 0, [0.0] * 3),
        ("12\n ", None, [1.0] * 3),  # the space after the last step belongs to none
    ],
)
def test_tokens_are_right_up_to_the_first_error_and_without_label_after_its_step(response, wrong_from, labels):
    labelled = LabelledGroup(
        id="p", prompt="1?", responses=[response], labels=[[0.0] * len(step_ends(response))], wrong_from=[wrong_from]
    )
    (sample,) = samples_of(labelled, Characters(), number=0, step_end="line", every_token=True)
    assert sample.steps == list(enumerate(labels))


def test_labels_from_completions_share_prefixes_and_the_last_step_has_the_verdict():
    problem = Problem(id="p", question="?", answers=("5",), source="test", split="train")

    def response(text: str, sample: int, *, correct: bool) -> Response:
        verdict = Verdict(correct=correct, reason=Reason.EQUAL if correct else Reason.DIFFERENT)
        fields = {"level": "", "subject": "", "question": "?", "answer": "5", "tokens": 3, "finish": Finish.STOP}
        return Response(id="p", sample=sample, response=text, verdicts={"reward": verdict}, **fields)

    right, wrong = response("a\nb\n5", 0, correct=True), response("a\nc\n6", 1, correct=False)
    prefixes = StepPrefixes.of([Prompt(problem=problem, text="?", token_ids=(1,))], [[right, wrong]], lambda text: [9])
    assert [prompt.text for prompt in prefixes.prompts] == ["?a\n", "?a\nb\n", "?a\nc\n"]
    assert prefixes.prompts[0].token_ids == (1, 9)
    names = [prompt.problem.id for prompt in prefixes.prompts]
    fractions = dict(zip(names, (0.5, 1.0, 0.0), strict=True))
    assert prefixes.labels(right, fractions, hard=False) == [0.5, 1.0, 1.0]
    assert prefixes.labels(wrong, fractions, hard=False) == [0.5, 0.0, 0.0]
    assert prefixes.labels(wrong, fractions, hard=True) == [1.0, 0.0, 0.0]
