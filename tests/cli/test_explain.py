"""`ansatz explain`: the memory of a recipe, for the hardware that its comment or the command names."""

import re
import shutil

import pytest
from tiny_models import tiny_folder
from toy_runs import REPOSITORY, toy_recipe
from typer.testing import CliRunner, Result

from ansatz.cli.explain import objectives_of_stages
from ansatz.cli.main import build_app
from ansatz.config import load_recipe
from ansatz.config.schema import FIRST_STAGES
from ansatz.config.stage_list import stage_entries
from ansatz.errors import ConfigError
from ansatz.loop.start_checks import check_recipe
from ansatz.models.load import load_policy
from ansatz.models.lora import add_adapters, save_adapters
from ansatz.models.plan import Hardware, hardware_in, parse_hardware
from examples.judge_server import judge_server

RECIPES = sorted((REPOSITORY / "recipes").glob("*.yaml"))
PUBLISHED = [path for path in RECIPES if "Hardware:" in path.read_text(encoding="utf-8")]
OVERLAY = REPOSITORY / "recipes" / "overlays" / "1x24gib.yaml"
OVERLAYS = {8: "8x80gib", 64: "8x8x80gib", 128: "16x8x80gib"}
COUNTDOWN = REPOSITORY / "recipes" / "qwen3b_countdown_grpo_48gib.yaml"


def explain(*arguments, code: int = 0) -> Result:
    result = CliRunner().invoke(build_app(), ["explain", "--full", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def explained(*arguments, code: int = 0) -> str:
    return explain(*arguments, code=code).output.partition("# Memory\n")[2].partition("# Objective")[0]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_explained_with_its_memory_by_part(recipe):
    """With fewer demonstrations, because explain reads all; the test of the objective of every stage has them all."""
    config = load_recipe(recipe)
    fewer = ["--data.sft.count", "500"] if (config.data.sft or {}).get("count", 0) > 500 else []
    if (config.teacher or {}).get("path", "").startswith("runs/"):  # the model of a run that is not here
        fewer += ["--teacher.path", "null"]
    with judge_server() as url:
        result = explain(recipe, *fewer, *(["--rewards.judge.url", url] if "judge" in config.rewards else []))
    assert result.stderr == ""
    text = result.stdout
    heads = [line for line in text.splitlines() if line.startswith("# ")]
    assert heads[:3] == ["# Arithmetic of a step", "# Memory", "# Objective"]
    for part in ("weights", "Adam moments", "gradient sums", "key/value cache", "microbatch activations"):
        assert re.search(rf"^{part} +\d+\.\d\d [GM]iB  ", text, re.MULTILINE), part


def test_a_published_recipe_is_explained_while_its_judge_does_not_run():
    nobody = ["--rewards.judge.url", "http://127.0.0.1:9/v1", "--rewards.judge.patience_s", "0.2"]
    nobody += ["--data.sft.count", "500"]
    result = CliRunner().invoke(build_app(), ["explain", "tiny_arithmetic_judge_cpu", *nobody], catch_exceptions=False)
    assert result.exit_code == 0
    assert "at http://127.0.0.1:9/v1 does not answer" in result.output


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_stage_of_every_recipe_that_trains_states_its_objective(recipe):
    config = load_recipe(recipe)
    text = objectives_of_stages(config)
    sections = dict(re.findall(r"^Stage (\w+):\n(.*?)(?=^Stage |\Z)", text, re.M | re.S))
    assert list(sections) == [entry.title for entry in stage_entries(config) if entry.name not in FIRST_STAGES]
    for name, body in sections.items():
        if repeated := re.match(r"as stage (\w+), from the model of the stage before it", body):
            assert repeated[1] in sections
            continue
        assert len(re.findall(r"^\w*:? ?loss = ", body, re.MULTILINE)) == 1, name
        wanted = ("advantage", "ratio", "surrogate") if name == "rl" else ("responses", "updates")
        trains_policy = not name.startswith("reward_model")
        for part in (*wanted, *(("weight", "coefficient") if trains_policy else ())):
            assert re.search(rf"^  {part} +\S", body, re.MULTILINE), (name, part)
        without_prompts = re.sub("'.*'", "", body)
        assert not re.search(r"\{\w*\}", without_prompts), f"{name}: a setting is missing in a formula"


@pytest.mark.parametrize("recipe", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_run_fits_its_hardware_with_the_overlay_of_that_size(recipe):
    hardware = hardware_in(recipe.read_text(encoding="utf-8"))
    assert hardware is not None
    text = explained(recipe, *(["--overlay", OVERLAYS[hardware.devices]] if hardware.devices > 1 else []))
    assert f"{hardware}: fits: " in text
    assert "devices are used" not in text


@pytest.mark.parametrize(
    ("recipe", "overlay"),
    [
        ("qwen3b_countdown_grpo_48gib", "1x24gib"),
        ("qwen1_5b_gsm8k_grpo_24gib", "1x24gib"),
        ("qwen3b_countdown_grpo_48gib", "1x80gib"),
        ("qwen7b_orz_kimi_8x80gib", "1x80gib"),
        ("r1qwen1_5b_boba_grpo_64x80gib", "8x80gib"),
        ("r1qwen7b_boba_grpo_64x80gib", "8x80gib"),
    ],
)
def test_a_published_run_fits_smaller_hardware_with_its_overlay(recipe: str, overlay: str):
    memory = overlay.replace("gib", "GiB")
    text = explained(recipe, "--overlay", overlay, "--memory", memory)
    assert f"{parse_hardware(memory)}: fits: " in text


def test_what_does_not_fit_is_refused_with_the_sum():
    dapo = "qwen32b_dapo17k_dapo_128x80gib", "--overlay", "16x8x80gib"
    fewer = explained(*dapo, "--memory", "8x8x80GiB", code=1)
    assert "64 x 80 GiB: does NOT fit" in fewer
    assert "64 trainer ranks x 1 + 16 rollout workers x 4 = 128 devices, and there are 64" in fewer
    assert "128 x 40 GiB: does NOT fit" in explained(*dapo, "--memory", "16x8x40GiB", code=1)
    alone = explained("r1qwen7b_boba_grpo_64x80gib", "--memory", "8x80GiB", code=1)
    assert "1 of 8 devices are used" in alone


@pytest.mark.parametrize("recipe", PUBLISHED, ids=lambda path: path.stem)
def test_a_published_run_names_its_source_hardware_and_differences_in_its_comment(recipe):
    comment = recipe.read_text(encoding="utf-8").partition("\nname:")[0]
    for word in ("Hardware: ", "Differences: "):
        assert f"# {word}" in comment, word
    assert re.search(r"arXiv:|github\.com|examples/|Perplexity", comment)


def test_one_24_gb_gpu_trains_a_3b_model_with_the_overlay_and_not_without():
    assert "24 GiB: fits: 16.58 GiB of 22.08 GiB usable" in explained(COUNTDOWN, "--overlay", OVERLAY)
    assert "24 GiB: does NOT fit" in explained(COUNTDOWN, "--memory", "24GiB", code=1)


def test_the_option_wins_over_the_comment_and_a_toy_run_is_for_this_machine():
    assert "2 x 40 GiB: fits" in explained(COUNTDOWN, "--memory", "2x40GiB")
    assert "48 GiB" not in explained(COUNTDOWN, "--model.toy", "true")


def test_memory_on_a_gpu_without_bfloat16_is_known_with_the_option_that_is_named():
    assumed = explained(COUNTDOWN, "--memory", "96GiB", "--model.dtype", "auto")
    assert "computed in bfloat16" in assumed
    advice = re.search(r"such as T4 and V100\), models compute in float32: add (--model.dtype float32)\.", assumed)
    assert advice
    old = explained(COUNTDOWN, "--memory", "96GiB", *advice[1].split())
    assert "computed in float32" in old
    assert "V100" not in old


def test_an_unknown_model_is_said_to_be_unknown_and_the_rest_is_explained(tmp_path):
    text = explained(toy_recipe(tmp_path, {"model": {"path": "nobody/knows"}}))
    assert text.startswith("not known: model.path = 'nobody/knows' is neither a folder")


OF_3B = {"model": {"path": "Qwen/Qwen2.5-3B", "tiny": {}}, "save": {"keep": 1}}
"""One checkpoint needs 31 GB of free disk, which is checked before anything is explained."""


def test_a_full_disk_is_noted_and_the_rest_is_explained(tmp_path, monkeypatch):
    """Explain writes nothing, and the memory is often asked for another machine."""
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(2**30, 2**29, 2**29))
    output = explain(toy_recipe(tmp_path, OF_3B)).output
    assert "P = 3,085,938,688 parameters" in output.partition("# Memory\n")[2]
    assert len(re.findall(r"^Note: .* need 30\.9 GB, but only 0\.537 GB are free", output, re.MULTILINE)) == 1


def test_adapters_and_a_reference_are_counted(tmp_path):
    recipe = toy_recipe(tmp_path, {**OF_3B, "algorithm": {"kl_coef": 0.1}})
    text = explained(recipe, "--memory", "192GiB", "--model.dtype", "bfloat16")
    assert re.search(r"^reference model +5\.75 GiB", text, re.MULTILINE)
    text = explained(recipe, "--model.lora", "{rank: 8, targets: [q_proj]}")
    assert f"trained: {36 * 8 * (2048 + 2048):,} in adapters" in text
    assert "reference model" not in text
    with pytest.raises(ConfigError, match=r"no linear layer 'q_porj'\. Did you mean 'q_proj'\?"):
        explained(recipe, "--model.lora", "{rank: 8, targets: [q_porj]}")


def test_an_adapter_that_is_continued_is_counted_as_it_is_stored(tmp_path):
    base = tiny_folder(tmp_path / "base")
    policy = add_adapters(load_policy(base), rank=2, targets=("q_proj",))
    weights = {name: value for name, value in policy.model.named_parameters() if value.requires_grad}
    save_adapters(policy, tmp_path / "adapter", weights=weights)
    changes = {"model": {"path": str(base), "tiny": {}, "lora": {"path": str(tmp_path / "adapter")}}}
    expected = sum(value.numel() for value in weights.values())
    assert f"trained: {expected:,} in adapters" in explained(toy_recipe(tmp_path, changes))


def test_a_critic_has_the_size_of_the_model_that_it_starts_from(tmp_path):
    recipe = toy_recipe(
        tmp_path,
        {
            **OF_3B,
            "algorithm": {"preset": "ppo"},
            "train": {"critic": {"path": "Qwen/Qwen2.5-0.5B"}},
        },
    )
    # 494,032,768 weights of the 0.5B model as published, and a value head of 896 weights and a bias
    assert "C = 494,033,665 trained parameters of the critic" in explained(recipe)
    of_policy = explained(recipe, "--train.critic.path", "null")
    assert "C = 3,085,940,737 trained parameters" in of_policy  # 3,085,938,688 and 2,048 and 1
    with_adapters = explained(recipe, "--train.critic.path", "null", "--model.lora", "{rank: 8, targets: [q_proj]}")
    assert f"C = {36 * 8 * (2048 + 2048) + 2049:,} trained parameters" in with_adapters
    unknown = explained(recipe, "--train.critic.path", "nobody/knows")
    assert unknown.startswith("not known: train.critic.path = 'nobody/knows' is neither a folder")


def test_what_a_run_measured_stands_beside_the_arithmetic(tmp_path):
    folder = tmp_path / "mine" / "rl"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(
        '{"step": 1, "seconds": 1.0, "perf/peak_memory_gb": 1.5}\n'
        '{"step": 2, "seconds": 2.0, "perf/peak_memory_gb": 3.0}\n'
    )
    assert "measured by mine: 2.79 GiB peak" in explained(toy_recipe(tmp_path), "--run", tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"--run .*/other: its rl/metrics\.jsonl has no perf/peak_memory_gb"):
        explained(toy_recipe(tmp_path), "--run", tmp_path / "other")


@pytest.mark.parametrize(
    ("text", "hardware"),
    [
        ("24GiB", Hardware(1, 24 * 2**30)),
        ("8x80GiB", Hardware(8, 80 * 2**30)),
        ("2 x 24 GB", Hardware(2, 24 * 10**9)),
        ("16x8x80GiB", Hardware(128, 80 * 2**30)),
        ("1.5gib", Hardware(1, 3 * 2**29)),
    ],
)
def test_memory_is_read_as_people_write_it(text, hardware):
    assert parse_hardware(text) == hardware
    assert hardware_in(f"# What.\n# Hardware: {text} (a comment)\nname: x\n") == hardware


@pytest.mark.parametrize("text", ["24", "0x8GiB", "0GiB", "lots", "8x", "-1GiB"])
def test_other_words_for_memory_are_refused(text):
    with pytest.raises(ConfigError, match=r"--memory .*: expected a device's memory, such as 24GiB"):
        parse_hardware(text)


@pytest.mark.parametrize("recipe", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_run_has_a_toy_size(recipe):
    config = load_recipe(recipe, overrides={"model.toy": "true"})
    assert config.model.built
    assert config.train.steps == 3
    assert {config.data.train["source"], config.data.heldout["source"]} <= {"word_problems", "countdown"}


def objectives(*arguments) -> str:
    result = CliRunner().invoke(build_app(), ["explain", *map(str, arguments)], catch_exceptions=False)
    return result.output.partition("# Objective\n")[2]


def test_the_objective_of_every_stage_is_explained():
    text = objectives("tiny_arithmetic_expert_iteration_cpu", "--train.steps", "4")
    assert re.findall(r"^Stage (\w+):$", text, re.M) == ["sft", "rejection", "rl"]
    assert text.count("loss = - sum over response tokens of weight x log policy") == 2
    assert "responses    the worked solutions of data.sft" in text
    assert "incorrect ones have coefficient 0" in text
    assert "grpo: loss = sum over response tokens" in text


def test_the_arithmetic_is_of_the_stages_of_rl_that_the_recipe_has():
    def arithmetic(*arguments: str) -> str:
        result = CliRunner().invoke(build_app(), ["explain", *arguments], catch_exceptions=False)
        return result.output.partition("# Memory\n")[0]

    several = "[rl, {stage: rl, rollout: {prompts_per_step: 16}, train: {steps: 30}}]"
    text = arithmetic("tiny_arithmetic_grpo_cpu", "--stages", several, "--data.sft", "null")
    assert re.findall(r"^Stage (\w+):\n(\d+) prompts", text, re.M) == [("rl", "64"), ("rl_2", "16")]
    assert re.findall(r"^\d+ steps = [\d,]+ rollouts", text, re.M) == [
        "60 steps = 30,720 rollouts",
        "30 steps = 3,840 rollouts",
    ]
    assert "Stage" not in arithmetic("tiny_arithmetic_grpo_cpu")
    assert arithmetic("tiny_arithmetic_rft_cpu").strip().endswith("\nThe recipe has no stage of RL.")


def test_a_stage_that_the_recipe_leaves_out_is_not_explained():
    text = objectives("tiny_arithmetic_grpo_cpu", "--sft.steps", "0")
    assert re.findall(r"^Stage (\w+):$", text, re.M) == ["rl"]


def test_the_four_settings_of_dapo_are_one_preset_and_explained_in_full():
    text = objectives("qwen32b_dapo17k_dapo_128x80gib")
    for setting in (
        "clip(rho, 1 - 0.2, 1 + 0.28)",
        "weight      1 / response tokens of the step",
        "data.curriculum.dynamic_sampling = 9",
        "rewards.overlong = {'max_tokens': 20480, 'buffer': 4096, 'strength': 1.0}",
    ):
        assert setting in text, setting


def test_the_whole_of_dapo_is_refused_with_the_lines_that_the_recipe_lacks(tmp_path):
    recipe = toy_recipe(tmp_path, {"algorithm": {"preset": "dapo_full"}, "rollout": {"max_response_tokens": 40}})
    advice = "dynamic_sampling: 9 and rewards.overlong: {max_tokens: 40, buffer: 8}, or use preset = 'dapo'"
    with pytest.raises(ConfigError, match=re.escape(advice)):
        check_recipe(load_recipe(recipe))
    with pytest.raises(ConfigError, match=r"Add rewards\.overlong: "):
        check_recipe(load_recipe(recipe, overrides={"data.curriculum": "{dynamic_sampling: 2}"}))
