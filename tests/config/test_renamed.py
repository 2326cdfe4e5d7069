from __future__ import annotations

import pytest

from ansatz.config import renamed
from ansatz.config.load import load_recipe
from ansatz.config.schema import Config, flat_keys
from ansatz.errors import ConfigError

RECIPE = "recipes/tiny_arithmetic_grpo_cpu.yaml"


@pytest.mark.parametrize(("old", "new"), renamed.RECIPE_KEYS.items())
def test_an_old_recipe_key_is_refused_with_its_new_name(old, new):
    with pytest.raises(ConfigError, match=rf"^{old} is now called {new}\."):
        load_recipe(RECIPE, overrides={old: "1"})


def test_old_names_of_sections_with_a_schema_are_gone_from_it():
    keys = flat_keys(Config.model_fields["train"].default.model_dump(), "train.").keys()
    keys |= flat_keys(Config.model_fields["rollout"].default.model_dump(), "rollout.").keys()
    keys |= flat_keys(Config.model_fields["evaluate"].default.model_dump(), "evaluate.").keys()
    assert not keys & renamed.RECIPE_KEYS.keys()
    assert {new for new in renamed.RECIPE_KEYS.values() if new.startswith(("train.", "rollout.", "evaluate."))} <= keys
