"""The verbs of `ansatz data` that look at files and write them."""

from __future__ import annotations

import csv
import json

import pytest
import transformers
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from toy_runs import toy_recipe

from ansatz.data.hygiene.report import history

ROWS = [
    {"question": "What is $2+3$?", "answer": "5", "n": 1.0},
    {"question": "what is 2 + 3 ?", "answer": "5", "n": 2},
    {"question": "What is the sum of all even numbers under one hundred in base ten?", "answer": "2450", "n": "é"},
    {"question": "Prove that 2 is even.", "answer": "yes", "n": None},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)) + "\n", encoding="utf-8")
    return path


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def letters(tmp_path):
    """The folder of a tokenizer whose tokens are characters."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "letters")
    return tmp_path / "letters"


def report_of(path):
    return json.loads(path.with_suffix(".report.json").read_text())


def test_dedup_writes_the_kept_rows_unchanged_and_a_report(ansatz, file, tmp_path):
    out = tmp_path / "new" / "kept.jsonl"
    code, said, _ = ansatz("data", "dedup", file, "--out", out)
    assert code == 0
    assert "4 rows, 3 kept, 1 dropped (exact 1)" in said
    assert read(out) == [ROWS[0], *ROWS[2:]]
    report = report_of(out)
    assert (report["verb"], report["file"], report["threshold"]) == ("dedup", str(file), 0.8)
    (dropped,) = report["dropped_rows"]
    assert (dropped["line"], dropped["of"].endswith("rows:1"), dropped["same_answer"]) == (2, True, True)
    first = out.read_bytes(), out.with_suffix(".report.json").read_bytes()
    ansatz("data", "dedup", file, "--out", out)
    assert (out.read_bytes(), out.with_suffix(".report.json").read_bytes()) == first


def test_decontaminate_names_the_test_row_and_whether_answers_agree(ansatz, file, tmp_path):
    tests = tmp_path / "test.jsonl"
    tests.write_text(json.dumps({"problem": "The sum of all even numbers under one hundred in base 8", "answer": "1"}))
    out = tmp_path / "clean.jsonl"
    verb = ("data", "decontaminate", file, "--out", out, "--against", tests)
    code, said, _ = ansatz(*verb)
    assert code == 0
    assert "4 rows, 3 kept, 1 dropped (copy 1)" in said
    (dropped,) = report_of(out)["dropped_rows"]
    assert (dropped["line"], dropped["same_answer"]) == (3, False)
    assert dropped["question"] == ROWS[2]["question"]
    assert dropped["test_question"] == "The sum of all even numbers under one hundred in base 8"
    assert report_of(out)["test_problems"] == 1
    assert ansatz(*verb, "--min-frac", 1)[1].startswith("4 rows, 4 kept")
    assert "not compared" not in said
    tests.write_text(tests.read_text() + "\n" + json.dumps({"problem": "1+1?", "answer": "2"}))
    assert "1 of 2 test questions have fewer than 3 words and were not compared" in ansatz(*verb)[1]


def test_decontaminate_by_ten_grams(ansatz, file, tmp_path):
    tests, out = tmp_path / "test.jsonl", tmp_path / "clean.jsonl"
    words = [
        "The",
        "sum",
        "of",
        "all",
        "even",
        "numbers",
        "under",
        "one",
        "hundred",
        "in",
        "base",
        "8",
        "and",
        "again",
        "in",
        "base",
        "7",
    ]
    tests.write_text(json.dumps({"problem": " ".join(words), "answer": "1"}))
    rows = [{"question": f"So: {' '.join(words[:count])}?", "answer": "1"} for count in (9, 10)]
    file.write_text("\n".join(map(json.dumps, rows)))
    verb = ("data", "decontaminate", file, "--out", out, "--against", tests)
    assert "2 rows, 1 kept, 1 dropped (ngram 1)" in ansatz(*verb, "--rule", "ngram", "--n", 10)[1]
    assert (report_of(out)["rule"], report_of(out)["ngram"]) == ("ngram", 10)
    assert report_of(out)["dropped_rows"][0]["line"] == 2
    assert "2 dropped (ngram 2)" in ansatz(*verb, "--rule", "ngram", "--n", 9)[1]
    assert "--rule 'grams' is unknown" in ansatz(*verb, "--rule", "grams")[2]
    code, _, err = ansatz(*verb, "--n", 9)
    assert (code, "--n 9 has no effect with --rule weighted" in err) == (2, True)


def test_filter_drops_what_is_selected(ansatz, file, tmp_path):
    verb = ("data", "filter", file, "--out", tmp_path / "kept.jsonl")
    assert "2 kept, 2 dropped (too_long 1, true_false 1)" in ansatz(*verb, "--max-words", 10)[1]
    assert report_of(tmp_path / "kept.jsonl")["kinds"] == {"too_long": 1, "true_false": 1}
    assert "(proof 1)" in ansatz(*verb, "--drop", "proof")[1]


def test_filter_drops_rows_that_cannot_be_used_and_reports_gold_and_reason(ansatz, file, tmp_path):
    out = tmp_path / "kept.jsonl"
    file.write_text(
        file.read_text() + '{"question": "No answer?"}\n{"question": "A gold?", "answer": "\\\\frac{1}{"}\n'
    )
    code, said, error = ansatz("data", "filter", file, "--out", out, "--drop", "proof")
    assert (code, said) == (2, "")
    assert "line 5: the row has no field 'answer'" in error
    code, said, _ = ansatz("data", "filter", file, "--out", out, "--drop", "unreadable")
    assert "6 rows, 4 kept, 2 dropped (unreadable 2)" in said
    missing, gold = report_of(out)["dropped_rows"]
    assert (missing["line"], missing["id"], missing["gold"]) == (5, "", "")
    assert (gold["line"], gold["gold"]) == (6, r"'\\frac{1}{'")


def test_verbs_read_several_files(ansatz, file, tmp_path):
    other, out = tmp_path / "other.csv", tmp_path / "kept.jsonl"
    other.write_text("Problem,Answer\nWhat is the sum of one and one?,2\n")
    assert "5 rows, 4 kept, 1 dropped (exact 1)" in ansatz("data", "dedup", file, other, "--out", out)[1]
    assert json.loads(out.read_text().splitlines()[-1])["Answer"] == "2"
    assert report_of(out)["file"] == f"{file}, {other}"


def test_a_list_in_a_cell_is_written_as_a_list(ansatz, tmp_path):
    file, out = tmp_path / "rows.csv", tmp_path / "kept.jsonl"
    lists = {"answer": ["1/2", "0.5"], "solutions": ["So \\boxed{0.5}.", "\\boxed{1/2}"]}
    texts = {"question": "What is half of one?", "system": '["Be brief."]'}
    with file.open("w", newline="", encoding="utf-8") as table:
        csv.writer(table).writerows([[*texts, *lists], [*texts.values(), *map(json.dumps, lists.values())]])
    for verb in ("dedup", "filter", "tag"):
        assert ansatz("data", verb, file, "--out", out)[0] == 0
        (row,) = read(out)
        assert {name: row[name] for name in (*texts, *lists)} == texts | lists


def test_filter_counts_tokens_with_a_tokenizer(ansatz, file, tmp_path):
    out = tmp_path / "kept.jsonl"
    verb = ("data", "filter", file, "--out", out, "--drop", "proof", "--max-question-tokens")
    longest = len(ROWS[2]["question"])
    assert "(proof 1)" in ansatz(*verb, longest, "--tokenizer", letters(tmp_path))[1]
    assert "(proof 1, too_long 1)" in ansatz(*verb, longest - 1, "--tokenizer", letters(tmp_path))[1]
    assert report_of(out)["max_question_tokens"] == longest - 1
    code, _, said = ansatz(*verb, longest)
    assert code == 2
    assert "belong together" in said


def test_split_writes_every_row_to_one_of_two_files(ansatz, file, tmp_path):
    out, held = tmp_path / "train.jsonl", tmp_path / "held.jsonl"
    code, said, _ = ansatz("data", "split", file, "--out", out, "--heldout", held, "--heldout-frac", 0.5, "--seed", 3)
    assert code == 0
    assert f"{len(read(out))} rows in {out}, {len(read(held))} rows in {held}" in said
    assert sorted(map(str, read(out) + read(held))) == sorted(map(str, ROWS))
    assert (ROWS[0] in read(out)) == (ROWS[1] in read(out))


def test_peek_counts_words_or_tokens(ansatz, file, tmp_path):
    code, said, _ = ansatz("data", "peek", file)
    assert code == 0
    assert "4 problems" in said
    assert "question, words by quantile: 0% 3, 5% 3, 50% 6, 95% 14, 100% 14" in said
    assert "solution, words by quantile: none" in said
    assert "answers: integer 3, words 1" in said
    assert "line 4: " in said
    said = ansatz("data", "peek", file, "--tokenizer", letters(tmp_path))[1]
    assert f"question, tokens by quantile: 0% {len(ROWS[0]['question'])}, " in said


def test_a_report_contains_the_earlier_reports(ansatz, file, tmp_path):
    clean, kept, train = (tmp_path / name for name in ("clean.jsonl", "kept.jsonl", "train.jsonl"))
    tests = tmp_path / "tests.jsonl"
    tests.write_text(json.dumps({"question": "Prove that 2 is even", "answer": "?"}))
    ansatz("data", "decontaminate", file, "--out", clean, "--against", tests)
    ansatz("data", "dedup", clean, "--out", kept)
    ansatz("data", "split", kept, "--out", train, "--heldout", tmp_path / "held.jsonl", "--heldout-frac", 0.01)
    report = report_of(train)
    assert [head["verb"] for head in report["before"]] == ["decontaminate", "dedup"]
    assert [head["kept"] for head in report["before"]] == [3, 2]
    assert report["before"][0]["against"] == [str(tests)]
    assert (report["rows"], report["kept"]) == (report["before"][1]["kept"], len(read(train)))
    assert len(read(train)) + report_of(tmp_path / "held.jsonl")["kept"] == report["rows"]
    assert history(tmp_path / "held.jsonl")[-1]["verb"] == "split"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dedup", "FILE", "--out", "OUT", "--threshold", 0.1), "threshold = 0.1, expected 0.6 to 1"),
        (("dedup", "nowhere.jsonl", "--out", "OUT"), "problem file 'nowhere.jsonl' does not exist"),
        (("dedup", "FILE", "--out", "FILE/x.jsonl"), "cannot be written"),
        (("filter", "FILE", "--out", "OUT", "--drop", "proofs"), "Did you mean 'proof'"),
        (("split", "FILE", "--out", "OUT", "--heldout", "OUT"), "outputs, or their reports, would be the file"),
        (("split", "FILE", "--out", "OUT", "--heldout", "OTHER", "--heldout-frac", 2), "heldout_frac = 2.0, expected"),
        (("decontaminate", "FILE", "--out", "OUT", "--against", "FILE", "--min-frac", 2), "--min-frac = 2.0"),
        (("peek", "FILE", "--tokenizer", "DIR"), "has no tokenizer that loads"),
        (("dedup", "FILE", "--out", "OUT", "--question-key", "q"), "no row has the field 'q'"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(ansatz, file, tmp_path, arguments, message):
    places = {"FILE": file, "OUT": tmp_path / "out.jsonl", "OTHER": tmp_path / "other.jsonl", "DIR": tmp_path}
    places["FILE/x.jsonl"] = file / "x.jsonl"
    code, _, error = ansatz("data", *(places.get(argument, argument) for argument in arguments))
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_a_wrong_row_half_way_leaves_the_old_output(ansatz, file, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    file.write_text(file.read_text() + "no json\n")
    code, _, error = ansatz("data", "dedup", file, "--out", out)
    assert (code, out.read_text()) == (2, "old")
    assert "rows.jsonl line 5: not valid JSON" in error
    assert not list(tmp_path.glob(".*draft"))


def test_peek_shows_rows_and_asks_the_verifier_before_it_doubts_a_solution(ansatz, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"question": "What is one half of one?", "answer": "0.5", "subject": "Algebra", "source": "aops"}
    rows = [{**row, "solution": rf"It is \boxed{{{answer}}}."} for answer in (r"\frac12", "2")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = ansatz("data", "peek", path, "--rows", 1)
    assert "question: What is one half of one?\n  answer: 0.5\n  solution: It is" in out
    assert out.count("question: What") == 1
    assert "subjects: Algebra 2" in out
    assert "sources: aops 2" in out
    assert "suspicious: 1\n  line 2: " in out
    assert "the solution ends with a different answer" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("peek", "--template", "chat"), "--template has no effect without --tokenizer."),
        (("dedup", "--out", "OUT", "--min-cosine", "0.9"), "--min-cosine has no effect without --embeddings."),
        (("filter", "--out", "OUT", "--temperature", "0.3"), "--temperature has no effect without --model."),
        (("filter", "--out", "OUT", "--work", "w"), "--work has no effect without --model."),
    ],
)
def test_an_option_that_needs_another_one_is_refused_without_it(ansatz, file, tmp_path, words, sentence):
    words = [tmp_path / "out.jsonl" if word == "OUT" else word for word in words]
    code, _, err = ansatz("data", words[0], file, *words[1:])
    assert code == 2
    assert sentence in " ".join(err.split())
    assert not (tmp_path / "out.jsonl").exists()


def test_filter_drops_the_tests_of_code_that_check_lists(ansatz, tmp_path):
    path, out = tmp_path / "code.jsonl", tmp_path / "kept.jsonl"
    rows = [{"question": "Add.", "answer": "-", "tests": tests} for tests in (["assert f(1) == 2"], ["f(1)"])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ansatz("data", "check", path)[0] == 1
    code, said, _ = ansatz("data", "filter", path, "--out", out, "--drop", "unreadable")
    assert (code, len(read(out))) == (0, 1)
    assert "(unreadable 1)" in said
    assert ansatz("data", "check", out)[0] == 0


def test_peek_goes_on_after_rows_that_cannot_be_read_and_other_verbs_say_how_to_leave_them_out(ansatz, file, tmp_path):
    with file.open("a") as rows:
        rows.write(json.dumps({"question": "What is missing here?"}) + "\n" + json.dumps(ROWS[0]) + "\n")
    code, said, _ = ansatz("data", "peek", file)
    assert code == 0
    assert "5 problems" in said
    assert "cannot be read: 1; ansatz data filter --drop unreadable" in said
    assert f"{file} line 5: the row has no field 'answer'" in said
    code, _, err = ansatz("data", "dedup", file, "--out", tmp_path / "o.jsonl")
    assert code == 2
    assert "line 5: the row has no field 'answer'" in err
    assert "ansatz data filter FILE --out OUT --drop unreadable" in " ".join(err.split())


OTHER_NAMES = [{"frage": f"{n} + 1?", "loesung": str(n + 1)} for n in range(30)]
NO_OPTIONS = "Rename the fields of the file to 'question' and 'answer'."


@pytest.mark.parametrize(
    ("verb", "advice"),
    [
        (("data", "peek", "FILE"), "Give --question-key FIELD and --answer-key FIELD."),
        (("data", "check", "FILE"), "Give --question-key FIELD and --answer-key FIELD."),
        (("data", "filter", "FILE", "--drop", "unreadable", "--out", "OUT"), "Give --question-key FIELD and"),
        (("data", "decontaminate", "GOOD", "--out", "OUT", "--against", "FILE"), NO_OPTIONS),
        (("score", "FILE", "--out", "OUT"), "Give --answer-key FIELD."),
        (("eval", "MODEL", "--suite", "FILE"), NO_OPTIONS),
        (("train", "RECIPE"), "Give question_key: FIELD and answer_key: FIELD."),
        (("explain", "RECIPE"), "Give question_key: FIELD and answer_key: FIELD."),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_field_names_that_are_not_recognised_are_one_sentence_with_the_options_of_the_command(
    ansatz, file, tmp_path, verb, advice
):
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(map(json.dumps, OTHER_NAMES)))
    recipe = toy_recipe(tmp_path, {"data": {"train": {"source": "jsonl", "split": "train", "path": str(other)}}})
    places = {"FILE": other, "GOOD": file, "OUT": tmp_path / "out.jsonl", "RECIPE": recipe, "MODEL": tmp_path}
    code, _, err = ansatz(*(places.get(word, word) for word in verb))
    assert (code, err.count("\n")) == (2, 1), err
    what = "the answer" if verb[0] == "score" else "the question or the answer"
    assert f"other.jsonl: no field is recognised as {what}; the fields are 'frage', 'loesung'." in err
    assert advice in err


def test_a_field_that_is_named_and_not_there_and_a_hint(ansatz, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"instruction": "1+1?", "answer": "2"}))
    assert "no field is recognised as the question" in (said := ansatz("data", "peek", file)[2])
    assert "Perhaps 'instruction' is the question. Give --question-key FIELD." in said
    code, said, _ = ansatz("data", "peek", file, "--question-key", "instruction")
    assert (code, "1 problems" in said) == (0, True)
    said = ansatz("data", "peek", file, "--question-key", "gone")[2]
    assert "no row has the field 'gone', which is to be the question; the fields are 'instruction', 'answer'" in said


def test_tables_are_recognised_by_their_first_line(ansatz, tmp_path):
    def peek(name, text, *options):
        (tmp_path / name).write_text(text)
        code, said, err = ansatz("data", "peek", tmp_path / name, *options)
        return code, said + err

    for text in ("question;answer\n1+1?;2\n", "question\tanswer\n1+1?\t2\n", "question,answer\n1+1?,2\n"):
        code, said = peek("table.csv", text)
        assert (code, "question: 1+1?\n  answer: 2\n" in said) == (0, True)
        code, said = peek("table.jsonl", text)
        assert (code, "is the header of a table, not a JSON object. Rename it to ." in said) == (2, True)
    assert "no field is recognised" in peek("one.csv", "name\n1;2\n")[1]
    assert "Rename it to .jsonl" in peek("lines.csv", '{"question": "1+1?", "answer": "2"}\n')[1]
    assert "Rename it to .json." in peek("list.jsonl", '[\n{"question": "1+1?", "answer": "2"}\n]\n')[1]
    assert "line 1: not valid JSON" in peek("broken.jsonl", '{"question": "1+1?", "answer"\n')[1]
