"""`ansatz export RUN OUT`: the final model of a run as a folder to share, with a model card; --push: to the hub."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ansatz.cli.recipe import TrustCode
from ansatz.config.chat import ChatTemplate, Template
from ansatz.config.schema import Config
from ansatz.errors import ConfigError, ModelError
from ansatz.files import write_text
from ansatz.json_text import read_object
from ansatz.links import copy_tree, list_folder, remove, rename
from ansatz.model_config import TEXT_PART_OF
from ansatz.visible import say

PROMPT_FILE, SHOTS_FILE = "prompt.txt", "shots.jsonl"
"""A prompt template of the user's own and its worked problems, next to the exported recipe that names them."""


def export(
    run: Annotated[Path, typer.Argument(help="A finished run, such as runs/NAME, or a checkpoint of a run.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must not exist, or be empty.")],
    best: Annotated[
        bool, typer.Option("--best", help="Export the checkpoint with the best held-out pass@1, not the final one.")
    ] = False,
    trust_code: TrustCode = False,
    push: Annotated[str, typer.Option(help="Upload the folder to the hub too, as OWNER/NAME.")] = "",
) -> None:
    """Write the final model of a run with generation config, chat template, recipe and model card (README.md).

    The generation config samples as the run's evaluations did, and the chat template renders a question as training
    did. --best and a checkpoint also work for a run that is unfinished. Neither optimizer state nor master weights are
    copied. A repository that --push creates is private.
    """
    from ansatz.config.load import RUN_FILE, load_run
    from ansatz.loop.run_record import is_run_folder

    given, run = run, next((folder for folder in (run, *run.absolute().parents) if is_run_folder(folder)), run)
    if not is_run_folder(run):
        raise ConfigError(f"{str(run)!r} is not a run folder ({RUN_FILE} is missing). Give one that a run wrote.")
    if given != run and (given.parent.name != "checkpoints" or not (given / "config.json").is_file()):
        raise ConfigError(
            f"{str(given)!r} is not a checkpoint. Give {run}, or a folder STAGE/checkpoints/step-N of it."
        )
    if best and given != run:
        raise ConfigError(f"--best chooses a checkpoint of {run}, and {given} is one. Leave one of the two out.")
    if out.exists() and (not out.is_dir() or list_folder(out) or out.samefile(".")):  # which it would replace
        raise ConfigError(f"{str(out)!r} is not an empty folder, or is the current one. Choose another folder.")
    if out.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{str(out)!r} lies in the run folder, to which nothing is added. Choose a folder elsewhere.")
    config = load_run(run, trust_code=trust_code or None)

    from ansatz.cli.model_card import write_card
    from ansatz.loop.run_models import best_model, final_model
    from ansatz.repeat.card import copy_card
    from ansatz.train.checkpoint import DIGESTS_FILE, verify_digests
    from ansatz.train.trainer import TRAINING

    model = given
    if given == run:
        model = best_model(run, config) if best else final_model(run, config)
    verify_digests(model)
    draft = out.with_name(f".{out.name}.draft")
    remove(draft)
    copy_tree(model, draft, ignore=(TRAINING, DIGESTS_FILE))
    write_generation_config(draft, config)
    write_chat_template(draft, config.data.template)
    copy_card(run, draft)
    recipe, template = _with_own_files(config, draft), config.data.template
    write_card(draft, run, recipe, checkpoint=model.absolute(), template=template, is_best=best)
    rename(draft, out)
    part = read_object(out / "config.json", error=ModelError, advice="Export it again.").get(TEXT_PART_OF)
    say(f"Model: {out}" + (f" (the text part of a {part} model, without the weights for images)" if part else ""))
    if push:
        say(f"Uploaded: {push_folder(out, push)}")


def _with_own_files(config: Config, folder: Path) -> Config:
    """Copy the files that the prompt templates name into the folder, and return the recipe with the copies."""
    data, evaluate = config.data, config.evaluate
    with suppress(ConfigError):  # a file of another machine keeps its name, which README.md says
        data = data.model_copy(update={"template": _with_copies(data.template, folder)})
    if evaluate.template is not None:
        with suppress(ConfigError):
            template = _with_copies(evaluate.template, folder, begin="evaluate_")
            evaluate = evaluate.model_copy(update={"template": template})
    return config.model_copy(update={"data": data, "evaluate": evaluate})


def _with_copies(template: Template, folder: Path, *, begin: str = "") -> Template:
    """Copy the files that a prompt template names, and return it with the copies. begin: of their names."""
    from ansatz.prompts.templates import read_shots, template_text, text_name

    changes = dict[str, str]()
    if (name := text_name(template)).endswith(".txt"):
        changes["user" if isinstance(template, ChatTemplate) else "name"] = f"{begin}{PROMPT_FILE}"
        write_text(folder / f"{begin}{PROMPT_FILE}", template_text(name))
    if isinstance(template, str):
        return changes.get("name", template)
    if template.shots is not None:
        changes["shots"] = f"{begin}{SHOTS_FILE}"
        shots = read_shots(template.shots, num_shots=template.num_shots)
        rows = [json.dumps({"question": question, "solution": solution}) + "\n" for question, solution in shots]
        write_text(folder / changes["shots"], "".join(rows))
    return template.model_copy(update=changes)


def write_generation_config(folder: Path, config: Config) -> None:
    """Write the sampling of the run's evaluations, with the end tokens that the model had before. With a chat template,
    the token that ends a turn is an end token too: the policy was trained to end its responses by it."""
    from ansatz.models.load import load_tokenizer
    from ansatz.special_tokens import end_of_turn

    path = folder / "generation_config.json"
    before = read_object(path, error=ModelError, advice="Remove the file.") if path.is_file() else {}
    kept = {key: value for key, value in before.items() if key.endswith("_token_id") or key == "transformers_version"}
    evaluate = config.evaluate
    sampling: dict[str, Any] = {"do_sample": False}
    if evaluate.temperature > 0:
        sampling = {"do_sample": True, "temperature": evaluate.temperature, "top_p": evaluate.top_p}
        sampling |= {"top_k": evaluate.top_k}  # 0 switches it off; without the key, transformers would use 50
        sampling |= {"min_p": evaluate.min_p} if evaluate.min_p else {}
    ends = kept.get("eos_token_id")
    known = ends if isinstance(ends, list) else [ends]
    turn_end = end_of_turn(load_tokenizer(folder))
    if turn_end is not None and turn_end not in known:
        kept["eos_token_id"] = [*(token for token in known if token is not None), turn_end]
    settings = {**kept, **sampling, "max_new_tokens": evaluate.max_response_tokens}
    write_text(path, json.dumps(settings, indent=2, sort_keys=True) + "\n")


def write_chat_template(folder: Path, template: Template) -> None:
    """Write a chat template that renders the last message as training rendered a question.

    With the prompt template "chat", it is the model's own chat template with the recipe's system prompt and arguments
    as defaults.
    """
    from ansatz.models.save import add_to_chat_template, save_chat_template
    from ansatz.prompts.templates import QUESTION, spelled_out, whole_text

    given, template = template, spelled_out(template)
    if isinstance(template, ChatTemplate):
        if template.system is not None or template.arguments or template.tools:
            arguments = {**template.arguments, **({"tools": template.tools} if template.tools else {})}
            add_to_chat_template(folder, system=template.system, arguments=arguments)
    else:
        before, _, after = whole_text(given).rpartition(QUESTION)
        save_chat_template(folder, before=before, after=after)


def push_folder(folder: Path, name: str) -> str:
    """Upload a folder to the hub and return its address. Raise ConfigError if the hub refuses or cannot be reached."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Model exported by Ansatz")
    except Exception as error:  # of the hub, or of its HTTP client, which is another package in every version
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        raise ConfigError(
            f"--push {name}: the upload to {api.endpoint} failed: {reason}. Check the name, the network and the login "
            f"(hf auth login). The folder {folder} is complete; hf upload {name} {folder} uploads it later."
        ) from error
    return str(address)
