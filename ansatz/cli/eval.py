"""`ansatz eval MODEL... --suite S`: how good models are on suites; `--rescore DIR`: grade responses again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ansatz.cli.responses import OptionalModels, fill, model_digest, model_names
from ansatz.cli.sampling_options import ModelSampling, given, takes_sampling
from ansatz.config.load import parse_yaml
from ansatz.config.packaged import recipe_text
from ansatz.errors import ConfigError
from ansatz.hub import local_folder
from ansatz.registry import describe_missing_file
from ansatz.trust import trusted
from ansatz.visible import say

if TYPE_CHECKING:
    from ansatz.cli.opened_model import OpenedModel
    from ansatz.evaluate.responses import ResponseGrader
    from ansatz.evaluate.suites import LoadedSuite
    from ansatz.types import Problem


@takes_sampling(temperature=0.7, top_p=0.95)
def eval(
    models: OptionalModels = None,
    suite: Annotated[
        str, typer.Option(help="Suites or problem files (.jsonl, .json, .csv, .tsv or .parquet), with commas.")
    ] = "",
    suites: Annotated[
        Path | None, typer.Option(help="Folder that holds SUITE/test.jsonl. Without it suites come from the hub.")
    ] = None,
    problems: Annotated[int, typer.Option(min=0, help="Evaluate on N problems, evenly spaced; 0: all.")] = 0,
    *,
    sampling: ModelSampling,
    rewards: Annotated[
        str,
        typer.Option(
            help="Grade with a reward such as countdown, program, code_tests or judge, or with those of a YAML file, "
            "instead of the verifier's three modes."
        ),
    ] = "",
    reward_model: Annotated[
        str, typer.Option(help="Also choose among the responses by this reward model: best@k, weighted@k.")
    ] = "",
    thinking_budgets: Annotated[
        str, typer.Option(help="Evaluate once per thinking budget, such as 64,0,+256 (0: no limit, +N: at least N).")
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write; several models and suites: OUT/MODEL/SUITE. Default: evals/MODEL/SUITE."),
    ] = None,
    rescore: Annotated[Path | None, typer.Option(help="Grade the responses in this folder again; no model.")] = None,
    command_line: typer.Context,
) -> None:
    """Sample responses to each problem, grade them in three modes from strict to lenient, and print the scores.

    Writes OUT/rollouts.jsonl as problems finish and OUT/results.json at the end, and prints OUT. The same command
    resumes an interrupted evaluation and ends with the same bytes. With --thinking-budgets, each budget gets a folder
    OUT/budget-N, and OUT/budgets.json and budgets.svg compare them.
    """
    if rescore is not None:
        _check_alone(rescore, given(command_line))
        _print([*_rescore(rescore), f"Written: {rescore}"])
    elif not models or not suite:
        from ansatz.evaluate.suites import SUITES

        raise ConfigError(
            f"give a run or model folder and --suite, or --rescore DIR. Suites: {', '.join(SUITES)}, or a problem file."
        )
    else:
        loaded = _load_suites(suite, suites)
        for model, name in zip(models, model_names(models, trust_code=sampling.trust_code), strict=True):
            evaluation = Evaluation(
                model=model,
                problems=problems,
                sampling=sampling,
                rewards=rewards,
                reward_model=reward_model,
                out=Path("evals") / name if out is None else out if len(models) == 1 else out / name,
                suite_folders=out is None or len(loaded) > 1,
            )
            parts = evaluation.run(loaded, thinking_budgets)
            _print(parts if len(models) == 1 else [f"\n{model}", *parts])


def _check_alone(rescore: Path, options: Sequence[str]) -> None:
    """Raise ConfigError if other options are given with --rescore."""
    if others := [name for name in options if name != "rescore"]:
        shown = ", ".join("models" if name == "models" else f"--{name.replace('_', '-')}" for name in others)
        raise ConfigError(
            f"--rescore {rescore} grades the responses of that folder again by the verifier, and takes everything "
            f"else from there. Leave out {shown}."
        )


def _print(parts: Sequence[Any]) -> None:
    """Print tables and sentences. A path in a sentence stays on one line."""
    from ansatz.track.console import SafeConsole

    console = SafeConsole()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def _load_suites(names: str, folder: Path | None) -> list[LoadedSuite]:
    """Return the suites of a list with commas. Raise ConfigError if two have the same name, and so the same folder of
    results."""
    from ansatz.evaluate.suites import load_suite

    loaded = [load_suite(name.strip(), folder=folder) for name in names.split(",") if name.strip()]
    seen: set[str] = set()
    for suite in loaded:
        if suite.card.name in seen:
            raise ConfigError(f"--suite {names}: two suites are called {suite.card.name!r}. Evaluate them separately.")
        seen.add(suite.card.name)
    if folder is not None and not any(suite.card.hub for suite in loaded):
        raise ConfigError(f"--suites {str(folder)!r} has no effect on files and generators. Leave it out.")
    return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How to evaluate a model. problems: how many of each suite, evenly spaced; 0: all. rewards: see `grading`;
    empty: the verifier, except for suites without gold answers. reward_model: a folder or model of the hub that scores
    the responses; empty: none. suite_folders: whether each suite gets a folder of its
    own in `out`."""

    model: Path
    problems: int
    sampling: ModelSampling
    rewards: str
    reward_model: str
    out: Path
    suite_folders: bool

    def run(self, suites: Sequence[LoadedSuite], budgets: str) -> list[Any]:
        """Evaluate on the suites, or resume, and return the tables and notes to print."""
        from ansatz.cli.eval_tables import budgets_table, results_tables, suite_notes, suites_table
        from ansatz.cli.opened_model import open_model

        numbers = self._budgets(budgets)
        with open_model(self.model, self.sampling, evaluates=True) as opened:
            if numbers:
                curves = [budgets_table(self._run_budgets(suite, opened, numbers)) for suite in suites]
                return [*curves, *(f"Written: {self._budgets_folder(suite)}" for suite in suites)]
            folders = [self._folder(suite.card.name) for suite in suites]
            results = [
                self._run_suite(suite, opened, self.sampling, folder)
                for suite, folder in zip(suites, folders, strict=True)
            ]
        written = [f"Written: {folder}" for folder in folders]
        if len(results) == 1:
            return [*results_tables(results[0]), *written]
        return [suites_table(results), *(note for result in results for note in suite_notes(result)), *written]

    def _run_suite(
        self, suite: LoadedSuite, opened: OpenedModel, sampling: ModelSampling, path: Path
    ) -> dict[str, Any]:
        """Run the evaluation in a folder, or resume it, and return the content of results.json."""
        from ansatz.environments.base import bind_environment, check_environment_reward
        from ansatz.evaluate.folder import EvaluationFolder
        from ansatz.prompts.templates import check_unseen

        folder = EvaluationFolder(path)
        name = suite.card.name
        card = {**dataclasses.asdict(suite.card), "sha256": suite.sha256, "as_on_card": suite.as_on_card}
        problems = suite.evenly_spaced(self.problems)
        check_unseen(opened.template, problems)
        with grading(self.rewards, suite=name, problems=problems) as (about, make_grader):
            check_environment_reward(about.get("rewards", ()), bind_environment(opened.environment))
            settings = {"suite": card, **about}
            if self.reward_model:
                settings["reward_model"], make_grader = self._scoring(make_grader, opened)
            fill(folder, opened, problems, sampling, about=settings, source=name, make_grader=make_grader)
        return folder.write_results()

    def _scoring(self, make_grader: MakeGrader | None, opened: OpenedModel) -> tuple[dict[str, str], MakeGrader]:
        """Return the settings of the reward model, and the grader whose responses have its scores."""
        from ansatz.evaluate.responses import all_modes_grader, with_scores
        from ansatz.reward_models.scoring import score_function

        kind, score = score_function(self.reward_model, device=opened.policy.device.type)
        about = {"path": self.reward_model, "kind": kind, "sha256": model_digest(local_folder(self.reward_model))}
        return about, lambda pool: with_scores((make_grader or all_modes_grader)(pool), score)

    def _budgets(self, budgets: str) -> list[int]:
        from ansatz.evaluate.budgets import parse_budgets

        if budgets and (self.sampling.options.thinking_budget or self.sampling.min_thinking_budget):
            raise ConfigError(
                "--thinking-budgets excludes --thinking-budget and --min-thinking-budget. Leave these out."
            )
        return parse_budgets(budgets) if budgets else []

    def _run_budgets(self, suite: LoadedSuite, opened: OpenedModel, budgets: Sequence[int]) -> dict[str, Any]:
        """Run or resume one evaluation per thinking budget, and return the content of budgets.json."""
        from ansatz.evaluate.budgets import budget_folder, budget_folders, budget_label, write_curve

        base = self._budgets_folder(suite)
        for budget in budgets:
            say(f"thinking budget {budget_label(budget)}")
            options = self.sampling.options.model_copy(update={"thinking_budget": max(budget, 0)})
            sampling = dataclasses.replace(self.sampling, options=options, min_thinking_budget=max(-budget, 0))
            self._run_suite(suite, opened, sampling, budget_folder(base, budget))
        return write_curve(base, budget_folders(base))

    def _budgets_folder(self, suite: LoadedSuite) -> Path:
        return self._folder(f"{suite.card.name}-budgets")

    def _folder(self, name: str) -> Path:
        return self.out / name if self.suite_folders else self.out


def _rescore(path: Path) -> list[Any]:
    """Return the tables of a folder, or of a curve's folders, after their responses have been graded again."""
    from ansatz_verify.grade import ALGEBRA_TARGET
    from ansatz_verify.pool import WorkerPool

    from ansatz.cli.eval_tables import budgets_table, results_tables
    from ansatz.evaluate.budgets import budget_folders, write_curve
    from ansatz.evaluate.folder import EvaluationFolder
    from ansatz.locks import folder_lock

    curve = budget_folders(path)
    folders = curve or [EvaluationFolder(path)]
    for folder in folders:  # another folder is refused before a lock file is made in it
        if "suite" not in folder.settings():
            raise ConfigError(f"{folder.path} was not written by `ansatz eval`: its settings.json names no suite.")
    with closing(WorkerPool(ALGEBRA_TARGET)) as pool:
        for folder in folders:
            with folder_lock(folder.path):
                folder.grade_again(pool=pool)
    if curve:
        return [budgets_table(write_curve(path, curve))]
    return results_tables(folders[0].write_results())


MakeGrader = Callable[[Any], "ResponseGrader"]


@contextmanager
def grading(
    rewards: str, *, suite: str, problems: Sequence[Problem]
) -> Iterator[tuple[dict[str, Any], MakeGrader | None]]:
    """Yield the settings that the grading adds to an evaluation, and its grader, for use in the block. The grader is
    None for the verifier.

    rewards: a name, names separated by commas, or a YAML file with a recipe's section `rewards`. Empty: the reward of a
    suite that has no gold answers, otherwise the verifier. Raise ConfigError for unknown rewards and settings, and
    DataError if a reward cannot use the problems.
    """
    from ansatz.evaluate.responses import reward_grader
    from ansatz.evaluate.suites import REWARDS
    from ansatz.rewards.grader import build_grader, check_golds

    names = rewards or REWARDS.get(suite, "")
    if not names:
        yield {}, None
        return
    recipe = rewards_section(names)
    with build_grader(recipe) as grader:
        check_golds(recipe, problems)
        yield {"rewards": recipe}, lambda pool: reward_grader(grader)


def rewards_section(text: str) -> dict[str, dict[str, Any]]:
    """Return the section `rewards` that the option stands for: {name: settings}."""
    if not text.endswith((".yaml", ".yml")):
        return trusted({name.strip(): {} for name in text.split(",")})
    path = Path(text)
    if not path.is_file():
        raise ConfigError(f"--rewards: the file {text!r} {describe_missing_file(path)}.")
    content = parse_yaml(recipe_text(path), where=text)
    section: Any = content.get("rewards", content) if isinstance(content, Mapping) else None
    if not isinstance(section, Mapping) or not all(isinstance(value, Mapping | None) for value in section.values()):
        raise ConfigError(f"--rewards {text}: expected a recipe's section, such as rewards: {{countdown: {{}}}}.")
    sections = cast("Mapping[str, Any]", section).items()
    return trusted({name: dict(settings or {}) for name, settings in sections})
