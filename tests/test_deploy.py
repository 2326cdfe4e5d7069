"""The files in deploy/ and the commands in docs/cluster.md: syntax, and that what they name exists.

Of all this, only the steps of the image for processors are run, by a slow test.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Iterator
from itertools import pairwise

import pytest
import yaml
from toy_runs import REPOSITORY

from ansatz.cli.verbs import load_verb
from ansatz.config import load_recipe
from ansatz.config.packaged import recipe_path

DEPLOY = REPOSITORY / "deploy"
SLURM, KUBERAY, DOCKERFILE = DEPLOY / "slurm.sh", DEPLOY / "kuberay.yaml", DEPLOY / "Dockerfile"
PAGE = REPOSITORY / "docs" / "cluster.md"


def ray_job() -> dict:
    return yaml.safe_load(KUBERAY.read_text(encoding="utf-8"))


def commands() -> Iterator[list[str]]:
    """Every `ansatz` command of the scripts and the page, as words."""
    page = PAGE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [
        line.removeprefix("$ ") for block in re.findall(r"```\n(.*?)```", page, re.S) for line in block.splitlines()
    ]
    lines += re.split(r"&&|;|\bthen\b|\belse\b|\bfi\b", ray_job()["spec"]["entrypoint"])
    script = re.sub(r"^#.*$", "", SLURM.read_text(encoding="utf-8"), flags=re.M)
    lines += re.findall(r"ansatz (?:train|doctor)[^\n)]*", script)
    for line in lines:
        if line.strip().startswith("ansatz "):
            yield shlex.split(line)


def test_the_slurm_script_is_bash():
    done = subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for option in ("--head", "--block", "--resume", "scontrol requeue"):
        assert option in SLURM.read_text(encoding="utf-8")


def test_every_command_has_options_and_keys_that_exist():
    found = list(commands())
    assert len(found) >= 10
    for _, verb, *words in found:
        known = {name for parameter in load_verb(verb).params for name in parameter.opts}
        for option, value in pairwise([*words, ""]):
            if re.match(r"--\w+\.", option):  # a recipe key
                load_recipe("qwen7b_orz_kimi_8x80gib", overrides=_with_needs(option[2:], value))
            elif option.startswith("--") and option not in ("--name", "--out"):  # these two are keys as well
                assert option in known, (verb, option)


def _with_needs(key: str, value: str) -> dict[str, str]:
    needs = {"cluster.min_trainers": {"cluster.trainers": "64"}, "cluster.min_workers": {"cluster.workers": "64"}}
    value = "10.0.0.1:6379" if value.startswith("$") else value
    return {**needs.get(key, {}), key: value}


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_recipe_and_overlay_of_a_command_is_installed(words: list[str]):
    recipes = [word for word in words if re.fullmatch(r"\w+_(?:\w+_)+\d+x?\w*gib", word)]
    overlays = [value for option, value in pairwise(words) if option == "--overlay"]
    for name in [*recipes, *(name for name in overlays if not name.startswith("$"))]:
        assert recipe_path(name).is_file()


def test_the_manifest_has_one_head_without_gpus_and_the_nodes_that_the_job_waits_for():
    job = ray_job()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-gpus"] == "0"
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert f"--nodes {group['replicas'] + 1} " in job["spec"]["entrypoint"]
    (container,) = group["template"]["spec"]["containers"]
    overlay = load_recipe("qwen32b_dapo17k_dapo_128x80gib", overlays=["16x8x80gib"]).cluster
    gpus = group["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert gpus == overlay.trainers * overlay.trainer_gpus + overlay.workers * overlay.gpus
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in group["template"]["spec"]["volumes"]}
    versions = dict(line.split("==") for line in (REPOSITORY / "constraints.txt").read_text().split() if "==" in line)
    assert cluster["rayVersion"] == versions["ray"]


def stages() -> dict[str, str]:
    """The text of each target of the Dockerfile, with that of the target that it starts from."""
    text: dict[str, str] = {}
    for start, name, body in re.findall(
        r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE.read_text(encoding="utf-8"), re.S | re.M
    ):
        text[name] = text.get(start, "") + body
    return text


def test_the_image_has_the_targets_and_installs_extras_that_exist():
    assert list(stages()) == ["base", "cpu", "cuda-vllm", "cuda"]  # without --target, the last one is built
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for name, text in stages().items():
        for line in re.findall(r"^COPY (.*)$", text, re.M):
            assert all((REPOSITORY / path).exists() for path in line.split()[:-1]), line
        if name == "base":
            continue
        extras = re.search(r"^ARG EXTRAS=(.*)$", text, re.M)
        assert extras is not None
        assert ("vllm" in extras[1].split(",")) == (name == "cuda-vllm") == ("--constraint" not in text)
        for extra in extras[1].split(","):
            assert re.search(rf"^{extra} = \[", project, re.M), extra


@pytest.mark.slow
def test_the_steps_of_the_image_for_processors_work_in_an_empty_environment(tmp_path):
    """Everything except the packages of the system. Without a builder of images, this is what can be run anywhere."""
    folder, environment = tmp_path / "opt", tmp_path / "environment"
    folder.mkdir()
    venv.create(environment, with_pip=True)
    text = stages()["cpu"]
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        *names, target = line.split()
        for name in names:
            source = REPOSITORY / name
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, folder / target if source.is_dir() else folder)
    values = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.M)) | dict(re.findall(r"(RAY_\w+)=(\S+)", text))
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    for step in [*re.findall(r"^RUN (pip .*)$", text, re.M), "ansatz --version", "ansatz recipes"]:
        done = subprocess.run(
            ["sh", "-c", step], cwd=folder, env={**os.environ, **values, "PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{step}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert "tiny_arithmetic_grpo_cpu" in done.stdout
