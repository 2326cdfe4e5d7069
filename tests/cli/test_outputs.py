"""What a command is told to write is checked before it does anything."""

import json

import pytest

ROW = {"question": "1 + 1?", "answer": "2", "response": "\\boxed{2}"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "question": "2 + 2?"}) + "\n")
    return path


VERBS = [
    ["score"],
    ["data", "check"],
    ["data", "dedup"],
    ["data", "filter"],
    ["data", "decontaminate", "--against", "rows.jsonl"],
    ["data", "split", "--heldout", "held.jsonl"],
    ["data", "difficulty", "--model", "nowhere"],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize("name", ["rows.jsonl", "link.jsonl", "hard.jsonl", "./sub/../rows.jsonl"])
def test_an_input_is_never_written(ansatz, file, tmp_path, monkeypatch, verb, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.jsonl").symlink_to(file)
    (tmp_path / "hard.jsonl").hardlink_to(file)
    before = file.read_bytes()
    code, _, err = ansatz(*verb, "rows.jsonl", "--out", name)
    assert code == 2
    assert "is both read and written. Choose another name for the output." in err
    assert file.read_bytes() == before


def test_the_other_outputs_are_no_inputs_either(ansatz, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "part.report.json").write_text(json.dumps([ROW]))
    for arguments in (
        ["data", "split", "rows.jsonl", "--out", "train.jsonl", "--heldout", "rows.jsonl"],
        ["data", "dedup", "*.json", "--out", "part.jsonl"],
    ):
        code, _, err = ansatz(*arguments)
        assert code == 2
        assert "is both read and written" in err
    assert file.read_text().count("\n") == 2
    assert json.loads((tmp_path / "part.report.json").read_text()) == [ROW]


def test_a_folder_of_responses_keeps_its_files(ansatz, tmp_path):
    verdicts = {"strict": {"correct": True, "reason": "equal", "extracted": "2"}}
    row = {**ROW, "id": "a", "sample": 0, "tokens": 3, "finish": "stop", "verdicts": verdicts}
    store = tmp_path / "samples" / "rollouts.jsonl"
    store.parent.mkdir()
    store.write_text(json.dumps(row) + "\n")
    before = store.read_bytes()
    for verb in (["rollouts", store.parent, "--jsonl"], ["data", "select", store.parent, "--out"]):
        code, _, err = ansatz(*verb, store)
        assert (code, "is both read and written" in err) == (2, True)
    code, _, err = ansatz("audit", store.parent, "--page", store)
    assert (code, "is both read and written" in err) == (2, True)
    assert store.read_bytes() == before


def test_two_outputs_are_two_files(ansatz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for verb in (["audit", "--demo", "--out", "a", "--page", "./a"], ["rollouts", ".", "--csv", "a", "--html", "a"]):
        code, _, err = ansatz(*verb)
        assert (code, "two outputs, or their reports, would be the file a." in err) == (2, True)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("sub", "it is a folder"),
        ("rows.jsonl/x.jsonl", "rows.jsonl is not a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_first(ansatz, file, tmp_path, monkeypatch, verb, name, problem):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    code, _, err = ansatz(*verb, "rows.jsonl", "--out", name)
    assert code == 2
    assert problem in err
    assert err.count("\n") == 1


@pytest.fixture
def run(tmp_path):
    """The files of a run that this test needs: its mark and its recipe."""
    folder = tmp_path / "runs" / "mine"
    (folder / "rl").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"recipe": {}, "changes": []}))
    (folder / "config.yaml").write_text("seed: 0\n")
    return folder


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize("name", ["runs/mine/config.yaml", "runs/mine/rl/done.json", "runs/mine/new/x.jsonl", "link"])
def test_nothing_is_written_into_the_folder_of_a_run(ansatz, file, run, tmp_path, monkeypatch, verb, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(run / "config.yaml")
    before = sorted(run.rglob("*"))
    code, _, err = ansatz(*verb, "rows.jsonl", "--out", name)
    assert code == 2
    assert "it is in the folder of the run mine, which only the run writes to. Choose another name" in err
    assert sorted(run.rglob("*")) == before
    assert (run / "config.yaml").read_text() == "seed: 0\n"


def test_a_report_may_replace_that_of_its_run_and_no_other_file(ansatz, run):
    for name, refused in [("report.html", False), ("run.json", True), ("rl/report.html", True)]:
        _, _, err = ansatz("report", str(run), "--out", str(run / name))
        assert ("Choose another name for the output." in err) is refused


def test_a_file_next_to_a_run_is_written(ansatz, file, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ansatz("data", "dedup", "rows.jsonl", "--out", "runs/rows.jsonl")[0] == 0


def test_an_input_that_cannot_be_reached_is_not_taken_for_an_output_that_cannot(ansatz, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out.jsonl").write_text("")
    code, _, err = ansatz("data", "dedup", "rows.jsonl/inside.jsonl", "--out", "out.jsonl")
    assert code == 2
    assert "cannot be written" not in err
    assert "inside.jsonl" in err


@pytest.mark.parametrize("name", ["loop", "loop/x.jsonl"])
def test_a_link_to_itself_in_place_of_an_output_ends_in_a_sentence_or_a_file(ansatz, file, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for verb in (["data", "dedup"], ["data", "split", "--heldout", "held.jsonl"]):
        code, _, err = ansatz(*verb, "rows.jsonl", "--out", name)
        assert (code, err.startswith("ansatz: ")) in ((0, False), (2, True))
