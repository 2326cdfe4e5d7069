"""What changed between two evaluations, and how a report shows it."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from made_up import NASTY, make_pipeline, problem, scored

from ansatz.errors import DataError
from ansatz.track.jsonl import write_jsonl
from ansatz.track.report import write_report
from ansatz.track.rollout_rows import read_responses, rollout_row
from ansatz.track.runs import read_pipeline
from ansatz.track.stored_evaluations import before_and_after, changes, stored_evaluations
from ansatz.track.word_diff import word_diff
from ansatz.types import Reason, problem_row

RIGHT, WRONG = "3 * 4 = 12\n#### 12", "3 * 4 = 13\n#### 13"


def store(run: Path, stage: str, step: int, marks: dict[str, str], *, text: str = WRONG, seed: int = 0) -> Path:
    """{"p0": "10"}: of two samples of p0 the first is right; the greedy response is as the first sample."""
    rows = []
    for index, (name, samples) in enumerate(marks.items()):
        for sample, mark in enumerate(samples):
            of = scored(
                problem(index=int(name[1:])),
                sample=sample,
                reason=Reason.EQUAL if mark == "1" else Reason.DIFFERENT,
                text=RIGHT if mark == "1" else text,
            )
            group = f"{stage}/{step}/heldout/{index}"
            for temperature in (1.0, 0.0) if sample == 0 else (1.0,):
                row = rollout_row(of, group=group, noise_step=0, temperature=temperature)
                rows.append({**row, "seed": seed})
    path = run / stage / "evaluations" / f"heldout-{step:06d}.jsonl"
    write_jsonl(path, rows)
    return path


def write_problems(run: Path, count: int) -> None:
    write_jsonl(run / "problems" / "heldout.jsonl", [problem_row(problem(index=index)) for index in range(count)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """p0 got better, p1 got worse, p2 stayed; the file of the model has p0 only."""
    folder = make_pipeline(tmp_path / "run", sft_steps=4, rl_steps=4)
    store(folder, "model", 0, {"p0": "00"})
    store(folder, "sft", 4, {"p0": "00", "p1": "11", "p2": "10"}, text=WRONG + NASTY)
    store(folder, "rl", 2, {"p0": "00", "p1": "11", "p2": "10"})
    store(folder, "rl", 4, {"p0": "01", "p1": "00", "p2": "10"})
    write_problems(folder, 3)
    return folder


def test_responses_are_paired_by_problem_and_sample(tmp_path: Path):
    before = read_responses(store(tmp_path, "sft", 4, {"p0": "0000", "p1": "11", "p2": "10", "p3": "1"}))
    after = read_responses(store(tmp_path, "rl", 4, {"p2": "10", "p1": "01", "p0": "0110", "p4": "1"}))
    found = changes(before, after)
    assert (found.num_problems, found.num_responses) == (3, 5 + 3 + 3)
    assert (found.became_correct, found.became_wrong) == (2, 2)  # of p1 the first sample and the greedy response
    assert [(each.problem, each.num_correct) for each in found.better] == [("p0", (0, 2))]
    assert [(each.problem, each.num_correct) for each in found.worse] == [("p1", (3, 1))]
    assert [each.flipped[1].sample for each in (*found.better, *found.worse)] == [1, 0]
    assert found.worse[0].flipped[1].greedy
    assert found.same_noise


def test_other_noise_is_noticed(tmp_path: Path):
    before = read_responses(store(tmp_path, "sft", 4, {"p0": "00"}))
    after = read_responses(store(tmp_path, "rl", 4, {"p0": "11"}, seed=1))
    assert not changes(before, after).same_noise


def test_the_last_stage_is_compared_with_where_it_began(run: Path):
    evaluations = stored_evaluations(read_pipeline(run))
    assert [each.title for each in evaluations] == ["model, step 0", "sft, step 4", "rl, step 2", "rl, step 4"]
    pair = before_and_after(evaluations)
    assert pair is not None
    assert [each.title for each in pair] == ["sft, step 4", "rl, step 4"]
    only_rl = before_and_after(evaluations[2:])
    assert only_rl is not None
    assert [each.title for each in only_rl] == ["rl, step 2", "rl, step 4"]
    assert before_and_after(evaluations[:1]) is None


def test_a_report_shows_the_problems_that_flipped_with_their_words_marked(run: Path):
    page = write_report(run).read_text()
    counts = "From sft, step 4 to rl, step 4: of 9 responses to 3 problems, 1 became correct and 3 became wrong."
    assert counts in page
    assert "sampled with the same noise, so what differs comes from the weights" in page
    better, worse = page.index("Solved more often"), page.index("Solved less often")
    assert page.index("packs 3 boxes") > better
    assert worse < page.index("packs 4 boxes", worse)
    assert "<pre>3 * 4 = <del>13</del>\n#### <del>13" in page
    assert "<pre>3 * 4 = <ins>12</ins>\n#### <ins>12</ins></pre>" in page
    assert "0 of 3 responses correct; this is sample 1, with 3 tokens" in page
    assert "3 of 3 responses correct; this is the greedy response, with 3 tokens" in page
    assert NASTY not in page
    assert html.escape(NASTY.partition(">")[0]) in page


def test_a_report_says_in_one_sentence_that_responses_are_missing(run: Path):
    for path in run.glob("*/evaluations/heldout-*.jsonl"):
        if path.parts[-3] != "rl":
            path.unlink()
    assert "From rl, step 2 to rl, step 4" in write_report(run).read_text()
    (run / "rl" / "evaluations" / "heldout-000002.jsonl").unlink()
    assert write_report(run).read_text().count("Only the evaluation at rl, step 4 has stored responses") == 1
    (run / "rl" / "evaluations" / "heldout-000004.jsonl").unlink()
    assert write_report(run).read_text().count("No responses of the evaluations are stored") == 1


def test_problems_whose_texts_are_missing_are_shown_by_their_ids(run: Path):
    (run / "problems" / "heldout.jsonl").unlink()
    assert "<h3>Problem p0</h3>" in write_report(run).read_text()
    (run / "problems" / "heldout.jsonl").write_text(json.dumps({"id": "p0"}) + "\n")
    with pytest.raises(DataError, match=r"heldout\.jsonl was changed"):
        write_report(run)


@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("12 + 3 = 14", "12 + 3 = 15", "12 + 3 = [14]", "12 + 3 = [15]"),
        ("So x = 2.", "So, x = 2.", "So x = 2.", "So[,] x = 2."),
        ("a b c", "b c d", "[a ]b c", "b c[ d]"),
        ("same", "same", "same", "same"),
        ("x a a a y", "z a a a a w", "[x] a a a [y]", "[z] a a a [a w]"),
        ("", "new", "", "[new]"),
        ("\\frac{1}{2}", "\\frac{1}{3}", "\\frac{1}{[2]}", "\\frac{1}{[3]}"),
        ("So $x + 1$, 5.", "So $x + 2$, 5.", "So [$x + 1$], 5.", "So [$x + 2$], 5."),  # a formula is set as a whole
    ],
)
def test_words_that_differ_are_marked(before: str, after: str, old: str, new: str):
    sides = word_diff(before, after)
    assert ["".join(text if shared else f"[{text}]" for text, shared in side) for side in sides] == [old, new]


@pytest.mark.parametrize("words", [10, 5000])
def test_both_texts_come_back_whole_however_long_they_are(words: int):
    before = " ".join(str(index % 7) for index in range(words))
    after = " ".join(str(index % 5) for index in range(words))
    old, new = word_diff(before, after)
    assert ("".join(piece.text for piece in old), "".join(piece.text for piece in new)) == (before, after)
    assert "".join(piece.text for piece in old if piece.shared) == "".join(piece.text for piece in new if piece.shared)
