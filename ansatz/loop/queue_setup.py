"""Assembles the rollout queue of an RL stage: the sampler of its tickets, and the files that are stored for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ansatz.loop.collect import StepCollector
from ansatz.loop.context import RunContext
from ansatz.loop.disk import check_space, published_weights
from ansatz.loop.ledger import Ledger
from ansatz.loop.rollout_queue import WEIGHTS_FOLDER, RolloutQueue
from ansatz.loop.training_stage import TrainingStage
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket import LiveTickets, StoredTickets, TicketSource
from ansatz.rollout.weight_store import FileWeightStore


@contextmanager
def rollout_queue(context: RunContext, stage: TrainingStage, *, model: str) -> Iterator[RolloutQueue]:
    """Yield the queue at the start of the stage or at its newest checkpoint. model: the model the stage began with."""
    config, trainer = stage.config, stage.trainer
    store = ledger = None
    with ExitStack() as stack:
        if not config.rollout.lag and not config.cluster.workers and trainer.policy is not None:
            source: TicketSource = LiveTickets(context.sampler(trainer.policy))
        else:
            _check_room(stage)
            store = FileWeightStore(stage.folder / "weights")
            ledger = Ledger(
                stage.folder / "ledger", on_failure=lambda step, text: stage.tracker.event(step, "not_saved", text)
            )
            stage.at_end.callback(store.close)
            stack.callback(ledger.close)
            store.close()
            if (saved := stage.restored_files) is not None and (saved / WEIGHTS_FOLDER).is_dir():
                store.restore(saved / WEIGHTS_FOLDER)
            elsewhere = context.workplace.tickets(
                config,
                model=model,
                base=context.base_of(model),
                store=store,
                on_cpu=trainer.device.type == "cpu",
                on_landed=ledger.land,
                on_event=lambda step, text: stage.tracker.event(step, "worker", text),
            )
            if elsewhere is None:
                policy = context.copy_of_trained(model)
                source = StoredTickets(policy, context.sampler(policy), store, on_landed=ledger.land)
            else:
                source = elsewhere
            stage.edges.on_saved = ledger.forget
        stack.callback(source.close)
        queue = RolloutQueue(
            StepCollector(
                stream=stage.stream,
                prompt_of=context.sources.renderer(trainer).prompt,
                grader=stack.enter_context(context.rl_grader()),
                num_prompts=config.rollout.prompts_per_step,
                needs_greedy=trainer.needs_greedy,
            ),
            source,
            lag=config.rollout.lag,
            sampling_of=lambda step: Sampling.of(
                config.rollout, seed=stage.noise_seed, step=step, max_call_tokens=config.rollout.partial_rollout_tokens
            ),
            last_step=stage.total_steps,
            store=store,
            ledger=ledger,
        )
        renewed = queue.start(trainer.weights(), done=stage.first_step - 1, state=stage.restored)
        if renewed:
            _report_renewed(stage, renewed)
        yield queue
        if ledger is not None:
            ledger.forget(stage.total_steps)


def _check_room(stage: TrainingStage) -> None:
    """Raise NoSpaceError if checkpoints and the weights for samplers do not fit on the disk."""
    config, trainer = stage.config, stage.trainer
    published = published_weights(config, trainer.published_bytes)
    held = config.rollout.lag * published[1]  # each checkpoint keeps the weights of its open steps
    check_space(stage.folder, trainer, config.save, held_bytes=held, published=published)


def _report_renewed(stage: TrainingStage, steps: Sequence[int]) -> None:
    step = stage.first_step - 1
    text = (
        f"the checkpoint does not hold the weights that would sample steps {steps[0]} to {steps[-1]} because "
        f"rollout.lag was changed, so the weights of step {step} sample them."
    )
    stage.tracker.event(step, "newer_weights", text)
