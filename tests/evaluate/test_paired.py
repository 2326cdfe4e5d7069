from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from ansatz.cli.compare import compare
from ansatz.errors import ConfigError, DataError
from ansatz.evaluate.comparisons import comparison, paired, sign_test
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.responses import MODES, Response, to_row
from ansatz.track.jsonl import write_jsonl
from ansatz.types import Finish, Reason, Verdict


def responses(shares: dict[str, str], *, level: str = "1", answer: str = "5") -> list[list[Response]]:
    """{"a": "1100"}: problem a, of four responses the first two right (in every reading)."""
    return [
        [
            Response(
                id=name,
                sample=index,
                level=level,
                subject="",
                question=f"{name}?",
                answer=answer,
                response="",
                tokens=1,
                finish=Finish.STOP,
                verdicts=dict.fromkeys(
                    MODES,
                    Verdict(correct=mark == "1", reason=Reason.EQUAL if mark == "1" else Reason.DIFFERENT),
                ),
            )
            for index, mark in enumerate(marks)
        ]
        for name, marks in shares.items()
    ]


def compared(a: dict[str, str], b: dict[str, str], **how: int):
    return comparison(paired(responses(a), responses(b)), mode="strict", seed=0, **how)


@pytest.mark.parametrize(("wins_a", "wins_b"), [(0, 0), (1, 0), (1, 1), (0, 6), (2, 7), (5, 5), (8, 3)])
def test_the_sign_test_counts_all_equally_likely_outcomes(wins_a: int, wins_b: int) -> None:
    """Of all 2^n ways in which n coins fall: the share at least as far from even."""
    far = abs(wins_a - wins_b)
    ways = [sum(coins) for coins in product((0, 1), repeat=wins_a + wins_b)]
    expected = sum(abs(2 * heads - (wins_a + wins_b)) >= far for heads in ways) / len(ways)
    assert sign_test(wins_a, wins_b) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wins_a", "wins_b", "printed"),  # scipy.stats.binomtest(wins_a, wins_a + wins_b) 1.17.1
    [(0, 6, 0.03125), (3, 9, 0.14599609375), (12, 25, 0.04703102743951604), (40, 61, 0.046044066929342785), (7, 7, 1)],
)
def test_the_sign_test_is_scipys_binomial_test(wins_a: int, wins_b: int, printed: float) -> None:
    assert sign_test(wins_a, wins_b) == pytest.approx(printed, rel=1e-12)


def test_the_numbers_are_those_that_one_finds_by_hand() -> None:
    a = {"p": "1100", "q": "0000", "r": "1111", "s": "1000"}
    b = {"s": "0000", "r": "1111", "q": "1111", "p": "1110"}
    numbers = compared(a, b)
    assert (numbers["a"], numbers["b"]) == (pytest.approx(7 / 16), pytest.approx(11 / 16))
    assert numbers["difference"] == pytest.approx(1 / 4)
    assert (numbers["wins_a"], numbers["wins_b"], numbers["ties"]) == (1, 2, 1)
    assert numbers["p_value"] == 1.0  # of 8 ways all split at least 2 to 1
    low, high = numbers["difference_interval"]
    assert -1 / 4 <= low < 1 / 4 < high <= 1
    assert [(row["id"], row["a"], row["b"]) for row in numbers["changed"]] == [
        ("q", 0.0, 1.0),
        ("p", 0.5, 0.75),
        ("s", 0.25, 0.0),
    ]
    assert [row["id"] for row in compared(a, b, num_changed=1)["changed"]] == ["q"]


def test_pairing_tells_a_small_steady_gain_from_noise() -> None:
    """Problems differ wildly, B is one response of four better on each: the paired interval has no width."""
    a = {str(i): "1110" if i % 2 else "0000" for i in range(10)}
    b = {str(i): "1111" if i % 2 else "1000" for i in range(10)}
    numbers = compared(a, b)
    assert numbers["difference_interval"] == [0.25, 0.25]
    assert numbers["p_value"] == pytest.approx(2 / 2**10)


def test_swapping_the_two_mirrors_everything() -> None:
    a, b = {"p": "1100", "q": "0000", "r": "1111"}, {"p": "1110", "q": "1000", "r": "0000"}
    forward, backward = compared(a, b), compared(b, a)
    assert forward["difference"] == pytest.approx(-backward["difference"])
    assert (forward["wins_a"], forward["wins_b"], forward["p_value"]) == (
        backward["wins_b"],
        backward["wins_a"],
        backward["p_value"],
    )


def test_levels_are_compared_apart() -> None:
    left = [*responses({"p": "10"}, level="2"), *responses({"q": "11"}, level="10")]
    right = [*responses({"p": "11"}, level="2"), *responses({"q": "00"}, level="10")]
    levels = comparison(paired(left, right), mode="strict", seed=0)["by_level"]
    assert list(levels) == ["2", "10"]
    assert (levels["2"]["difference"], levels["10"]["difference"]) == (0.5, -1.0)


def test_only_the_same_problems_are_paired() -> None:
    pairs = paired(responses({"p": "1", "q": "0"}), responses({"q": "1", "x": "0"}))
    assert [(left[0].id, right[0].id) for left, right in pairs] == [("q", "q")]
    with pytest.raises(ConfigError, match="no problem in common"):
        paired(responses({"p": "1"}), responses({"q": "1"}))
    with pytest.raises(DataError, match="problem 'p' is not the same in both"):
        paired(responses({"p": "1"}), responses({"p": "1"}, answer="6"))


def write_pair(path: Path, *, count: int) -> None:
    """Folders a and b: all wrong, all right."""
    other = {"temperature": 1.0, "environment": {"name": "calculator"}, "min_thinking_budget": 64, "wait": "Hm"}
    for name, marks, settings in (("a", "0000", {"temperature": 0.7}), ("b", "1111", other)):
        folder = EvaluationFolder(path / name)
        files = {"my.txt": f"digest of {name}"}
        folder.open_or_check({"num_problems": count, "samples_per_prompt": 4, "seed": 0, "files": files, **settings})
        groups = responses({str(i): marks for i in range(count)})
        write_jsonl(folder.rollouts, (to_row(response) for samples in groups for response in samples))


def test_a_handful_of_problems_shows_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_pair(tmp_path, count=5)  # the bootstrap interval is [1, 1], but of 2^5 ways 2 are as far from even: p = 1/16
    compare([tmp_path / "a", tmp_path / "b"], mode="strict", num_changed=3, out=None)
    assert "No difference shown" in capsys.readouterr().out


def test_the_command_says_who_is_better_and_what_else_differs(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_pair(tmp_path, count=12)
    compare([tmp_path / "a", tmp_path / "b"], mode="strict", num_changed=3, out=tmp_path / "c.json")
    out = " ".join(capsys.readouterr().out.split())
    assert "B is better" in out
    assert "temperature: A 0.7, B 1.0" in out
    assert "min_thinking_budget: A None, B 64" in out
    assert "wait: A None, B 'Hm'" in out
    assert "environment: A None, B {'name': 'calculator'}" in out
    assert "files: A {'my.txt': 'digest of a'}, B {'my.txt': 'digest of b'}" in out
    assert '"p_value": 0.00048828125' in (tmp_path / "c.json").read_text()
    with pytest.raises(ConfigError, match=r"--mode = 'loose': .* has verdicts of strict, anchored, last_number"):
        compare([tmp_path / "a", tmp_path / "b"], mode="loose", num_changed=3, out=None)
