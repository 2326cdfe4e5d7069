from __future__ import annotations

import pytest

from ansatz.config import renamed


@pytest.mark.parametrize("form", ["{old}", "{old}=1"])
def test_an_old_option_is_refused_with_its_new_name(ansatz, form):
    for verbs, options in renamed.OPTIONS.items():
        for old, new in options.items():
            code, _, err = ansatz(*verbs, form.format(old=old))
            assert code == 2
            assert f"{old} is now called {new}" in err


def test_other_verbs_may_use_the_same_option():
    renamed.check_options(["data", "split", "FILE", "--min-share", "1"])
