"""Whether the processes of a run fit on the nodes of a cluster, and the sum that shows why not. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Resources = Mapping[str, float]
"""Amounts by name, such as {"CPU": 8, "GPU": 1}."""

_NAMED = 4
"""Addresses that a message lists of nodes with the same resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """As many processes as `count`. Each takes `each` from a single node. name: their name in messages, plural.

    minimum: the number that must fit. None: all of them.
    """

    name: str
    count: int
    each: Resources
    minimum: int | None = None

    @property
    def required(self) -> int:
        return self.count if self.minimum is None else min(self.minimum, self.count)


def fitting(nodes: Sequence[Resources], requests: Sequence[Request]) -> list[int]:
    """Return how many processes of each request have room at the same time on empty nodes.

    The required processes of every request are placed first, then the rest. Processes with the largest shares of a node
    come first, each on the first node with room. Ray places processes in this way too. It is not an optimal packing.
    """
    free = [dict(node) for node in nodes]
    order = sorted(range(len(requests)), key=lambda index: _size(nodes, requests[index]), reverse=True)
    placed = [0] * len(requests)
    for every in (False, True):
        for index in order:
            request = requests[index]
            wanted = request.count if every else request.required
            while placed[index] < wanted and _take(free, request.each):
                placed[index] += 1
    return placed


def shortage(nodes: Sequence[tuple[str, Resources]], requests: Sequence[Request]) -> str:
    """Return the sum of the resources that are asked for, against the resources of the nodes; empty if the required
    processes fit.

    nodes: (address, resources) of each.
    """
    placed = fitting([resources for _, resources in nodes], requests)
    short = [(request, count) for request, count in zip(requests, placed, strict=True) if count < request.required]
    if not short:
        return ""
    names = sorted({name for request in requests for name, amount in request.each.items() if amount})
    sums = "; ".join(_sum(name, nodes, requests) for name in names)
    rest = ", ".join(f"{count} of {request.required} {request.name}" for request, count in short)
    return f"{sums}. Nodes: {_describe(nodes, names)}. Each process must fit on a single node: there is room for {rest}"


def _sum(name: str, nodes: Sequence[tuple[str, Resources]], requests: Sequence[Request]) -> str:
    asked = [request for request in requests if request.each.get(name)]
    terms = " + ".join(f"{request.required} {request.name} x {request.each[name]:g}" for request in asked)
    total = sum(request.required * request.each[name] for request in asked)
    found = sum(resources.get(name, 0.0) for _, resources in nodes)
    return f"{terms} = {total:g} {name}, and the cluster has {found:g} {name}"


def _describe(nodes: Sequence[tuple[str, Resources]], names: Sequence[str]) -> str:
    """Describe nodes, those with the same resources together."""
    addresses: dict[tuple[float, ...], list[str]] = {}
    for address, resources in nodes:
        addresses.setdefault(tuple(resources.get(name, 0.0) for name in names), []).append(address)
    texts = list[str]()
    for amounts, same in addresses.items():
        listed = ", ".join([*same[:_NAMED], *(["..."] if len(same) > _NAMED else [])])
        sizes = " and ".join(f"{amount:g} {name}" for name, amount in zip(names, amounts, strict=True))
        texts.append(f"{len(same)} with {sizes} ({listed})")
    return ", ".join(texts) or "none"


def _take(free: list[dict[str, float]], each: Resources) -> bool:
    for node in free:
        if all(node.get(name, 0.0) >= amount for name, amount in each.items()):
            for name, amount in each.items():
                node[name] = node.get(name, 0.0) - amount
            return True
    return False


def _size(nodes: Sequence[Resources], request: Request) -> float:
    """Return the largest share of all that the cluster has of a resource."""
    totals = {name: sum(node.get(name, 0.0) for node in nodes) for name in request.each}
    return max((amount / totals[name] for name, amount in request.each.items() if totals[name]), default=0.0)
