"""What all built-in rewards have in common, and what docs/rewards.md says of them."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml
from chat_server import ChatServer
from given import build_grader
from tiny_models import tiny_token_classifier

from ansatz.registry import settings_of
from ansatz.rewards.base import INJECTED, rewards

DOCS = Path(__file__).parents[2] / "docs"
PAGE, SETTINGS = ((DOCS / name).read_text(encoding="utf-8") for name in ("rewards.md", "settings_rewards.md"))
NEEDED = {
    "kimi_length": {"from_step": 0},
    "overlong": {"max_tokens": 8, "buffer": 4},
    "target_length": {"target_tokens": 4},
    "cosine_length": {"max_tokens": 8},
    "judge": {"model": "m"},
}
META = {"nums": [2, 3], "target": 5, "tests": ["assert f(2) == 4"], "steps": [[2, "+", 3, 5]]}


def recipe(name: str, server: ChatServer, folder: Path) -> dict:
    settings = dict(NEEDED.get(name, {}))
    if name == "judge":
        settings["url"] = server.url
    if name == "agreement":
        return {"math_answer": {}, "judge": {"model": "m", "url": server.url}, name: settings}
    if name == "learned":
        (folder / "flat.py").write_text("class Flat:\n    def score(self, rollouts): return [0.5] * len(rollouts)\n")
        settings["model"] = f"{folder}/flat.py:Flat"
    if name == "process":
        settings["model"] = tiny_token_classifier(folder)
    return {"math_answer": {}, name: settings}


@pytest.mark.parametrize("name", rewards.names())
def test_every_reward_gives_one_finite_value_a_rollout_and_its_part_is_kept_apart(name, rollout, tmp_path):
    if name == "reasoning_gym":
        pytest.skip("it refuses problems of other sources; see tests/data/test_reasoning_gym.py")
    texts = [r"<think>a</think>\boxed{5}", "", "```python\nprint(5)\n```", "<answer>2 + 3</answer>", "\ud800 \x00"]
    group = [rollout(text, meta=META, sample=n, tokens=n) for n, text in enumerate(texts)]
    with ChatServer(lambda request: "INCORRECT") as server, build_grader(recipe(name, server, tmp_path)) as grader:
        scored = grader.score(group)
        assert grader.score([]) == []
    assert len(scored) == len(group)
    for item in scored:
        assert math.isfinite(item.score.parts[name])
        assert item.score.value == pytest.approx(sum(item.score.parts.values()))


@pytest.mark.parametrize("name", rewards.names())
def test_every_reward_is_explained_and_each_of_its_settings_is_listed(name):
    assert re.search(rf"^## {name}\n", PAGE, re.MULTILINE), f"docs/rewards.md needs a section '## {name}'"
    assert f"](#{name})" in PAGE, f"the table of docs/rewards.md needs the row [{name}](#{name})"
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", SETTINGS, re.DOTALL | re.MULTILINE)
    assert section is not None, f"docs/settings_rewards.md lacks {name}; run `make docs`"
    settings = settings_of(rewards.get(name)).keys() - set(INJECTED)
    assert [setting for setting in sorted(settings) if f"- `{setting}`: " not in section[1]] == []


def test_the_examples_of_user_rewards_run_as_they_are_printed(rollout, tmp_path, monkeypatch):
    section = PAGE[PAGE.index("## Your own") :]
    blocks = re.findall(r"```(python|yaml)\n(.*?)```", section, re.DOTALL)
    (tmp_path / "my_rewards.py").write_text("\n\n".join(text for kind, text in blocks if kind == "python"))
    rewards = yaml.safe_load(next(text for kind, text in blocks if kind == "yaml"))["rewards"]
    monkeypatch.chdir(tmp_path)
    group = [rollout(r"check \boxed{5}"), rollout(r"check \boxed{6}"), rollout(r"\boxed{5}")]
    with build_grader({**rewards, "my_rewards.py:mentions_a_check": {"weight": 0.1, "bonus": 0.5}}) as grader:
        scored = grader.score(group)
    assert [item.score.value for item in scored] == pytest.approx([1 + 0.2 + 0.1 * 0.5, 0.0, 1 + 0.2])
    assert scored[0].score.parts["my_rewards.py:mentions_a_check"] == 0.5
