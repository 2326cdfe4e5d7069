"""The memory of all processes of a run, and the table that `ansatz explain` prints.

A process is the run's own, a trainer rank or a rollout worker. The section cluster of a recipe says how many there are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ansatz.config.schema import Config
from ansatz.models.memory import GIB, USABLE_FRACTION, MemoryPart, Workload, host_bytes, memory_parts, peak_bytes
from ansatz.models.plan import Hardware
from ansatz.models.sharded_memory import rank_parts, total_of, with_fitting_rollouts, worker_parts

PARTS = "part"
"""The first word of a table of parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """Processes of one kind. devices: GPUs of each. work, parts: of one device of one of them."""

    name: str
    count: int
    devices: int
    work: Workload
    parts: Sequence[MemoryPart]


def process_plans(config: Config, work: Workload, hardware: Hardware | None) -> list[ProcessPlan]:
    """Plan the processes of a run that hold models. work: of a single process that does everything."""
    section = config.cluster
    if not section.trainers and not section.workers:
        return [ProcessPlan(name="the run's process", count=1, devices=1, work=work, parts=memory_parts(work))]
    if section.trainers:
        gpus = max(1, round(section.trainer_gpus))
        parts = rank_parts(work, section.shards)
        trainer = ProcessPlan(name="trainer ranks", count=section.trainers, devices=gpus, work=work, parts=parts)
    else:
        parts = [part for part in memory_parts(work) if part.phase != "rollout"]
        trainer = ProcessPlan(name="the run's process, which trains", count=1, devices=1, work=work, parts=parts)
    return [trainer, _worker_plan(config, work, hardware)]


def _worker_plan(config: Config, work: Workload, hardware: Hardware | None) -> ProcessPlan:
    """Plan the process that samples. Without workers, the run's own process samples with a model of its own."""
    section, rollout = config.cluster, config.rollout
    count, gpus = max(1, section.workers), max(1, round(section.gpus))
    prompts = -(-rollout.prompts_per_step // count)
    share = dataclasses.replace(
        work, rollouts=min(work.rollouts, prompts * rollout.samples_per_prompt), prefilled=min(work.prefilled, prompts)
    )
    if hardware is not None:
        share = with_fitting_rollouts(share, devices=gpus, usable=hardware.usable)
    name = "rollout workers" if section.workers else "the run's process, which samples"
    return ProcessPlan(name=name, count=count, devices=gpus, work=share, parts=worker_parts(share, devices=gpus))


def memory_table(plans: Sequence[ProcessPlan], *, hardware: Hardware | None) -> str:
    """Make for each kind of process a table of the parts with their formulas and the peak of each phase; and tell
    whether all of them fit."""
    work = plans[0].work
    shape = work.shape
    kind = {2: "bfloat16", 4: "float32"}[work.dtype_bytes]
    trained = "all of them" if work.trained is None else f"{work.trained:,} in adapters"
    critic = [] if work.critic is None else [f"C = {work.num_critic_trained:,} trained parameters of the critic"]
    kind += " on weights of 4 bits" if work.four_bits else ""
    lines = [
        f"{shape.architecture}, {shape.num_layers} layers, P = {shape.num_parameters:,} parameters, trained: {trained};"
        f" computed in {kind}",
        f"S = {plans[-1].work.rollouts} rollouts; microbatches of T = {work.microbatch_tokens:,} tokens, "
        f"{work.parallel_microbatches} in parallel",
        *critic,
        "",
    ]
    for plan in plans:
        lines += _process_lines(plan, alone=len(plans) == 1)
    return "\n".join([*lines, *_verdict(plans, hardware)])


def _process_lines(plan: ProcessPlan, *, alone: bool) -> list[str]:
    peaks, host = peak_bytes(plan.parts), host_bytes(plan.parts)
    phases = [phase for phase in peaks if any(part.phase == phase for part in plan.parts)]
    devices = "1 device" if plan.devices == 1 else f"{plan.devices} devices"
    title = f"{plan.count} x {plan.name}, each on {devices}; per device:"
    return [
        *([] if alone else [title]),
        f"{PARTS:32}{'size':>12}  {'when':8}  formula",
        *(f"{part.name:32}{format_bytes(part.bytes):>12}  {part.phase:8}  {part.formula}" for part in plan.parts),
        "",
        ", ".join(f"{phase} {format_bytes(peaks[phase])}" for phase in phases),
        *([f"host memory: {format_bytes(host)}"] if host else []),
        *([] if alone else [""]),
    ]


def fits(plans: Sequence[ProcessPlan], hardware: Hardware) -> bool:
    """Tell whether there are enough devices, and every process fits on its own."""
    enough = sum(plan.count * plan.devices for plan in plans) <= hardware.devices
    return enough and all(total_of(plan.parts) <= hardware.usable for plan in plans)


def _verdict(plans: Sequence[ProcessPlan], hardware: Hardware | None) -> list[str]:
    peak = max(total_of(plan.parts) for plan in plans)
    if hardware is None:
        return [f"at most {format_bytes(peak)}; add --memory 24GiB to see whether that fits"]
    needed = sum(plan.count * plan.devices for plan in plans)
    verdict = "fits" if fits(plans, hardware) else "does NOT fit"
    lines = [
        f"{hardware}: {verdict}: {format_bytes(peak)} of {format_bytes(hardware.usable)} usable ({USABLE_FRACTION:.0%})"
    ]
    if needed > hardware.devices:
        terms = " + ".join(f"{plan.count} {plan.name} x {plan.devices}" for plan in plans)
        lines.append(f"{terms} = {needed} devices, and there are {hardware.devices}")
    elif needed < hardware.devices:
        lines.append(f"{needed} of {hardware.devices} devices are used; cluster.trainers and cluster.workers use more")
    return lines


def format_bytes(number: int) -> str:
    """Write a number of bytes in GiB from a tenth of a GiB on, otherwise in MiB."""
    return f"{number / GIB:.2f} GiB" if number >= GIB / 10 else f"{number / 2**20:.2f} MiB"
