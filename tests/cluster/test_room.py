"""Which processes fit on which nodes, and the sum that shows why the others do not."""

from __future__ import annotations

import pytest

from ansatz.cluster.room import Request, fitting, shortage


def request(count: int, *, gpus: float = 1.0, name: str = "workers", minimum: int | None = None) -> Request:
    return Request(name=name, count=count, each={"GPU": gpus}, minimum=minimum)


@pytest.mark.parametrize(
    ("nodes", "requests", "expected"),
    [
        ([8, 8], [request(16)], [16]),
        ([4, 4], [request(2, gpus=3)], [2]),
        ([4, 4], [request(3, gpus=2), request(2)], [3, 2]),  # 6 + 2 = 8
        ([8, 1], [request(1, gpus=8), request(1)], [1, 1]),
        ([8, 1], [request(1), request(1, gpus=8)], [1, 1]),  # the larger one is placed first, in whatever order
        ([3, 3], [request(3, gpus=2)], [2]),  # 6 of 6, but each process must fit on one node
        ([4], [request(4, minimum=2), request(2, minimum=2)], [2, 2]),  # what is required comes before what is wanted
        ([], [request(1)], [0]),
    ],
)
def test_processes_that_fit(nodes: list[int], requests: list[Request], expected: list[int]):
    assert fitting([{"GPU": float(gpus)} for gpus in nodes], requests) == expected


def test_every_resource_counts():
    nodes = [{"GPU": 8.0, "CPU": 4.0}]
    assert fitting(nodes, [Request(name="workers", count=8, each={"GPU": 1.0, "CPU": 2.0})]) == [2]


def test_what_fits_has_no_shortage():
    assert shortage([("a", {"GPU": 2.0})], [request(2)]) == ""
    assert shortage([("a", {"GPU": 2.0})], [request(9, minimum=2)]) == ""


def test_the_sum_shows_what_is_asked_for_and_what_every_node_has():
    nodes = [("10.0.0.1", {"GPU": 4.0}), ("10.0.0.2", {"GPU": 4.0}), ("10.0.0.3", {"GPU": 1.0})]
    assert shortage(nodes, [request(4, name="trainers"), request(3, gpus=2)]) == (
        "4 trainers x 1 + 3 workers x 2 = 10 GPU, and the cluster has 9 GPU. Nodes: 2 with 4 GPU (10.0.0.1, 10.0.0.2), "
        "1 with 1 GPU (10.0.0.3). Each process must fit on a single node: there is room for 3 of 4 trainers"
    )


def test_many_nodes_of_a_kind_are_one_entry_of_the_sum():
    nodes = [(f"10.0.0.{index}", {"GPU": 8.0, "CPU": 96.0}) for index in range(16)]
    assert "Nodes: 16 with 8 GPU (10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3, ...)." in shortage(nodes, [request(129)])
