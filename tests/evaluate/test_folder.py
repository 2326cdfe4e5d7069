from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ansatz_verify.grade import ALGEBRA_TARGET
from ansatz_verify.pool import WorkerPool
from answering import SAMPLING, SETTINGS, TEXTS, Answering, prompts

from ansatz.errors import ConfigError, DataError
from ansatz.evaluate import responses as responses_module
from ansatz.evaluate.folder import EvaluationFolder
from ansatz.evaluate.responses import all_modes_grader
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Reason, Verdict

POOL = WorkerPool(ALGEBRA_TARGET)


def sample(
    path: Path, *, batch: int = 2, breaks_after: int | None = None, before_break: Callable[[], None] = lambda: None
) -> Answering:
    sampler = Answering(breaks_after=breaks_after, before_break=before_break)
    folder = EvaluationFolder(path)
    folder.open_or_check(SETTINGS)
    folder.sample(prompts(), sampler=sampler, sampling=SAMPLING, batch=batch, grader=all_modes_grader(POOL))
    folder.write_results()
    return sampler


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_the_scores_are_those_that_one_finds_by_hand(tmp_path: Path) -> None:
    sample(tmp_path / "e")
    scores = json.loads((tmp_path / "e/results.json").read_text())["scores"]
    strict, anchored, last = (scores[mode] for mode in ("strict", "anchored", "last_number"))
    # Right of 4. Strict reads boxes: a 2, b 1, c 4. Anchored reads "The answer is" too: a 3. A last number: a 4.
    assert strict["pass@1"] == pytest.approx((2 / 4 + 1 / 4 + 1) / 3)
    assert anchored["pass@1"] == pytest.approx((3 / 4 + 1 / 4 + 1) / 3)
    assert last["pass@1"] == pytest.approx((1 + 1 / 4 + 1) / 3)
    # Of 6 pairs, those with two wrong: a 1, b 3, c 0.
    assert strict["pass@k"] == {"1": strict["pass@1"], "2": pytest.approx((5 / 6 + 3 / 6 + 1) / 3), "4": 1.0}
    # Of 6 pairs. a: 5 have a vote, all for 5. b: (7, 7) wrong, two ties of 7 and 5, two of 7 alone wrong, (5, none).
    # c: all. Of 4: in b 7 outvotes 5.
    assert strict["maj@k"]["2"] == pytest.approx((5 / 6 + (2 / 2 + 1) / 6 + 1) / 3)
    assert strict["maj@k"]["4"] == pytest.approx((1 + 0 + 1) / 3)
    # 12 responses: 7 equal, 2 different; without a box 3, of which "The answer is 5." (16 bytes) fills the 16 tokens.
    assert strict["verdicts"] == {"equal": 7 / 12, "different": 2 / 12, "no_answer": 2 / 12, "truncated": 1 / 12}
    assert sum(last["verdicts"].values()) == pytest.approx(1)
    # Bytes and an end token, at most 16. a: 10, 12, 16 (cut), 10. b: 10, 11, 10, 14. c: 10 each.
    assert scores["mean_length"] == pytest.approx((48 + 45 + 40) / 12)
    assert scores["truncated_frac"] == pytest.approx(1 / 12)
    assert scores["finishes"] == {"stop": 11 / 12, "length": 1 / 12}
    # A box, whole and alone: a 2, b 3, c 4. No thoughts and no answer tags.
    assert scores["format_frac"] == {"think": 0, "think_answer": 0, "think_boxed": 0, "answer": 0, "boxed": 9 / 12}
    assert strict["cons@64"] is None
    low, high = strict["pass@1_interval"]
    assert 0 <= low < strict["pass@1"] < high <= 1
    assert list(scores["by_level"]) == ["2", "10"]
    assert scores["by_level"]["2"]["strict"]["pass@1"] == pytest.approx(3 / 8)
    assert scores["by_subject"]["Algebra"]["strict"]["pass@1"] == pytest.approx(3 / 4)
    assert scores["by_subject"]["Geometry"]["num_problems"] == 1
    assert scores["by_subject"]["Geometry"]["format_frac"]["boxed"] == 3 / 4


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("breaks_after", [0, 1, 4, 5, 8, 11])
def test_an_evaluation_broken_off_anywhere_ends_with_the_same_bytes(
    tmp_path: Path, batch: int, breaks_after: int
) -> None:
    sample(tmp_path / "whole", batch=batch)
    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path / "cut", batch=batch, breaks_after=breaks_after)
    with (tmp_path / "cut/rollouts.jsonl").open("a") as file:
        file.write('{"id": "a", "sam')  # a torn line, as a kill in a write leaves it
    rest = sample(tmp_path / "cut", batch=batch)
    assert files(tmp_path / "cut") == files(tmp_path / "whole")
    whole_batches = breaks_after // 4 // batch
    assert rest.given == 4 * (3 - whole_batches * batch)


def test_a_problem_is_on_disk_as_soon_as_its_last_response_ends(tmp_path: Path) -> None:
    def wait_for_two_problems() -> None:  # grading runs beside sampling
        deadline = time.monotonic() + 120
        while len(read_jsonl(tmp_path / "rollouts.jsonl")) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        sample(tmp_path, batch=3, breaks_after=9, before_break=wait_for_two_problems)
    rows = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert [(row["id"], row["sample"]) for row in rows] == [(name, i) for name in "ab" for i in range(4)]
    assert [row["response"] for row in rows[:2]] == list(TEXTS["a"][2][:2])
    with pytest.raises(DataError, match=r"of 2 problems, expected 3.*resumes where it stopped"):
        EvaluationFolder(tmp_path).responses()


def test_a_finished_evaluation_samples_nothing_more(tmp_path: Path) -> None:
    sample(tmp_path)
    before = files(tmp_path)
    assert sample(tmp_path).given == 0
    assert files(tmp_path) == before


def test_scores_come_anew_from_the_rollouts_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sample(tmp_path)
    before = files(tmp_path)
    (tmp_path / "results.json").unlink()
    EvaluationFolder(tmp_path).grade_again(pool=POOL)
    EvaluationFolder(tmp_path).write_results()
    assert files(tmp_path) == before

    monkeypatch.setattr(
        responses_module, "verify", lambda *_, **__: Verdict(correct=False, reason=Reason.CRASHED, extracted=None)
    )
    EvaluationFolder(tmp_path).grade_again(pool=POOL)
    scores = EvaluationFolder(tmp_path).write_results()["scores"]
    assert scores["strict"]["verdicts"] == {"crashed": 1.0}


def test_right_answers_vote_together_however_they_are_written(tmp_path: Path) -> None:
    sample(tmp_path)
    votes = [response.vote("strict") for response in EvaluationFolder(tmp_path).responses()[0]]
    assert votes == ["5", "5", None, None]
    assert [response.vote("strict") for response in EvaluationFolder(tmp_path).responses()[1]] == [
        "wrong:7",
        "wrong:7",
        "5",
        None,
    ]


def test_other_settings_and_other_folders_are_refused(tmp_path: Path) -> None:
    sample(tmp_path / "e")
    with pytest.raises(ConfigError, match=r"samples_per_prompt = 4; this command has 8\. Choose another folder"):
        EvaluationFolder(tmp_path / "e").open_or_check({**SETTINGS, "samples_per_prompt": 8})
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="holds other files"):
        EvaluationFolder(tmp_path / "other").open_or_check(SETTINGS)
    with pytest.raises(ConfigError, match=r"was not written by .*settings\.json is missing"):
        EvaluationFolder(tmp_path / "other").write_results()


def test_a_folder_of_an_earlier_version_is_resumed_and_gets_the_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample(tmp_path)
    settings = {**SETTINGS, "data_sha256": "12ab", "files": {"my.txt": "34cd"}}
    for _ in range(2):
        EvaluationFolder(tmp_path).open_or_check(settings)
    note = "did not record data_sha256 and files. So it is not known whether the problems and your own files were"
    assert capsys.readouterr().err.count(note) == 1
    assert EvaluationFolder(tmp_path).settings() == settings
    with pytest.raises(ConfigError, match="holds responses with data_sha256 = '12ab'; this command has '56ef'"):
        EvaluationFolder(tmp_path).open_or_check({**settings, "data_sha256": "56ef"})


def test_a_row_of_someone_elses_is_refused(tmp_path: Path) -> None:
    sample(tmp_path)
    (tmp_path / "rollouts.jsonl").write_text('{"id": "a", "verdicts": {}}\n')
    with pytest.raises(DataError, match="has a row that was not written by `ansatz eval` or `ansatz sample`"):
        EvaluationFolder(tmp_path).responses()


def test_the_results_hold_the_settings(tmp_path: Path) -> None:
    sample(tmp_path)
    assert json.loads((tmp_path / "results.json").read_text())["settings"] == SETTINGS
    assert EvaluationFolder(tmp_path).settings() == SETTINGS


@pytest.mark.parametrize("version", [2, 4])
def test_a_folder_of_another_format_is_neither_read_nor_continued(tmp_path: Path, version: int) -> None:
    sample(tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps({**SETTINGS, "format_version": version}))
    before = files(tmp_path)
    for use in (sample, lambda folder: EvaluationFolder(folder).responses()):
        with pytest.raises(ConfigError, match=rf"settings\.json has format version {version}; .* reads 3\..*--out DIR"):
            use(tmp_path)
    assert files(tmp_path) == before
