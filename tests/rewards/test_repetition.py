"""The repetition penalty counts n-grams of tokens, as the metric does."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError
from ansatz.rewards.grader import build_grader
from ansatz.rewards.repetition import repetition


def test_a_loop_is_punished_and_a_text_without_one_is_not(rollout):
    group = [rollout("", token_ids=range(50)), rollout("", token_ids=[1, 2] * 25), rollout("", token_ids=[])]
    # 50 tokens have 49 pairs, of which two differ
    assert [j.value for j in repetition(group, ngram=2)] == pytest.approx([0.0, -(1 - 2 / 49), 0.0])


def test_the_allowed_share_is_free_and_the_rest_is_stretched(rollout):
    half = rollout("", token_ids=[1, 1, 1, 2])  # (1,1) (1,1) (1,2): a third is repeated
    assert repetition([half], ngram=2, allowed=0.5)[0].value == 0.0
    assert repetition([half], ngram=2, allowed=0.25)[0].value == pytest.approx(-(1 / 3 - 0.25) / 0.75)


@pytest.mark.parametrize("settings", [{"ngram": 0}, {"allowed": 1.0}, {"allowed": -0.1}])
def test_a_wrong_recipe_is_refused_before_any_work(settings):
    with pytest.raises(ConfigError, match="repetition"):
        build_grader({"repetition": settings})
