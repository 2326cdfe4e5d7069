"""`ansatz check` refuses what `ansatz train` refuses, before it samples."""

import pytest
from toy_runs import toy_recipe

from ansatz.certify import check as certify_check


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


def test_the_table_ends_with_how_many_properties_hold(ansatz, tmp_path, monkeypatch):
    measured = {"one": 1e-9, "two": None, "three": 1.0}
    rows = [certify_check.CheckResult(what=what, measured=value, tolerance=1e-6) for what, value in measured.items()]
    monkeypatch.setattr(certify_check, "check_recipe", lambda *_, **__: iter(rows))
    code, out, _ = ansatz("check", toy_recipe(tmp_path), "--algorithm.defaults_of", "verl")
    assert code == 1
    assert out.endswith("2 of 3 hold\n")
    assert out.startswith("toy: defaults of verl ")
