"""The model that training starts from: built with random weights or loaded, checked against the problems, evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from ansatz.config.schema import FIRST_STAGES, Config
from ansatz.environments.base import bind_environment, check_environment_reward
from ansatz.errors import ConfigError
from ansatz.links import check_no_links
from ansatz.loop.builders import built_tokenizer, model_builder
from ansatz.loop.context import RunContext
from ansatz.loop.run_sources import RunSources
from ansatz.loop.stages.plan import folder_names, planned_stages
from ansatz.loop.stages.stage import Stage
from ansatz.loop.trainers import load_base
from ansatz.models.four_bit import check_four_bit
from ansatz.models.load import check_folder
from ansatz.models.lora import bind_adapters, read_adapter, save_merged
from ansatz.models.reader import Reader
from ansatz.models.save import export_dtype
from ansatz.rollout.engines import check_engine
from ansatz.track.tracker import Tracker


class ModelStage(Stage):
    def check(self, config: Config) -> None:
        """Check that the settings of `model.tiny`, `model.lora` and `rollout.engine` exist and `model.quantize`
        fits."""
        if config.model.path is None:
            model_builder(config)
        bind_adapters(config.model.lora, seed=config.seed)
        _get_adapter(config)
        environment = bind_environment(config.environment, template=config.data.template)
        check_engine(config.rollout, environment)
        check_environment_reward(config.rewards, environment)
        if config.model.quantize is not None:
            check_four_bit(has_adapters=config.model.lora is not None)
            _check_quantized_run(config)

    def input_checks(self, sources: RunSources) -> Iterable[Callable[[], object]]:
        """Check that the model folder contains a model, or that the sizes of the model to be built are known."""
        config = sources.config
        if config.model.path is not None and not config.model.built:
            yield partial(check_folder, config.model.path)
            if (adapter := _get_adapter(config)) is not None:
                yield partial(read_adapter, adapter, settings=config.model.lora)
        else:
            yield partial(model_builder, config)

    def check_problems(self, sources: RunSources, reader: Reader) -> None:
        evaluate = sources.config.evaluate
        lengths = sources.lengths(reader, template=evaluate.template)
        check = partial(lengths.check_prompts, max_response_tokens=evaluate.max_response_tokens)
        sources.drop_unfit("heldout", check, first=evaluate.problems)

    def policy_of(self, config: Config, output: str) -> str:
        """Return the model of the recipe, unless the stage has built one, or merged an adapter into it."""
        return output if config.model.built or _get_adapter(config) is not None else str(config.model.path)

    def run(self, context: RunContext, folder: Path) -> Path:
        config, path = context.config, str(context.config.model.path)
        if config.model.built:
            tokenizer = built_tokenizer(config, context.sources.problems(context.sources.splits[0]))
            check_no_links(folder)  # libraries write into it
            model_builder(config)(folder, texts=tokenizer)
            path = str(folder)
        elif (adapter := _get_adapter(config)) is not None:
            _write_continued(context, folder, adapter)
            path = str(folder)
        policy = context.policy(path)
        for entry in planned_stages(config):
            entry.stage.check_problems(context.sources.at(entry.config), policy)
        num_problems = min(config.evaluate.problems, len(context.sources.problems("heldout")))
        if config.model.built:  # random weights rarely end a response, so each takes long and all are alike
            num_problems = -(-num_problems // 4)
        evaluator = context.evaluator(policy, num_problems=num_problems)
        tracker = Tracker(folder, console=context.console, tensorboard=config.save.tensorboard, total_steps=0)
        with closing(tracker), closing(context.sampler(policy)) as sampler:
            tracker.evaluation(*evaluator.run(sampler, stage=folder.name, step=0))
            tracker.flush()
        return folder


def _get_adapter(config: Config) -> str | None:
    """Return the adapter that the run continues (`model.lora.path`). Raise ConfigError if the recipe names no model."""
    adapter = None if config.model.lora is None else config.model.lora.get("path")
    if adapter is not None and config.model.path is None:
        raise ConfigError(
            f"model.lora.path = {adapter!r} continues an adapter of a model, and model.path is null. Set model.path to "
            "the model that the adapter was trained on."
        )
    return adapter


def _write_continued(context: RunContext, folder: Path, adapter: str) -> None:
    """Write the folder that a checkpoint of the adapter would be: the adapter, and the model with it merged."""
    config, base = context.config, str(context.config.model.path)
    policy = load_base(config.model, base)
    stored = read_adapter(adapter, settings=config.model.lora)
    if stored.dropout and context.console is not None:
        context.console.note(
            f"model.lora.path: the adapter was trained with a dropout of {stored.dropout:g}, and is trained further "
            "without."
        )
    add_adapters = bind_adapters(config.model.lora, seed=config.seed, path=adapter, base=base)
    assert add_adapters is not None
    check_no_links(folder)  # libraries write into it
    context.bases[str(folder)] = base
    save_merged(add_adapters(policy), folder, dtype=export_dtype(config.save.dtype, base))


def _check_quantized_run(config: Config) -> None:
    """Raise ConfigError for a recipe that a base of 4 bits cannot run."""
    training = folder_names(config)[len(FIRST_STAGES) :]
    if len(training) > 1:
        raise ConfigError(
            f"model.quantize = nf4 with {len(training)} training stages ({', '.join(training)}): each would start from "
            "the merged weights of the one before, and rounding those to 4 bits again would undo what it learned. "
            "Leave model.quantize out, or train one stage."
        )
    if (engine := config.rollout.engine.get("name", "native")) != "native":
        raise ConfigError(
            f"model.quantize = nf4 with rollout.engine.name = {engine}: only the native engine samples from weights of "
            "4 bits. Set rollout.engine.name to native, or leave model.quantize out."
        )
