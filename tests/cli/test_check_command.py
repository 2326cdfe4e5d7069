"""`ansatz check` refuses what `ansatz train` refuses, before it samples."""

import pytest
from toy_runs import toy_recipe


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--rollout.max_response_tokens", "100000"], "over the model's context of"),
        (["--rollout.engine", "{name: native, max_concurrent: x}"], "max_concurrent = 'x'"),
        (["--data.heldout", "{source: nowhere, split: heldout}"], "data source 'nowhere' is unknown."),
        (["--rollout.lag", "1"], "algorithm.correction"),
        (["--train.optimizer.name", "adamm"], "optimizer 'adamm' is unknown."),
    ],
)
def test_what_train_refuses_is_one_sentence(ansatz, tmp_path, arguments, sentence):
    code, out, err = ansatz("check", toy_recipe(tmp_path), "--prompts", "1", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
