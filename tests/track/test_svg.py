from __future__ import annotations

import itertools
import json
import math
import re
import time
import xml.etree.ElementTree as ET

import pytest

from ansatz.track.svg import Chart, Series, axis_number, line_chart, round_ticks, running_mean, thin


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)


def line(*ys: float, name: str = "a", **changes) -> Series:
    return Series(name=name, points=[(float(x), y) for x, y in enumerate(ys)], **changes)


def numbers(path: str) -> list[tuple[float, float]]:
    pairs = path.strip("MZ").split("L")
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in pairs)]


def test_a_line_lies_where_its_values_say():
    root = parse(line_chart(Chart(title="t", series=[line(0.0, 1.0, 0.5)], is_fraction=True)))
    (path,) = [node for node in root.iter("path") if "line" in node.get("class", "")]
    (x0, y0), (x1, y1), (x2, y2) = numbers(path.get("d", ""))
    grid = sorted(float(node.get("y1", "")) for node in root.iter("line") if node.get("class") == "grid")
    assert (y1, y0) == (grid[0], grid[-1])  # 100 % on the top grid line, 0 % on the bottom one
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)


def test_everything_is_drawn_inside_the_view():
    series = [line(-3.0, 40.0, 1e3, name=f"series {index}", dots=True) for index in range(9)]
    root = parse(line_chart(Chart(title="t", series=series), width=300, height=240))
    for node in root.iter():
        for name, limit in (("x", 300), ("x1", 300), ("x2", 300), ("cx", 300), ("y", 240), ("y1", 240), ("cy", 240)):
            if name in node.attrib:
                assert 0 <= float(node.attrib[name]) <= limit


def test_a_divider_before_the_first_point_lies_inside_the_plot():
    root = parse(line_chart(Chart(title="t", series=[line(1.0, 2.0)], dividers=[(-1.0, "round 1"), (0.5, "round 2")])))
    grid = next(node for node in root.iter("line") if node.get("class") == "grid")
    edges = [float(node.get("x1", "")) for node in root.iter("line") if node.get("class") == "divider"]
    assert float(grid.get("x1", "")) == edges[0] < edges[1] < float(grid.get("x2", ""))


def test_a_range_that_is_asked_for_is_the_axis():
    def ticks(chart: Chart) -> list[str | None]:
        return [node.text for node in parse(line_chart(chart)).iter("text") if node.get("class") == "tick end"][:-1]

    assert ticks(Chart(title="t", series=[line(52.0, 88.0)])) == ["0", "50", "100"]
    assert ticks(Chart(title="t", series=[line(52.0, 88.0)], y_range=(50, 90))) == ["50", "60", "70", "80", "90"]


def test_several_series_have_a_legend_and_a_single_one_has_none():
    def texts(*names: str) -> list[str | None]:
        chart = Chart(title="t", series=[line(1.0, 2.0, name=name) for name in names])
        return [node.text for node in parse(line_chart(chart)).iter("text")]

    assert {"reward", "accuracy"} <= set(texts("reward", "accuracy"))
    assert "reward" not in texts("reward")


def test_names_are_escaped_everywhere():
    text = line_chart(Chart(title="<b>&", series=[line(1.0, name="<i>\"'"), line(2.0, name="b")]), standalone=True)
    assert "<b>" not in text
    assert "<i>" not in text
    assert json.loads(parse(text).get("data-chart", ""))["series"][0][0] == "<i>\"'"


def test_the_pointer_data_have_every_value_as_it_is():
    root = parse(line_chart(Chart(title="t", series=[line(0.125, 0.25)])))
    ((name, points),) = json.loads(root.get("data-chart", ""))["series"]
    assert name == "a"
    assert [point[1:] for point in points] == [["step 0", "0.125"], ["step 1", "0.25"]]


def test_a_standalone_drawing_has_its_own_style_for_light_and_dark():
    text = line_chart(Chart(title="curve", series=[line(1.0)]), standalone=True)
    root = parse(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in text
    assert "surface" in text


def test_one_point_and_equal_values_are_drawn_too():
    for ys in ([0.0], [3.0, 3.0], [-2.0, -2.0]):
        root = parse(line_chart(Chart(title="t", series=[line(*ys)])))
        assert "nan" not in ET.tostring(root, encoding="unicode")


@pytest.mark.parametrize("ys", [(1 / 6, 1 / 6, 1 / 6 + 3e-17), (-2.0, -2.0 - 1e-15), (3e-14, 5e-14), (0.0, 1e-300)])
def test_values_that_differ_by_rounding_and_very_small_ones_are_drawn_too(ys: tuple[float, ...]):
    (path,) = [
        node
        for node in parse(line_chart(Chart(title="t", series=[line(*ys)]))).iter("path")
        if "line" in node.get("class", "")
    ]
    assert len(numbers(path.get("d", ""))) == len(ys)


def test_a_chart_without_points_is_refused():
    with pytest.raises(ValueError, match="'empty' has no points"):
        line_chart(Chart(title="empty", series=[line()]))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.02, 0.97), (-3, 12), (1.0001, 1.0009), (0, 1e-9), (5, 123456)])
def test_ticks_are_round_evenly_spaced_and_enclose(low: float, high: float):
    ticks = round_ticks(low, high, count=5)
    steps = [after - before for before, after in itertools.pairwise(ticks)]
    assert ticks[0] <= low + 1e-12
    assert ticks[-1] >= high - 1e-12
    assert 3 <= len(ticks) <= 8
    assert max(steps) == pytest.approx(min(steps), rel=1e-3)
    assert f"{steps[0]:.6e}"[0] in "125"


def test_axis_numbers_are_short():
    assert [axis_number(value) for value in (0.0, 0.25, 1200.0, 1.5e-05)] == ["0", "0.25", "1200", "1.5e-05"]


def test_zero_belongs_to_the_axis_unless_the_values_stay_far_from_it():
    near = line_chart(Chart(title="t", series=[line(0.1, 0.9)]))
    far = line_chart(Chart(title="t", series=[Series(name="a", points=[(20.0, 1.0002), (40.0, 1.0004)])]))
    assert ">0</text>" in near
    assert ">0</text>" not in far
    assert ">1.0002</text>" in far


def test_thinning_keeps_the_ends_of_the_range_and_the_order():
    values = [float(index % 7) for index in range(5000)]
    values[1234] = 99.0
    kept = thin(list(enumerate(values)), value=lambda item: item[1])
    assert len(kept) <= 400
    assert (1234, 99.0) in kept
    assert [index for index, _ in kept] == sorted(index for index, _ in kept)


def test_the_running_mean_of_a_straight_line_is_that_line():
    straight = [(float(x), 3.0 * x + 1) for x in range(60)]
    assert running_mean(straight) == [(x, pytest.approx(y)) for x, y in straight]


def test_a_mark_is_drawn_only_within_the_axis():
    def marks(value: float) -> int:
        chart = Chart(title="t", series=[line(0.0, 1.0)], marks=(value,))
        return line_chart(chart).count('class="mark"')

    assert marks(0.5) == 1
    assert marks(7.0) == 0


def test_the_running_mean_is_that_of_each_window_and_takes_linear_time():
    """Also after a value that is 10^300 times as large as the others. The slow way sums every window again."""
    values = [math.sin(index) for index in range(200)]
    values[50] = 1e300
    points = [(float(index), value) for index, value in enumerate(values)]
    half = [min(10, index, 199 - index) for index in range(200)]
    slow = [math.fsum(values[i - half[i] : i + half[i] + 1]) / (2 * half[i] + 1) for i in range(200)]
    assert [mean for _, mean in running_mean(points)] == pytest.approx(slow, rel=1e-12)
    start = time.process_time()
    running_mean([(float(index), 0.1 * index) for index in range(20_000)])
    assert time.process_time() - start < 0.5


def test_a_series_without_a_name_is_drawn_and_has_no_entry_in_the_legend():
    points = ((1.0, 0.0), (2.0, 1.0))
    named = [Series(name=name, points=points, colour=0) for name in ("one", "", "two")]
    text = line_chart(Chart(title="reward", series=named))
    assert text.count('stroke-dasharray="5 3"') == 0
    assert text.count("<text") == line_chart(Chart(title="reward", series=[named[0], named[2]])).count("<text")
    assert 'aria-label="reward: one ends at 1; two ends at 1"' in text
    assert text.count("<path") == 3


def test_no_line_is_drawn_where_nothing_was_measured_for_long():
    often = [(float(x), 0.1) for x in (700, 725, 750, 775)]
    assert line_chart(Chart(title="t", series=[Series(name="a", points=often)])).count("M") == 1
    drawn = line_chart(Chart(title="t", series=[Series(name="a", points=[(0.0, 0.0), *often])]))
    path = re.search(r'<path class="line s0" d="([^"]*)"', drawn)
    assert path
    assert [part.count(",") for part in path[1].split("M")[1:]] == [1, 4]
