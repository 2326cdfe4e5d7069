"""The stage `preference` in a run: online rounds, pairs from a file, and the same bits after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.cli.explain import objectives_of_stages
from ansatz.errors import ConfigError, DataError
from ansatz.loop.pipeline import run_pipeline
from ansatz.loop.start_checks import check_recipe
from ansatz.rollout.groups import GroupSampler
from ansatz.track.jsonl import read_jsonl
from ansatz.train.local import LocalTrainer

LETTERS = ["a", "e", "i", "o"]  # random weights rarely end a response themselves
ONLINE = {
    "stages": ["preference", "preference"],
    "sft": {"steps": 0},
    "rewards": {f"{Path(__file__).with_name('user_rewards.py')}:every_other": {}},
    "preference": {
        "pairs": {"problems": 6, "samples_per_prompt": 4, "batch": 2, "stop": LETTERS},
        "losses": {"dpo": {"beta": 0.5}, "likelihood": {"weight": 0.1}},
        "steps": 4,
        "batch_size": 12,
        "lr": 1e-3,
        "warmup_steps": 0,
    },
    "evaluate": {"every": 0, "problems": 2, "samples_per_prompt": 2, "k": 2, "stop": LETTERS},
    "save": {"tensorboard": False, "every": 2},
}


def files_of(run):
    """What must have the same bits in two runs: models, pairs, and metrics without times."""
    timed = ("seconds", "time/", "perf/")
    models = {path.relative_to(run): path.read_bytes() for path in run.glob("*/checkpoints/*/model.safetensors")}
    pairs = {path.relative_to(run): path.read_bytes() for path in run.glob("*/pairs.jsonl")}
    metrics = {
        path.relative_to(run): [
            {key: value for key, value in row.items() if not key.startswith(timed)} for row in read_jsonl(path)
        ]
        for path in run.glob("preference*/metrics.jsonl")
    }
    return models, pairs, metrics


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return run_pipeline(toy_config(tmp_path_factory.mktemp("online"), ONLINE))


def test_every_round_makes_new_pairs_and_learns_to_tell_them_apart(online) -> None:
    first, second = (
        [json.loads(line)["id"] for line in (online / name / "pairs.jsonl").read_text().splitlines()]
        for name in ("preference", "preference_2")
    )
    assert first
    assert not {each.partition("#")[0] for each in first} & {each.partition("#")[0] for each in second}
    for name in ("preference", "preference_2"):
        counts, start, *_, last = read_jsonl(online / name / "metrics.jsonl")
        assert counts["preference/pairs"] == len(first if name == "preference" else second)
        assert counts["preference/pass_rate"] == 0.5
        assert start["preference/margin"] == 0  # the reference is the policy at the start of the round
        assert last["preference/margin"] > 0
        assert last["train/loss"] < start["train/loss"]


@pytest.mark.parametrize(
    ("owner", "method", "begun"),
    [(GroupSampler, "run", "responses/rollouts.jsonl"), (LocalTrainer, "update", "checkpoints/step-000002")],
    ids=["while the second round samples", "in the third step of the second round"],
)
def test_a_killed_run_is_resumed_to_the_same_bits(online, tmp_path, monkeypatch, owner, method, begun) -> None:
    config, original = toy_config(tmp_path, ONLINE), getattr(owner, method)
    second_round = config.run_dir / "preference_2"

    def fails(*arguments, **settings):
        if (second_round / begun).exists():
            raise KeyboardInterrupt
        return original(*arguments, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, fails)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(config)
    assert (second_round / begun).exists()
    assert not (second_round / "done.json").exists()
    assert files_of(run_pipeline(config, resume=True)) == files_of(online)


def test_pairs_of_a_file_need_no_sampling_and_no_reference_if_the_loss_has_none(tmp_path) -> None:
    rows = [{"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": str(n + 2)} for n in range(8)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"prompt": "no pair"}]))
    preference = {
        "pairs": {"source": "file", "path": str(path)},
        "losses": {"simpo": {}},
        "steps": 2,
        "batch_size": 4,
    }
    changes = {**ONLINE, "stages": ["preference"], "preference": preference}
    with pytest.raises(DataError, match=r"1 of 9 rows cannot be used.*has no field 'chosen'"):
        run_pipeline(toy_config(tmp_path, changes))
    assert not (tmp_path / "runs").exists()

    run = run_pipeline(toy_config(tmp_path, {**changes, "data": {"unfit": "drop"}}))
    assert not (run / "preference" / "responses").exists()
    assert not list((run / "preference" / "checkpoints" / "step-000002" / "training").glob("reference*"))
    assert read_jsonl(run / "preference" / "metrics.jsonl")[0]["preference/pairs"] == 8
    assert len(json.loads((run / "problems" / "unfit.json").read_text())["preference.pairs"]) == 1


def test_the_reference_of_pairs_stays_the_policy_at_the_start(tmp_path) -> None:
    rows = [{"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": str(n + 2)} for n in range(8)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = {"source": "file", "path": str(tmp_path / "pairs.jsonl")}
    preference = {"pairs": pairs, "losses": {"dpo": {}}, "steps": 2, "batch_size": 4, "lr": 1e-3}
    changes = {**ONLINE, "stages": ["preference"], "preference": preference}
    plain, other = (
        run_pipeline(
            toy_config(tmp_path / str(interval), {**changes, "train": {"reference_update_interval": interval}})
        )
        for interval in (0, 1)
    )
    assert files_of(plain) == files_of(other)


UNPAIRED = [
    {"prompt": f"{n} + {n % 3}?", "completion": f"It is {n + n % 3}" if n % 2 else "No idea", "label": bool(n % 2)}
    for n in range(12)
]


def of_labels(tmp_path: Path, *rows: dict, losses: dict | None = None, **preference):
    """The recipe of one stage that learns from the rows of a file, by default with KTO."""
    path = tmp_path / "labels" / "rows.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows or UNPAIRED))
    settings = {
        "pairs": {"source": "file", "path": str(path)},
        "losses": losses or {"kto": {"beta": 0.5}},
        "steps": 8,
        "batch_size": 8,
        "lr": 3e-3,
        "warmup_steps": 0,
    }
    return toy_config(tmp_path, {**ONLINE, "stages": ["preference"], "preference": settings | preference})


@pytest.fixture(scope="module")
def unpaired(tmp_path_factory):
    return run_pipeline(of_labels(tmp_path_factory.mktemp("unpaired")))


def test_kto_makes_desirable_responses_likelier_and_undesirable_ones_less_likely(unpaired) -> None:
    counts, start, *_, last = read_jsonl(unpaired / "preference" / "metrics.jsonl")
    assert counts["preference/pairs"] == 12
    assert start["preference/margin"] == start["preference/kl"] == 0
    assert start["train/loss"] == pytest.approx(0.5)
    assert last["preference/chosen_logp"] > start["preference/chosen_logp"] + 1
    assert last["preference/rejected_logp"] < start["preference/rejected_logp"] - 1
    assert last["train/loss"] < 0.45
    assert last["preference/kl"] != 0
    assert "preference/accuracy" not in last


def test_a_killed_run_of_kto_is_resumed_to_the_same_bits(unpaired, tmp_path, monkeypatch) -> None:
    config, original = of_labels(tmp_path), LocalTrainer.update

    def fails(*arguments, step, **settings):
        if step == 4:
            raise KeyboardInterrupt
        return original(*arguments, step=step, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(LocalTrainer, "update", fails)
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(config)
    assert files_of(run_pipeline(config, resume=True)) == files_of(unpaired)


def test_kto_learns_from_both_responses_of_pairs(tmp_path) -> None:
    rows = [{"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": "No idea"} for n in range(6)]
    run = run_pipeline(of_labels(tmp_path, *rows, steps=0, epochs=2, batch_size=6))
    counts, *steps = read_jsonl(run / "preference" / "metrics.jsonl")
    assert counts["preference/pairs"] == 6
    assert len(steps) == 4  # two passes over twelve responses
    assert all("preference/kl" in row for row in steps)


def test_kto_learns_from_what_the_policy_answers(tmp_path) -> None:
    changes = {"stages": ["preference"], "preference": {**ONLINE["preference"], "losses": {"kto": {}}, "steps": 1}}
    run = run_pipeline(toy_config(tmp_path, {**ONLINE, **changes}))
    assert read_jsonl(run / "preference" / "metrics.jsonl")[1]["preference/margin"] == 0


@pytest.mark.parametrize(
    ("rows", "losses", "sentence"),
    [
        (UNPAIRED, {"dpo": {}}, "12 of 12 rows cannot be used, all for the same reason."),
        (
            UNPAIRED,
            {"dpo": {}},
            "Labelled responses need preference.losses: {kto: {}}, or reward_model.kind: correctness.",
        ),
        (UNPAIRED[1::2], {"kto": {}}, "the labels of 6 responses are 6 x true and 0 x false"),
        ([{**row, "prompt": "?"} for row in UNPAIRED], {"kto": {}}, "all 12 responses are to the same prompt"),
        ([*UNPAIRED, {**UNPAIRED[0], "label": None}], {"kto": {}}, "1 of 13 rows cannot be used: "),
        ([*UNPAIRED, {**UNPAIRED[0], "completion": "long " * 99}], {"kto": {}}, "1 of 13 rows cannot be used: "),
    ],
    ids=range(6),
)
def test_rows_that_do_not_fit_the_loss_are_refused_before_the_run(tmp_path, rows, losses, sentence) -> None:
    with pytest.raises(DataError) as error:
        run_pipeline(of_labels(tmp_path, *rows, losses=losses))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_explain_says_what_kto_optimises(tmp_path) -> None:
    text = objectives_of_stages(of_labels(tmp_path, losses={"kto": {"undesirable_weight": 1.5}}))
    assert "loss = mean over labelled responses of" in text
    assert "desirable: 1.0 (1 - sigmoid(0.1 (gain - kl))), undesirable: 1.5 (1 - sigmoid(0.1 (kl - gain)))" in text
    assert "kl = max(0, mean gain of mismatched responses in the step)" in text
    assert "score" not in text
    assert f"labelled responses of {tmp_path / 'labels' / 'rows.jsonl'}" in text


def test_a_policy_that_is_always_right_gives_no_pair(tmp_path) -> None:
    changes = {**ONLINE, "rewards": {f"{Path(__file__).with_name('user_rewards.py')}:all_equal": {}}}
    with pytest.raises(DataError, match="give no pair"):
        run_pipeline(toy_config(tmp_path, changes))


@pytest.mark.parametrize(
    ("preference", "sentence"),
    [
        ({"pair": {}}, "preference has no key 'pair'. Did you mean 'pairs'?"),
        ({"pairs": {"source": "flie"}}, "preference.pairs.source = 'flie' is unknown. Did you mean 'file'?"),
        ({"pairs": {"source": "file"}}, "preference.pairs.path is missing."),
        ({"pairs": {"per_promt": 2}}, "preference.pairs has no setting 'per_promt' with source policy. Did you mean"),
        ({"pairs": {"per_prompt": 0}}, "per_prompt = 0: expected 1 or more."),
        ({"pairs": {"pick": "easiest"}}, "pick = 'easiest' is unknown. Known: hardest, random."),
        ({"pairs": {"temperature": -1}}, "preference.pairs.temperature = -1"),
        ({"losses": {"dpoo": {}}}, "preference 'dpoo' is unknown. Did you mean 'dpo'?"),
        ({"divergence": {"name": "kl"}}, "divergence 'kl' is unknown."),
        ({"batch_size": 0}, "preference.batch_size = 0"),
        ({"epochs": 0}, "preference.epochs = 0 with steps = 0 teaches nothing"),
        ({"lr": "fast"}, "preference.lr = 'fast'"),
    ],
    ids=str,
)
def test_a_wrong_section_is_refused_in_a_sentence(tmp_path, preference, sentence) -> None:
    with pytest.raises(ConfigError) as error:
        check_recipe(toy_config(tmp_path, {"preference": preference}))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_explain_says_what_the_rounds_optimise(tmp_path) -> None:
    text = objectives_of_stages(toy_config(tmp_path, ONLINE))
    assert "Stage preference:\nloss = mean over pairs of" in text
    assert "-log sigmoid(0.5 (score_chosen - score_rejected))" in text
    assert "- 0.1 x sum over chosen tokens" in text
    assert "Stage preference_2:\nas stage preference" in text
