"""`ansatz doctor` refuses options that cannot do what they say, before it examines anything."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nodes", "3"], "--nodes 3 has no effect without --cluster."),
        (["--address", "10.0.0.1:6379"], "--address 10.0.0.1:6379 has no effect without --cluster."),
        (["--cluster", "--address", ""], "--address is empty. Give HOST:PORT of a Ray cluster, or leave it out."),
    ],
)
def test_options_without_effect_are_refused(ansatz, arguments, sentence):
    code, out, err = ansatz("doctor", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"ansatz: {sentence}")
    assert err.count("\n") == 1
