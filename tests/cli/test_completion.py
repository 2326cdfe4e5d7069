"""Shell completion, asked as the shell's script asks it: the words of a command line and the index of the last one."""

import pytest


@pytest.fixture
def completions(ansatz, monkeypatch):
    def complete(line):
        words = line.split(" ")
        monkeypatch.setenv("_ANSATZ_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        code, out, err = ansatz()
        assert (code, err) == (0, "")
        return out.split()

    return complete


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ansatz tr", ["track", "train"]),
        ("ansatz e", ["eval", "explain", "export"]),
        ("ansatz data de", ["dedup", "decontaminate"]),
        ("ansatz train --fr", ["--fresh"]),
        ("ansatz data peek rows.jsonl --question", ["--question-key"]),
        ("ansatz eval --top", ["--top-k", "--top-p"]),
        ("ansatz train --train.lr 3e-4 --allow", ["--allow-changes"]),
        ("ansatz train --train.lr 3e-4 --name --allow", ["--allow-changes"]),
        ("ansatz train --train.l", ["--train.lr"]),
        ("ansatz explain --algorithm.kl_co", ["--algorithm.kl_coef", "--algorithm.kl_control"]),
        ("ansatz recipes --train.l", []),
        ("ansatz trian --fr", []),
    ],
)
def test_verbs_and_options_are_completed(completions, line, expected):
    assert completions(line) == expected


def test_a_recipe_without_a_value_of_its_last_setting_is_no_error(completions):
    assert completions("ansatz train --train.lr ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(ansatz, shell, monkeypatch):
    monkeypatch.setenv("_ANSATZ_COMPLETE", f"source_{shell}")
    code, out, err = ansatz()
    assert (code, err) == (0, "")
    assert f"_ANSATZ_COMPLETE=complete_{shell}" in out
