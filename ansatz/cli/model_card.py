"""The model card of an exported run: its scores with intervals, its data, its recipe, and how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ansatz.config.chat import ChatTemplate, Template
from ansatz.config.load import RECIPE_FILE, dump
from ansatz.config.schema import FIRST_STAGES, Config
from ansatz.errors import PUBLISHED, ConfigError, ModelError
from ansatz.files import file_digest, write_text
from ansatz.hub import hub_name
from ansatz.json_text import read_object
from ansatz.links import is_own_file, list_folders, open_file, read_text
from ansatz.loop.run_record import read_record, record_of
from ansatz.loop.stages.plan import folder_names, planned_stages
from ansatz.model_config import TEXT_PART_OF
from ansatz.prompts.templates import QUESTION, spelled_out, whole_text
from ansatz.track.checked_rows import read_evaluations, read_metrics
from ansatz.track.overlap import overlap
from ansatz.track.runs import SHOWN_TEXTS
from ansatz.train.checkpoint import step_of


def write_card(folder: Path, run: Path, config: Config, *, checkpoint: Path, template: Template, is_best: bool) -> None:
    """Write README.md, and the recipe.yaml that repeats the run. folder: already holds the model of `checkpoint`.

    config: names the copies of files in the folder. template: as `data.template` of the run, with the files there.
    is_best: whether the checkpoint was chosen by its held-out score.
    """
    recipe = dump(config)
    write_text(folder / RECIPE_FILE, recipe)
    record = read_record(run) or record_of(config)
    config_json = read_object(folder / "config.json", error=ModelError, advice="Export another checkpoint.")
    dtype = config_json.get("dtype", "float32")
    planned = planned_stages(config)
    last = next((n for n, entry in enumerate(planned) if checkpoint.parents[1].name in entry.folders), len(planned))
    stages = [entry.stage.name for entry in planned[len(FIRST_STAGES) : last + 1]]
    start = "a model with random weights" if config.model.built else f"`{config.model.path}`"
    part = config_json.get(TEXT_PART_OF)
    text = f" This is the text part of a {part} model, without the weights for images." if part else ""
    sections = [
        _front_matter(config),
        f"# {config.name}\n\nTrained with Ansatz {record.version} (stages: {', '.join(stages)}), from "
        f"{start}. The weights are {dtype}.{text}",
        _scores(run, config, checkpoint, is_best=is_best),
        _data(run, config),
        _prompt(run, config, spelled_out(template)),
        _repetition(config, version=record.version, num_changes=len(record.changes)),
        f"## Recipe\n\n```yaml\n{recipe.rstrip()}\n```",
    ]
    write_text(folder / "README.md", "\n\n".join(sections) + "\n")


def _front_matter(config: Config) -> str:
    lines = ["library_name: transformers", "pipeline_tag: text-generation", "tags: [ansatz, math]"]
    if not config.model.built and (parts := hub_name(str(config.model.path))) is not None:
        lines.append(f"base_model: {parts.repository}")
    return "\n".join(["---", *lines, "---"])


def _scores(run: Path, config: Config, checkpoint: Path, *, is_best: bool) -> str:
    """Return the last evaluation of every stage up to the exported checkpoint, in the order of the stages."""
    order = {name: place for place, name in enumerate(folder_names(config))}
    stage, step = checkpoint.parents[1].name, step_of(checkpoint)
    evaluations = (row for folder in list_folders(run) for row in read_evaluations(folder / "evaluations.jsonl"))
    place = order.get(stage, len(order))
    last = {
        row["stage"]: row
        for row in evaluations
        if (row["step"] <= step if row["stage"] == stage else order.get(row["stage"], -1) < place)
    }
    last_step = max((row["step"] for row in read_metrics(run / stage / "metrics.jsonl")), default=step)
    is_ungraded = all(row["pass@1"] is None for row in last.values())
    rows = [
        [
            row["stage"],
            row["step"],
            row.get("num_problems", ""),
            row.get("samples_per_prompt", ""),
            "" if row["pass@1"] is None else _percent(row["pass@1"]),
            " to ".join(_percent(bound) for bound in row.get("pass@1_interval") or ()),
            "" if row["greedy"] is None else _percent(row["greedy"]),
            "" if row["maj@k"] is None else f"{_percent(row['maj@k'])} (k = {row.get('k', '')})",
            *([f"{row.get('reward') or 0:.3f}"] if is_ungraded else []),
        ]
        for row in sorted(last.values(), key=lambda row: order.get(row["stage"], -1))
    ]
    seen = overlap(run, problems=max((row.get("num_problems", 0) for row in last.values()), default=0))
    names = ["after stage", "step", "problems", "samples", "pass@1 in %", "95 % interval", "greedy", "maj@k"]
    names += ["mean reward"] if is_ungraded else []
    evaluate = config.evaluate
    return (
        f"## Scores on held-out problems\n\n{_table(names, rows)}\n\n"
        f"Sampled at temperature {evaluate.temperature} with at most {evaluate.max_response_tokens} tokens, and graded "
        "by the rewards of the recipe. The intervals come from resampling the problems. The scores were measured "
        f"during the run, with weights in its compute type (`model.dtype: {config.model.dtype}`), and only on the "
        "problems named below; other problems can give other scores."
        + (f" {seen.sentence()}" if seen else "")
        + (f" The model is the checkpoint of step {step} of {last_step}." if step < last_step else "")
        + (_BEST if is_best and step < last_step else "")
    )


_BEST = (
    " It had the best score of all evaluations of the stage. Its score is therefore a little higher than on new "
    "problems."
)


def _data(run: Path, config: Config) -> str:
    rows = [
        [name, section["source"], _num_lines(path), f"`{file_digest(path)}`"]
        for name in ("sft", "train", "heldout")
        if (section := getattr(config.data, name)) and (path := run / "problems" / f"{name}.jsonl").is_file()
    ]
    return f"## Data\n\n{_table(['use', 'source', 'problems', 'SHA-256 of the problems'], rows)}"


def _num_lines(path: Path) -> int:
    with open_file(path) as file:
        return sum(1 for _ in file)


def _prompt(run: Path, config: Config, template: str | ChatTemplate) -> str:
    if isinstance(template, ChatTemplate):
        text = f"The user's last turn in the chat template is {_user_turn(template)}{_defaults(template)}"
    else:
        text = (
            f"The prompt template is `{config.data.template}`. The chat template of this folder renders the last "
            "message with it and ignores earlier ones, because the model was trained on single questions."
        )
    if is_own_file(shown := run / SHOWN_TEXTS):
        rendered = read_text(shown, errors="replace").partition("\n\ndemonstration of problem")[0].rstrip()
        text += f"\n\nThe first {rendered.partition(chr(10))[0]}\n\n````text\n{rendered.partition(chr(10))[2]}\n````"
    return f"## Prompt\n\n{text}"


def _user_turn(template: ChatTemplate) -> str:
    """Describe the user's turn: the question and the text around it, which the chat template does not add."""
    try:
        text = whole_text(template)
    except ConfigError:  # a file that is not here any more
        shots = f", after the worked problems of `{template.shots}`" if template.shots is not None else ""
        return f"the question in the text of `{template.user}`{shots}."
    if text == QUESTION:
        return "the question alone."
    quoted = text.strip().replace("\n", "\n> ")
    return f"this text, with the question in the place of {QUESTION}:\n\n> {quoted}"


def _defaults(template: ChatTemplate) -> str:
    """Describe the defaults that the exported chat template adds to a conversation."""
    text = ""
    if template.system is not None:
        system = template.system.strip().replace("\n", "\n> ")
        text += f"\n\nA conversation without a system prompt gets the one of training:\n\n> {system}"
    if template.arguments:
        arguments = json.dumps(template.arguments, ensure_ascii=False)
        text += f"\n\nThe chat template's arguments default to those of training: `{arguments}`."
    return text


def _repetition(config: Config, *, version: str, num_changes: int) -> str:
    from_clone = f"pip install ./packages/verify .  # in a clone of Ansatz {version}"
    install = f"pip install ansatz-rl=={version}" if PUBLISHED else from_clone
    text = (
        f"## Repeat the run\n\n```sh\n{install}\nansatz train recipe.yaml\n```\n\n"
        f"The same seed ({config.seed}), machine and number of threads give the same bits. Files that the recipe names "
        "must be there."
    )
    if num_changes:
        text += f" The recipe was changed {num_changes} times while the run was resumed; this is its last form."
    return text


def _table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
