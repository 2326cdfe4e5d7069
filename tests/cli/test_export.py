from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub.hf_api
import pytest
import yaml
from tiny_models import tiny_folder
from toy_runs import toy_config
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ansatz.cli.export import _with_own_files, write_chat_template
from ansatz.cli.model_card import _front_matter, _user_turn
from ansatz.config import load_recipe
from ansatz.config.chat import ChatTemplate, FewShotTemplate
from ansatz.config.load import dump, load_run
from ansatz.data.store import read_problems
from ansatz.loop.model_recipe import choose_template
from ansatz.loop.pipeline import run_pipeline
from ansatz.prompts.render import render
from ansatz.prompts.templates import STEP_BY_STEP
from ansatz.track.jsonl import read_jsonl
from ansatz.types import Problem

CHANGES = {"sft": {"steps": 2}, "train": {"steps": 1}, "save": {"dtype": "bfloat16"}, "evaluate": {"top_p": 0.9}}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_pipeline(toy_config(tmp_path_factory.mktemp("run"), CHANGES))


def test_an_export_is_the_final_model_with_everything_that_its_use_needs_and_nothing_else(ansatz, run, tmp_path):
    code, out, err = ansatz("export", run, tmp_path / "model")
    assert (code, err) == (0, "")
    assert str(tmp_path / "model") in out
    folder, last = tmp_path / "model", run / "rl" / "checkpoints" / "step-000001"
    model = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == model | {"chat_template.jinja", "README.md", "recipe.yaml"}
    assert (folder / "model.safetensors").read_bytes() == (last / "model.safetensors").read_bytes()
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert str(loaded.dtype) == "torch.bfloat16"
    generation = GenerationConfig.from_pretrained(folder)
    assert (generation.do_sample, generation.temperature, generation.top_p, generation.top_k) == (True, 1.0, 0.9, 0)
    assert generation.max_new_tokens == 24
    assert generation.eos_token_id == loaded.config.eos_token_id


def test_the_chat_template_renders_a_question_as_training_did(ansatz, run, tmp_path):
    assert ansatz("export", run, tmp_path / "model")[0] == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    problem = read_problems(run / "problems" / "heldout.jsonl")[0]
    turns = [{"role": "user", "content": problem.question}]
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert tuple(ids) == render(problem, "tiny", tokenizer).token_ids


def test_a_chat_template_takes_any_text_and_begins_as_the_tokenizer_does(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    template = tmp_path / "odd.txt"
    text = "{{ 7 }} \"quoted\" 'single' \\boxed{} \\n {% raw %}\n<|user|> \u00e9\U0001f600 {question} {#}\n"
    template.write_text(text)
    write_chat_template(folder, str(template))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "2 {{ 3 }}"}], tokenize=False)
    assert rendered == text.replace("{question}", "2 {{ 3 }}")


CHAT = "{%- for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{{ 'think' if deep else 'short' }}"


@pytest.fixture
def chat_folder(tmp_path):
    folder = tiny_folder(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def test_the_models_own_chat_template_gets_the_recipes_system_prompt_and_arguments(chat_folder):
    system = "Be \"brief\",\nand {{ kind }}: \u00e9 'x' {% raw %}"
    template = ChatTemplate(name="chat", system=system, arguments={"deep": True, "odd": {"a": [None, 1.5, "b"]}})
    turns = [{"role": "user", "content": "2?"}]
    problem = Problem(id="p", question="2?", answers=("2",), source="test", split="train")
    trained = render(problem, template, AutoTokenizer.from_pretrained(chat_folder)).text
    write_chat_template(chat_folder, template)
    exported = AutoTokenizer.from_pretrained(chat_folder)

    def shown(turns, **arguments):
        return exported.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **arguments)

    assert shown([{"role": "user", "content": f"2?\n{STEP_BY_STEP}"}]) == trained
    assert render(problem, template, exported).text == trained  # rendered by us, the system prompt is not there twice
    assert trained.startswith(f"[system] {system}\n[user] 2?")
    assert trained.endswith("think")
    own = [{"role": "system", "content": "Be kind."}, *turns]
    assert shown(own, deep=False) == "[system] Be kind.\n[user] 2?\nshort"


def test_without_a_system_prompt_and_arguments_the_models_own_chat_template_stays_as_it_is(chat_folder):
    before = (chat_folder / "chat_template.jinja").read_bytes()
    for template in ("chat", ChatTemplate(name="chat")):
        write_chat_template(chat_folder, template)
        assert (chat_folder / "chat_template.jinja").read_bytes() == before


def test_an_exported_model_is_evaluated_with_the_template_of_its_training(ansatz, run, tmp_path):
    assert ansatz("export", run, tmp_path / "model")[0] == 0
    assert choose_template(tmp_path / "model", has_chat_template=True)[0] == "tiny"
    (tmp_path / "model" / "recipe.yaml").write_text("dataset: {name: of another program}")
    assert choose_template(tmp_path / "model", has_chat_template=True)[0] == "chat"


def test_an_exported_template_of_a_file_goes_with_the_model(ansatz, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("Say: {question}!\n")
    config = toy_config(tmp_path, {**CHANGES, "data": {"template": str(words)}, "name": "words"})
    assert ansatz("export", run_pipeline(config), tmp_path / "out" / "model")[0] == 0
    words.unlink()
    moved = (tmp_path / "out" / "model").rename(tmp_path / "moved")
    template, _ = choose_template(moved, has_chat_template=True)
    assert template == str(moved / "prompt.txt")
    assert str(tmp_path) not in (moved / "README.md").read_text().partition("## Recipe")[0].partition("## Prompt")[2]


def test_worked_problems_are_in_the_chat_template_and_the_files_of_settings_go_with_the_model(tmp_path):
    folder, frame, few = tiny_folder(tmp_path / "model"), tmp_path / "frame.txt", tmp_path / "few.jsonl"
    frame.write_text("Q: {question}\nA: ")
    few.write_text(json.dumps({"question": "1 + 1?", "solution": "2"}) + "\n")
    template = FewShotTemplate(name=str(frame), shots=str(few), num_shots=1)
    chat = ChatTemplate(name="chat", user=str(frame), shots=str(few), num_shots=1)
    write_chat_template(folder, template)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    problem = Problem(id="p", question="5?", answers=("5",), source="test", split="train")
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "5?"}], tokenize=False)
    assert rendered == render(problem, template, tokenizer).text == "Q: 1 + 1?\nA: 2\n\nQ: 5?\nA: "
    changes = {"data": {"template": template.model_dump()}, "evaluate": {"template": chat.model_dump()}}
    (folder / "recipe.yaml").write_text(dump(_with_own_files(toy_config(tmp_path, changes), folder)))
    for file in (frame, few):
        file.unlink()
    recipe = load_recipe(folder / "recipe.yaml", trust_code=True)
    assert render(problem, recipe.data.template, tokenizer).text == rendered
    copies = {"user": str(folder / "evaluate_prompt.txt"), "shots": str(folder / "evaluate_shots.jsonl")}
    assert isinstance(recipe.evaluate.template, ChatTemplate)
    assert recipe.evaluate.template.model_dump() == {**chat.model_dump(), **copies}
    assert all(Path(copy).is_file() for copy in copies.values())


def test_a_file_of_another_machine_keeps_its_name(tmp_path):
    changes = {"data": {"template": {"name": "chat", "user": "/elsewhere/frame.txt"}}}
    config = toy_config(tmp_path, changes)
    assert _with_own_files(config, tmp_path).data.template == config.data.template
    assert isinstance(config.data.template, ChatTemplate)
    assert _user_turn(config.data.template) == "the question in the text of `/elsewhere/frame.txt`."


def test_the_model_card_has_the_scores_with_intervals_the_data_and_the_way_to_repeat_the_run(ansatz, run, tmp_path):
    assert ansatz("export", run, tmp_path / "model")[0] == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "transformers"
    row = read_jsonl(run / "rl" / "evaluations.jsonl")[-1]
    low, high = row["pass@1_interval"]
    assert f"| rl | 1 | 6 | 2 | {100 * row['pass@1']:.1f} | {100 * low:.1f} to {100 * high:.1f} |" in card
    assert card.index("| model | 0 |") < card.index("| sft | 2 |") < card.index("| rl | 1 |")
    assert "| train | word_problems | 100 | `" in card
    assert "The weights are bfloat16." in card
    assert "ansatz train recipe.yaml" in card
    assert load_recipe(tmp_path / "model" / "recipe.yaml", trust_code=True) == load_run(run)


def test_the_model_card_names_the_hub_model_of_the_run_without_its_commit(tmp_path):
    config = toy_config(tmp_path)
    named = config.model_copy(update={"model": config.model.model_copy(update={"path": f"us/tiny@{'a' * 40}"})})
    assert "base_model: us/tiny\n" in _front_matter(named)
    assert "base_model" not in _front_matter(config)


def test_the_model_card_of_a_checkpoint_leaves_out_the_stages_after_it(ansatz, run, tmp_path):
    assert ansatz("export", run / "sft" / "checkpoints" / "step-000002", tmp_path / "model")[0] == 0
    card = (tmp_path / "model" / "README.md").read_text()
    assert "(stages: sft), from" in card
    assert "| sft | 2 |" in card
    assert "| rl | 1 |" not in card


def test_the_card_names_the_model_of_the_hub_that_the_run_began_with(ansatz, run, tmp_path):
    """A run's recipe has the commit too, which the hub does not take there."""
    copy = shutil.copytree(run, tmp_path / "copy")
    recipe = yaml.safe_load((copy / "config.yaml").read_text())
    recipe["model"] |= {"path": "Some/Model@0123abc", "toy": False}
    (copy / "config.yaml").write_text(yaml.safe_dump(recipe))
    assert ansatz("export", copy, tmp_path / "model", "--trust-code")[0] == 0
    assert "\nbase_model: Some/Model\n---\n" in (tmp_path / "model" / "README.md").read_text()


def test_an_unfinished_run_is_refused(ansatz, run, tmp_path):
    done = run / "rl" / "done.json"
    content = done.read_bytes()
    done.unlink()
    code, _, err = ansatz("export", run, tmp_path / "model")
    done.write_bytes(content)
    assert code == 2
    assert "is not finished: its stage rl is not done. Finish it with ansatz train --resume" in err
    assert not (tmp_path / "model").exists()


def test_what_is_not_a_run_or_not_an_empty_folder_is_refused(ansatz, run, tmp_path, monkeypatch):
    code, _, err = ansatz("export", tmp_path, tmp_path / "model")
    assert (code, "is not a run folder (run.json is missing)" in err) == (2, True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    code, _, err = ansatz("export", run, tmp_path / "full")
    assert (code, "is not an empty folder" in err) == (2, True)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    code, _, err = ansatz("export", run, ".")
    assert (code, "is the current one" in err) == (2, True)
    (tmp_path / "link").symlink_to(run)
    for out in (run / "model-to-share", run / "rl" / ".." / "deep" / "model", tmp_path / "link" / "model-to-share"):
        code, _, err = ansatz("export", run, out)
        assert (code, "lies in the run folder" in err) == (2, True)
        assert not out.exists()


class Hub(BaseHTTPRequestHandler):
    """The three routes of the hub that an upload without large files uses. commits: the files of each commit."""

    created: list[dict[str, Any]]
    commits: list[dict[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        route = self.path.partition("?")[0]
        if route == "/api/repos/create":
            self.created.append(json.loads(body))
            self._reply({"url": f"http://{self.headers['Host']}/me/toy"})
        elif route == "/api/models/me/toy/preupload/main":
            files = [file["path"] for file in json.loads(body)["files"]]
            self._reply({"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in files]})
        elif route == "/api/models/me/toy/commit/main":
            lines = [json.loads(line) for line in body.splitlines()]
            files = [line["value"] for line in lines if line["key"] == "file"]
            self.commits.append({file["path"]: base64.b64decode(file["content"]) for file in files})
            address = f"http://{self.headers['Host']}/me/toy/commit/{'0' * 40}"
            self._reply({"success": True, "commitOid": "0" * 40, "commitUrl": address})
        else:
            self._reply({})

    def do_GET(self) -> None:
        self._reply({"sha": "0" * 40, "id": "me/toy"})

    def log_message(self, *_: Any) -> None: ...

    def _reply(self, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A stand-in of the hub on this machine, with a token that only it sees."""
    Hub.created, Hub.commits = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    use_hub(monkeypatch, f"http://127.0.0.1:{server.server_address[1]}")
    yield Hub
    server.shutdown()
    server.server_close()


def use_hub(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(huggingface_hub.hf_api.constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.hf_api.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.hf_api.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "of-the-test")


def test_push_uploads_every_file_to_a_private_repository(ansatz, run, tmp_path, hub):
    code, out, err = ansatz("export", run, tmp_path / "model", "--push", "me/toy")
    assert code == 0, err
    assert "/me/toy" in out
    assert [(repo["name"], repo["organization"], repo["visibility"]) for repo in hub.created] == [
        ("toy", "me", "private")
    ]
    assert hub.commits == [{path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}]


def test_push_without_network_is_one_sentence_and_the_folder_stays(ansatz, run, tmp_path, monkeypatch):
    use_hub(monkeypatch, "http://127.0.0.1:9")
    code, _, err = ansatz("export", run, tmp_path / "model", "--push", "me/toy")
    assert code == 2
    assert "--push me/toy: the upload to http://127.0.0.1:9 failed: " in err
    assert "Traceback" not in err
    assert (tmp_path / "model" / "README.md").is_file()


def test_best_exports_the_checkpoint_with_the_best_held_out_score(ansatz, tmp_path):
    folder = run_pipeline(toy_config(tmp_path / "r", {"data": {"sft": None}, "evaluate": {"every": 1}}))
    path = folder / "rl" / "evaluations.jsonl"
    scores = {1: 0.1, 2: 0.6, 4: 0.4}  # by step; step 2 has a checkpoint, by save.every
    rows = [{**row, "pass@1": scores[row["step"]]} for row in read_jsonl(path) if row["step"] in scores]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ansatz("export", folder, tmp_path / "best", "--best")[0] == 0
    kept = folder / "rl" / "checkpoints" / "step-000002" / "model.safetensors"
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == kept.read_bytes()
    card = (tmp_path / "best" / "README.md").read_text()
    assert "| rl | 2 |" in card
    assert "| rl | 4 |" not in card
    assert "checkpoint of step 2 of 4. It had the best score" in card
    assert ansatz("export", kept.parent, tmp_path / "chosen")[0] == 0
    assert "checkpoint of step 2 of 4.\n" in (tmp_path / "chosen" / "README.md").read_text()
    code, _, err = ansatz("export", kept.parent, tmp_path / "none", "--best")
    assert (code, f"--best chooses a checkpoint of {folder}" in err) == (2, True)
    path.write_text("")
    code, _, err = ansatz("export", folder, tmp_path / "none", "--best")
    assert code == 2
    assert "no checkpoint that was evaluated" in err
