"""The simulator against published times: marin at allowances 0 to 4, and verl with stale samples.

    python benchmarks/simulator.py

Two numbers of decoding, a time for each token and one for each token and row, are fitted to the first two times of each
system. The others are predicted. Takes about a minute.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

from ansatz.loop.simulate import Costs, Work
from ansatz.loop.streaming import Stream, simulate_stream

MARIN = {64: (85.24, 55.83, 50.93, 49.13, 43.01), 192: (62.35, 43.60, 35.44, 31.42, 29.42)}
"""Seconds of an update by allowance, for the number of groups that are in flight."""
COPY_S = {64: 21.0, 192: 4.7}
VERL_SYNC_S = 177.85
"""Sampling of verl's synchronous mode, on 128 GPUs."""
VERL = {0.0: 231.34, 0.1: 171.30, 0.3: 146.11, 0.5: 150.63}
"""Seconds of a step by staleness, on 64 and 64 GPUs."""

Decoding = Sequence[float]
"""(seconds per token, seconds per token and row)."""


def marin(decoding: Decoding, allowances: Sequence[int], *, cap: float, steps: int = 100) -> list[float]:
    """Simulated times of both branches."""
    work = Work(groups=32, samples=4, median_tokens=1.0, max_tokens=cap, steps=steps)
    seconds = list[float]()
    for in_flight, copy_s in COPY_S.items():
        costs = Costs(update_s=7.9, token_s=decoding[0], row_token_s=decoding[1], publish_s=copy_s, other_s=10.5)
        for allowance in allowances:
            stream = Stream(ahead=32 * allowance, window=32, max_in_flight=in_flight)
            seconds.append(simulate_stream(work, costs, stream, num_workers=8).mean_step_s)
    return seconds


def verl(decoding: Decoding, stalenesses: Sequence[float], *, cap: float, steps: int = 10) -> list[float]:
    """Simulated times of an eighth of its workers and groups."""
    work = Work(groups=16, samples=16, median_tokens=1.0, max_tokens=cap, steps=steps)
    costs = Costs(update_s=98.77, token_s=decoding[0], row_token_s=decoding[1], publish_s=4.1)
    streams = [Stream(ahead=round(64 * each), window=math.inf, updates_per_publish=4) for each in stalenesses]
    return [simulate_stream(work, costs, stream, num_workers=8).mean_step_s for stream in streams]


def verl_sync(decoding: Decoding, *, cap: float) -> float:
    work = Work(groups=64, samples=16, median_tokens=1.0, max_tokens=cap, steps=3)
    costs = Costs(update_s=0.0, token_s=decoding[0], row_token_s=decoding[1])
    return simulate_stream(work, costs, Stream(ahead=0, window=64), num_workers=16).mean_step_s


def fit(simulated: Callable[[Decoding], Sequence[float]], published: Sequence[float], first: Decoding) -> list[float]:
    """The decoding with the smallest sum of squared log errors: one number after the other, with smaller steps."""

    def loss(logs: Sequence[float]) -> float:
        times = simulated([math.exp(log) for log in logs])
        return sum(math.log(time / other) ** 2 for time, other in zip(times, published, strict=True))

    best = [math.log(number) for number in first]
    smallest, step = loss(best), 0.5
    for _ in range(6):
        for place in range(len(best)):
            for sign in (1, -1):
                moved = [log + sign * step * (index == place) for index, log in enumerate(best)]
                if (value := loss(moved)) < smallest:
                    best, smallest = moved, value
                    break
        step *= 0.6
    return [math.exp(log) for log in best]


def show(name: str, simulated: Sequence[float], published: Sequence[float]) -> None:
    rows = [f"{time:.1f} ({100 * (time / other - 1):+.1f} %)" for time, other in zip(simulated, published, strict=True)]
    print(f"{name}: {', '.join(rows)}", flush=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for cap in (5.0, 10.0):
        known = [*MARIN[64][:2], *MARIN[192][:2]]
        decoding = fit(lambda each, cap=cap: marin(each, (0, 1), cap=cap, steps=40), known, (6.0, 0.1))
        times = marin(decoding, range(5), cap=cap)
        print(f"marin, cap {cap:g} x median: token_s {decoding[0]:.3g}, row_token_s {decoding[1]:.3g}")
        show("  main", times[:5], MARIN[64])
        show("  improved", times[5:], MARIN[192])
    for cap in (10.0, 13.0):
        decoding = fit(
            lambda each, cap=cap: [verl_sync(each, cap=cap), *verl(each, (0.0,), cap=cap, steps=4)],
            (VERL_SYNC_S, VERL[0.0]),
            (14.0, 0.02),
        )
        print(f"verl, cap {cap:g} x median: token_s {decoding[0]:.3g}, row_token_s {decoding[1]:.3g}")
        show("  staleness 0, 0.1, 0.3, 0.5", verl(decoding, list(VERL), cap=cap), list(VERL.values()))


if __name__ == "__main__":
    main()
