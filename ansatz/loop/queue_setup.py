"""How the rollout queue of an RL stage is put together: where tickets are sampled, and what is stored for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ansatz.loop.collect import StepCollector
from ansatz.loop.context import RunContext
from ansatz.loop.lag import schedule_of
from ansatz.loop.ledger import Ledger
from ansatz.loop.rollout_queue import WEIGHTS_FOLDER, RolloutQueue
from ansatz.loop.training_stage import TrainingStage
from ansatz.loop.workers import pooled_tickets
from ansatz.rollout.base import Sampling
from ansatz.rollout.ticket_sources import LiveTickets, StoredTickets, TicketSource
from ansatz.rollout.weight_store import FileWeightStore


@contextmanager
def rollout_queue(context: RunContext, stage: TrainingStage, *, model: str) -> Iterator[RolloutQueue]:
    """The queue at the start of the stage, or as the newest checkpoint has it. model: what the stage began with."""
    config, trainer, schedule = stage.config, stage.trainer, schedule_of(stage.config)
    store = ledger = None
    with ExitStack() as stack:
        if schedule.live and not config.cluster.workers:
            source: TicketSource = LiveTickets(context.sampler(trainer.policy))
        else:
            store, ledger = FileWeightStore(stage.folder / "weights"), Ledger(stage.folder / "ledger")
            stack.callback(store.close)
            stack.callback(ledger.close)
            store.close()
            if (saved := stage.restored_files) is not None and (saved / WEIGHTS_FOLDER).is_dir():
                store.restore(saved / WEIGHTS_FOLDER)
            if config.cluster.workers:
                source = pooled_tickets(stage, model=model, store=store, on_landed=ledger.land)
            else:
                policy = context.copy_of_trained(model)
                source = StoredTickets(policy, context.sampler(policy), store, on_landed=ledger.land)
            stage.edges.on_saved = ledger.forget
        stack.callback(source.close)
        queue = RolloutQueue(
            StepCollector(
                stream=stage.stream,
                prompt_of=context.renderer(trainer.policy).prompt,
                grader=context.grader,
                num_prompts=config.rollout.prompts_per_step,
                needs_greedy=trainer.needs_greedy,
                grader_threads=config.grader_workers,
            ),
            source,
            schedule,
            sampling_of=lambda step: Sampling.of(
                config.rollout, seed=stage.noise_seed, step=step, max_call_tokens=config.rollout.partial_rollout_tokens
            ),
            last_step=stage.total_steps,
            store=store,
            ledger=ledger,
        )
        queue.start(trainer.weights(), done=stage.first_step - 1, state=stage.restored)
        yield queue
        if ledger is not None:
            ledger.forget(stage.total_steps)
