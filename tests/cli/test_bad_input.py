"""Whatever a person gets wrong is one sentence on stderr, exit code 2, before any training."""

import json

import pytest
from toy_runs import command, toy_recipe


def rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def jsonl(path, split="train", **settings):
    return {"source": "jsonl", "split": split, "path": str(path), **settings}


@pytest.fixture
def refused(ansatz, tmp_path):
    """refused(changes, *arguments) -> the sentence with which `ansatz train` declines; no step was taken."""

    def run(changes, *arguments, without=""):
        code, out, err = ansatz("train", toy_recipe(tmp_path, changes, without=without), *arguments)
        assert code == 2, out + err
        assert err.startswith("ansatz: ")
        assert err.count("\n") == 1 or "rows cannot be used:\n" in err  # which lists the first five rows
        assert "Traceback" not in out + err
        assert not list((tmp_path / "runs").glob("*/*/metrics.jsonl"))
        assert not list((tmp_path / "runs").glob("*/*/evaluations.jsonl"))
        return err

    return run


def test_a_missing_recipe(ansatz):
    code, out, err = ansatz("train", "no_such.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("ansatz: there is no recipe file 'no_such.yaml' (looked in ")


def test_a_missing_problem_file(refused, tmp_path):
    assert "gone.jsonl' does not exist" in refused({"data": {"train": jsonl(tmp_path / "gone.jsonl")}})
    assert not (tmp_path / "runs").exists()


def test_a_row_without_an_answer_is_named_by_file_and_line(refused, tmp_path):
    good = {"question": "1 + 1?", "answer": "2"}
    file = rows(tmp_path / "mine.jsonl", good, good, {"question": "2 + 2?"})
    err = refused({"data": {"heldout": jsonl(file, "heldout")}})
    assert "mine.jsonl line 3: the row has no field 'answer' (its fields: 'question')" in err
    assert not (tmp_path / "runs").exists()


def test_two_problems_of_one_id(refused, tmp_path):
    problem = {"question": "1 + 1?", "answer": "2", "key": "a"}
    file = rows(tmp_path / "mine.jsonl", problem, {**problem, "question": "4 - 2?"})
    err = refused({"data": {"train": jsonl(file, id_key="key")}})
    assert "have the id 'a'; ids must be unique" in err


def test_sft_on_problems_without_solutions(refused, tmp_path):
    file = rows(tmp_path / "mine.jsonl", {"question": "1 + 1?", "answer": "2"})
    assert "has no worked solution" in refused({"data": {"sft": jsonl(file)}})


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"source": "word_problms"}, "data source 'word_problms' is unknown. Did you mean 'word_problems'?"),
        ({"source": 3, "split": "train"}, "data.train.source = 3: expected a name."),
        ({"split": 3}, "data.train.split = 3: expected a name."),
        ({"cuont": 3}, "data source 'word_problems' has no setting 'cuont'. Did you mean 'count'?"),
        ({"count": "many"}, "data source 'word_problems': count = 'many': input should be a valid integer"),
        ({"split": "dev"}, "split = 'dev', expected 'train' or 'heldout'"),
        ({"source": "jsonl", "split": "train"}, "data source 'jsonl' needs the setting 'path'"),
    ],
)
def test_a_wrong_data_section(refused, section, sentence):
    changes = {"source": "word_problms", "split": "train"} if section.get("source") == "word_problms" else section
    assert sentence in refused({"data": {"train": changes}})


def test_a_data_section_needs_a_source(refused):
    assert "data.train.source is missing" in refused({}, without="data.train.source")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rewards": {"math_anser": {}}}, "reward 'math_anser' is unknown. Did you mean 'math_answer'?"),
        ({"rewards": {"math_answer": {"mode": "strickt"}}}, "mode = 'strickt': input should be 'strict'"),
        ({"rewards": {"math_answer": {"rihgt": 1}}}, "reward 'math_answer' has no setting 'rihgt'"),
        (
            {"rewards": {"math_answer": {"weight": "big"}}},
            "rewards.math_answer.weight = 'big': expected a finite number",
        ),
        ({"rewards": {"nowhere.py:mine": {}}}, "'nowhere.py' does not exist"),
        ({"algorithm": {"preset": "grppo"}}, "algorithm.preset = 'grppo' is unknown. Did you mean 'grpo'?"),
        ({"algorithm": {"surrogat": "clip"}}, "algorithm has no key 'surrogat'. Did you mean 'surrogate'?"),
        ({"data": {"template": "tinny"}}, "prompt template 'tinny' is unknown. Did you mean 'tiny'?"),
        ({"data": {"template": "gone.txt"}}, "prompt template 'gone.txt' does not exist"),
        ({"model": {"tiny": {"hiden_size": 3}}}, "model.tiny has no setting 'hiden_size'. Did you mean 'hidden_size'?"),
        ({"model": {"tiny": {"vocab_size": 10}}}, "vocab_size = 10"),
        ({"model": {"tiny": {"vocab_size": 1_000_000_000}}}, "vocab_size = 1000000000: input should be less than or"),
        ({"model": {"tiny": {"vocab_size": 1_000_000, "hidden_size": 65_536}}}, "parameters, more than the 2,000,000,"),
        ({"model": {"tiny": {"num_layers": 0}}}, "num_layers = 0: input should be greater than 0"),
        ({"model": {"tiny": {"head_dim": 7}}}, "head_dim = 7: input should be a multiple of 2"),
        ({"model": {"tiny": {"num_heads": 3, "num_kv_heads": 2}}}, "num_heads = 3 is not a multiple of num_kv_heads ="),
        ({"model": {"tiny": {"max_context": 10**12}}}, "max_context = 1000000000000: input should be less than or"),
        (
            {"model": {"tiny": {"initializer_range": float("nan")}}},
            "model.tiny.initializer_range = nan: it should be a finite number",
        ),
        (
            {"model": {"lora": {"rank": 100_000}}},
            "model.lora: rank = 100000: input should be less than or equal to 1024",
        ),
        ({"model": {"lora": {"alpha": float("inf")}}}, "model.lora.alpha = inf: it should be a finite number"),
        ({"threads": 100_000}, "threads = 100000: it should be less than or equal to 1024"),
        ({"grader_workers": 100_000}, "grader_workers = 100000: it should be less than or equal to 1024"),
        ({"seed": 10**25}, "seed = 10000000000000000000000000: it should be a number of at most 15 digits"),
        ({"train": {"steps": 10**30}}, "it should be a number of at most 15 digits"),
        (
            {"evaluate": {"k": 3}},
            "evaluate.k = 3: pass@k needs at least that many samples, got",
        ),
        ({"train": {"stesp": 3}}, "train.stesp: train has no key 'stesp'. Did you mean 'steps'?"),
    ],
)
def test_a_wrong_name_or_setting(refused, changes, sentence):
    assert sentence in refused(changes)


def test_a_group_of_one_under_a_group_advantage(refused):
    err = refused({}, "--rollout.samples_per_prompt", "1")
    assert "rollout.samples_per_prompt = 1: group_zscore gives every rollout advantage 0. Use 2 or more" in err


def test_a_folder_that_is_no_model(refused, tmp_path):
    assert "nowhere' is not a folder" in refused({"model": {"path": str(tmp_path / "nowhere")}})
    (tmp_path / "empty").mkdir()
    assert "empty' has no config.json" in refused({"model": {"path": str(tmp_path / "empty")}})
    (tmp_path / "empty" / "config.json").write_text("{}")
    assert "empty' has no " in refused({"model": {"path": str(tmp_path / "empty")}})
    for file in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (tmp_path / "empty" / file).write_text("{}")
    assert f"model.path = '{tmp_path / 'empty'}'" in refused({"model": {"path": str(tmp_path / "empty")}})


@pytest.mark.parametrize("split", ["sft", "train", "heldout"])
def test_a_prompt_over_the_limit_in_any_split(refused, tmp_path, split):
    short = {"question": "1 + 1?", "answer": "2", "solution": "\\boxed{2}"}
    long = {**short, "question": "1 + " * 200 + "1?"}
    file = rows(tmp_path / "mine.jsonl", short, long)
    err = refused({"data": {split: jsonl(file, split, solution_key="solution")}})
    assert "/mine:2' has " in err
    assert "the limit is 256. Raise rollout.max_prompt_tokens" in err


def test_a_demonstration_over_the_limit(refused):
    err = refused({}, "--rollout.max_response_tokens", "5")
    assert "the limit is 5. Raise rollout.max_response_tokens" in err


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_prompt_that_leaves_no_room_in_the_context(refused, split):
    changes = {"model": {"tiny": {"max_context": 80}}, "rollout": {"max_response_tokens": 48}}
    if split == "heldout":
        changes |= {"train": {"steps": 0}}
    err = refused(changes)
    assert f"the prompt of problem 'word_problems-{'heldout' if split == 'heldout' else ''}" in err
    assert "over the model's context of 80." in err


def test_an_existing_run_is_neither_overwritten_nor_deleted_unasked(refused, ansatz, tmp_path):
    run = tmp_path / "runs" / "toy"
    (run / "model").mkdir(parents=True)
    (run / "config.yaml").write_text("name: toy\n")
    (run / "run.json").write_text('{"recipe": {}, "changes": []}')
    (run / "model" / "done.json").write_text('{"output": ".", "seconds": 1}')
    err = refused({})
    assert (
        f"{run} already holds a run. Resume it with --resume {run}, start over with --fresh, or choose another name"
        in err
    )
    assert (run / "config.yaml").read_text() == "name: toy\n"


@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
def test_a_project_with_a_config_of_its_own_is_never_touched(refused, tmp_path, fresh):
    mine = tmp_path / "runs" / "toy" / "config.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("name: a project of the user")
    assert "is not an Ansatz run folder" in refused({}, *fresh)
    assert [path.name for path in mine.parent.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
def test_a_folder_that_is_no_run_is_never_touched(refused, tmp_path, fresh):
    mine = tmp_path / "runs" / "toy" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    assert (
        "exists and is not an Ansatz run folder (it has no run.json); its files were not touched. Choose another name"
        in refused({}, *fresh)
    )
    assert mine.read_text() == "years of work"


@pytest.mark.parametrize("content", ["{}", "[]", '{"recipe": {}}', "binary", '{"changes": [], "command": "x"}'])
def test_a_folder_with_a_run_json_of_another_program_is_never_touched(refused, tmp_path, content):
    mine = tmp_path / "runs" / "toy"
    mine.mkdir(parents=True)
    (mine / "run.json").write_text(content)
    (mine / "thesis.txt").write_text("years of work")
    for fresh in ([], ["--fresh"]):
        assert "is not an Ansatz run folder (its run.json is not one of Ansatz); its files" in refused({}, *fresh)
    assert sorted(path.name for path in mine.iterdir()) == ["run.json", "thesis.txt"]


@pytest.mark.parametrize("name", ["..", ".", "a/../b", "/elsewhere", ""])
def test_a_run_cannot_be_named_out_of_its_folder(refused, name):
    assert "name = " in refused({}, f"--name={name}")


def test_a_wrong_input_leaves_the_old_run_even_with_fresh(refused, tmp_path):
    run = tmp_path / "runs" / "toy"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: toy\n")
    (run / "run.json").write_text('{"recipe": {}, "changes": []}')
    refused({"data": {"train": jsonl(tmp_path / "gone.jsonl")}}, "--fresh")
    assert (run / "config.yaml").exists()


def test_resuming_what_is_no_run(ansatz, tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        code, _, err = ansatz("train", "--resume", folder)
        assert code == 2
        assert "is not a run folder: config.yaml is missing. Give a folder that `ansatz train` wrote." in err


def test_resume_takes_no_recipe(ansatz, tmp_path):
    for extra in (["r.yaml"], ["--fresh"], ["--overlay", "o.yaml"]):
        code, _, err = ansatz("train", "--resume", tmp_path, *extra)
        assert code == 2
        assert "takes its recipe from that folder; leave the other arguments out." in err


def test_only_a_resume_allows_changes(ansatz):
    code, _, err = ansatz("train", "nowhere.yaml", "--allow-changes")
    assert (code, "--allow-changes has no effect without --resume RUN." in err) == (2, True)


def test_no_recipe_at_all(ansatz):
    code, _, err = ansatz("train")
    assert code == 2
    assert "no recipe given" in err


@pytest.mark.parametrize("verb", ["dedup", "split", "filter"])
@pytest.mark.parametrize("file", ["", ".", "/"])
def test_a_file_without_a_name(ansatz, tmp_path, verb, file):
    heldout = ["--heldout", tmp_path / "heldout.jsonl"] if verb == "split" else []
    code, _, err = ansatz("data", verb, file, "--out", tmp_path / "out.jsonl", *heldout)
    assert code == 2
    assert "is a folder; expected a .jsonl" in err


def test_the_names_of_a_hundred_thousand_fields_do_not_hide_the_advice(ansatz, tmp_path):
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"field{number}" for number in range(100_000)) + "\n1\n")
    code, _, err = ansatz("data", "check", wide)
    assert code == 2
    assert len(err) < 3000
    assert "the row has 1 fields" in err
    assert err.endswith("must be in quotes.\n")


@pytest.mark.e2e
def test_the_real_command_says_one_sentence_and_exits_with_2(tmp_path):
    code, out, err = command("train", toy_recipe(tmp_path, {"data": {"train": jsonl(tmp_path / "gone.jsonl")}}))
    assert code == 2
    assert out.count("\n") == 1  # the line at the start
    assert err.startswith("ansatz: problem file ")
    assert err.count("\n") == 1
