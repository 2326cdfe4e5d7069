"""`ansatz eval` and its relatives on a random model: suites, templates, engines and rewards."""

from __future__ import annotations

import json

import pytest
from fake_vllm import FakeEngine, FakePublisher
from toy_runs import toy_config

from ansatz.config.chat import FewShotTemplate
from ansatz.config.load import dump
from ansatz.config.stage_list import stage_entries
from ansatz.errors import ConfigError
from ansatz.locks import folder_lock
from ansatz.loop.model_recipe import choose_template
from ansatz.loop.run_folder import write_config
from ansatz.loop.run_record import record_of
from ansatz.rollout import engines
from ansatz.rollout.vllm.sampler import VllmSampler

HOW = ("--threads", 1, "--batch", 2, "--samples-per-prompt", 2, "--max-response-tokens", 8)


@pytest.fixture
def suites(tmp_path):
    for name, answers in {"first": ["the origin", "\\frac{"], "second": ["4"]}.items():
        (tmp_path / name).mkdir()
        rows = [{"question": f"{index} pens?", "answer": answer} for index, answer in enumerate(answers)]
        (tmp_path / name / "test.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    return f"{tmp_path}/first/test.jsonl,{tmp_path}/second/test.jsonl"


def settings_of(folder):
    return json.loads((folder / "settings.json").read_text())


def test_several_suites_give_one_table_and_a_folder_each(ansatz, model, suites, tmp_path):
    out = tmp_path / "out"
    code, text, err = ansatz("eval", model, "--suite", suites, *HOW, "--out", out)
    assert (code, err) == (0, "")
    assert "template: chat (the tokenizer has a chat template)" in text
    assert text.count("pass@1 [95 %] by suite, %") == 1
    results = {name: json.loads((out / name / "results.json").read_text()) for name in ("first", "second")}
    length = {name: f"{result['scores']['mean_length']:.1f}" for name, result in results.items()}
    assert [line.split()[:3] for line in text.splitlines() if line.strip().startswith(("first ", "second "))] == [
        ["first", "2", length["first"]],
        ["second", "1", length["second"]],
    ]
    assert "first: 1 of 2 gold answers are words, which are compared as text" in text
    assert "first: 1 of 2 gold answers cannot be read, so no response to them is correct" in text
    assert "second:" not in text
    assert settings_of(out / "first")["suite"]["name"] == "first"
    assert results["second"]["scores"]["golds_as_text"] == 0
    assert max(map(len, text.splitlines())) <= 100
    rows = json.loads((out / "first" / "cost.json").read_text())["lines"]["all"]
    assert [row["k"] for row in rows] == [1, 2]


def test_a_field_that_nothing_uses_is_named_and_a_folder_of_suites_without_use_is_refused(ansatz, model, tmp_path):
    file = tmp_path / "mine.jsonl"
    row = {"question": "How many are left?", "context": "There were nine pens, and five are gone.", "answer": "4"}
    file.write_text(json.dumps(row) + "\n")
    code, _, err = ansatz("eval", model, "--suite", file, *HOW, "--out", tmp_path / "out")
    assert code == 0
    assert f"{file}: nothing uses the field 'context' (1 of 1 rows)" in err
    code, _, err = ansatz("eval", model, "--suite", file, "--suites", tmp_path, *HOW)
    assert code == 2
    assert "has no effect on files and generators. Leave it out." in " ".join(err.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--wait", "Hm"), "--wait has no effect without --min-thinking-budget or --thinking-budgets."),
        (("--closing", "So: </think>"), "--closing has no effect without --thinking-budget or --thinking-budgets."),
    ],
)
def test_an_option_that_needs_another_one_is_refused_without_it(ansatz, model, suites, words, sentence):
    code, _, err = ansatz("eval", model, "--suite", suites, *HOW, *words)
    assert code == 2
    assert sentence in " ".join(err.split())


def test_two_suites_of_one_name_are_refused(ansatz, model, suites):
    first = suites.split(",")[0]
    code, _, err = ansatz("eval", model, "--suite", f"{first},{first}", *HOW)
    assert code == 2
    assert "two suites are called 'first'" in err


def test_the_template_is_that_of_the_run_of_a_checkpoint(tmp_path):
    checkpoint = tmp_path / "run" / "rl" / "checkpoints" / "step-000003"
    checkpoint.mkdir(parents=True)
    assert choose_template(checkpoint, has_chat_template=True)[0] == "chat"
    assert choose_template(checkpoint, has_chat_template=False)[0] == "boxed"
    config = toy_config(tmp_path, {"data": {"template": "gsm8k"}})
    (tmp_path / "run" / "config.yaml").write_text(dump(config))
    record_of(config).write(tmp_path / "run")
    assert choose_template(checkpoint, has_chat_template=True) == ("gsm8k", "as in the run run")
    config = toy_config(tmp_path, {"data": {"template": "gsm8k"}, "evaluate": {"template": "boxed"}})
    (tmp_path / "run" / "config.yaml").write_text(dump(config))
    record_of(config).write(tmp_path / "run")
    assert choose_template(checkpoint, has_chat_template=True) == ("gsm8k", "as in the run run")
    chosen = choose_template(checkpoint, has_chat_template=True, evaluates=True)
    assert chosen == ("boxed", "evaluate.template of the run run")
    (tmp_path / "run" / "config.yaml").write_text("train: {stepz: 3}")
    with pytest.raises(ConfigError, match=r"whose template cannot be read: .*stepz.* Give --template"):
        choose_template(checkpoint, has_chat_template=True)


def test_the_template_is_that_of_the_entry_of_stages_that_made_a_checkpoint(tmp_path):
    own = {"name": "gsm8k", "shots": str(tmp_path / "few.jsonl")}
    (tmp_path / "few.jsonl").touch()
    config = toy_config(tmp_path, {"stages": ["rl", {"stage": "rl", "data": {"template": own}}]})
    for entry in stage_entries(config):
        (tmp_path / "run" / entry.title / "checkpoints" / "step-000003").mkdir(parents=True)
        write_config(entry.config, tmp_path / "run" / entry.title)
    write_config(config, tmp_path / "run")
    record_of(config).write(tmp_path / "run")
    for stage, chosen in {
        "rl": ("tiny", "as in the run run"),
        "rl_2": (FewShotTemplate.model_validate(own), "as in the stage rl_2 of the run run"),
    }.items():
        checkpoint = tmp_path / "run" / stage / "checkpoints" / "step-000003"
        assert choose_template(checkpoint, has_chat_template=True, evaluates=True) == chosen


@pytest.fixture
def fake_vllm(monkeypatch):
    """The engine vllm with a fake instead of vLLM. Returns the fakes that were started."""
    started = []

    def fake(policy, *, max_concurrent):
        engine = FakeEngine(vocab_size=policy.head.weight.shape[0])
        started.append((engine, max_concurrent))
        return VllmSampler(policy, engine=engine, publisher=FakePublisher(), max_context=policy.max_context)

    monkeypatch.setitem(engines.ENGINES._entries, "vllm", fake)
    return started


def test_vllm_writes_the_same_format(ansatz, model, suites, tmp_path, fake_vllm):
    file = suites.split(",")[0]
    commands = {
        "eval": ("eval", model, "--suite", file),
        "sample": ("sample", model, "--data", file),
        "difficulty": ("data", "difficulty", file, "--model", model, "--work"),
        "filter": ("data", "filter", file, "--model", model, "--drop", "guessed", "--work"),
    }
    for name, command in commands.items():
        keys = []
        for engine in ("native", "vllm"):
            folder = tmp_path / f"{name}-{engine}"
            place = ("--out", folder) if command[-1] != "--work" else (folder, "--out", tmp_path / "rows.jsonl")
            code, _, err = ansatz(*command, *place, *HOW, "--engine", engine)
            assert (code, err) == (0, "")
            rows = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
            keys.append([list(row) for row in rows])
            assert settings_of(folder).get("engine", "native") == engine
        assert keys[0] == keys[1]
        assert len(keys[0]) == 4
    assert [number for _, number in fake_vllm] == [4] * 4
    assert all(engine.events[-1] == "kill" for engine, _ in fake_vllm)


def test_an_unknown_engine_is_refused(ansatz, model, suites):
    code, _, err = ansatz("eval", model, "--suite", suites, "--engine", "sglang")
    assert (code, err) == (2, "ansatz: --engine = 'sglang': expected native or vllm.\n")


def test_countdown_is_graded_by_its_own_reward(ansatz, model, tmp_path):
    out = tmp_path / "out"
    arguments = ("eval", model, "--suite", "countdown", "--problems", 2, *HOW, "--out", out)
    code, text, err = ansatz(*arguments)
    assert (code, err) == (0, "")
    assert "reward" in text
    assert settings_of(out)["rewards"] == {"countdown": {}}
    scores = json.loads((out / "results.json").read_text())["scores"]
    assert "strict" not in scores
    assert "golds_as_text" not in scores
    assert scores["reward"]["pass@1"] == 0.0
    before = (out / "rollouts.jsonl").read_bytes()
    assert ansatz(*arguments)[0] == 0
    assert (out / "rollouts.jsonl").read_bytes() == before
    assert "need the problems, not only their answers" in ansatz("eval", "--rescore", out)[2]
    code, text, _ = ansatz("compare", out, out)
    assert code == 0
    assert "pass@1 (reward)" in text


def test_a_file_of_rewards_grades_what_the_verifier_cannot(ansatz, model, suites, tmp_path):
    rewards = tmp_path / "rewards.yaml"
    reward = tmp_path / "rewards.py"
    reward.write_text(
        "from ansatz.rewards.base import RewardResult\n"
        "def last(rollouts, *, samples=0):\n"
        "    return [RewardResult(value=float(rollout.sample == samples)) for rollout in rollouts]\n"
    )
    rewards.write_text(f"rewards:\n  '{reward}:last': {{samples: 1}}\n")
    out = tmp_path / "out"
    arguments = ("eval", model, "--suite", suites.split(",")[0], *HOW)
    code, _, err = ansatz(*arguments, "--rewards", rewards, "--out", out)
    assert (code, err) == (0, "")
    scores = json.loads((out / "results.json").read_text())["scores"]
    assert scores["reward"]["pass@1"] == 0.5  # the second of two responses
    assert "reward 'countdwn' is unknown" in ansatz(*arguments, "--rewards", "countdwn")[2]
    assert "the file 'none.yaml' does not exist" in ansatz(*arguments, "--rewards", "none.yaml")[2]


def test_responses_of_an_edited_template_or_reward_are_not_used_again(ansatz, model, suites, tmp_path):
    template, shots, reward, out = (tmp_path / name for name in ("my.txt", "shots.jsonl", "mine.py", "out"))
    template.write_text("{question} Say 1.\n")
    shots.write_text(json.dumps({"question": "2 caps?", "solution": "1"}) + "\n")
    reward.write_text("def all_right(rollouts):\n    return [1.0 for _ in rollouts]\n")
    few_shot = f"{{name: '{template}', shots: '{shots}', num_shots: 1}}"
    arguments = ("eval", model, "--suite", suites.split(",")[1], *HOW, "--out", out)
    arguments += ("--template", few_shot, "--rewards", f"{reward}:all_right")
    code, _, err = ansatz(*arguments)
    assert (code, err) == (0, "")
    assert list(settings_of(out)["files"]) == sorted(map(str, (template, shots, reward)))
    for file in (template, shots, reward):
        before = file.read_text()
        file.write_text(before.replace("1", "3"))
        code, _, err = ansatz(*arguments)
        assert code == 2
        assert "holds responses with files = " in err
        file.write_text(before)
    assert ansatz(*arguments)[0] == 0


def test_a_folder_that_another_process_fills_is_refused_and_a_draft_is_not(ansatz, model, suites, tmp_path):
    arguments = ("eval", model, "--suite", suites.split(",")[0], *HOW, "--out", tmp_path / "out")
    with folder_lock(tmp_path / "out"):
        code, _, err = ansatz(*arguments)
        assert code == 2
        assert "is in use by the process with pid" in err
    (tmp_path / "out" / ".settings.json.draft").write_text("{")  # as a killed call leaves it
    code, _, err = ansatz(*arguments)
    assert (code, err) == (0, "")
