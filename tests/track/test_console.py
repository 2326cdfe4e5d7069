from __future__ import annotations

import io
import json
import re
from pathlib import Path

from made_up import make_pipeline
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ansatz.track.console import (
    LiveConsole,
    Pace,
    PlainConsole,
    SafeConsole,
    duration,
    evaluation_line,
    headline,
    measured_on,
    open_console,
    results_table,
    short_number,
)
from ansatz.track.report import write_report

METRICS = {"rollout/rewards": 0.53125, "rollout/response_length": 41.25, "train/entropy": 0.8, "time/step_s": 1.0}


def terminal(width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width)


def pipe() -> Console:
    return Console(file=io.StringIO(), force_terminal=False)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def evaluations(pipeline: Path):
    return json.loads((pipeline / "summary.json").read_text())["evaluations"]


def test_a_terminal_gets_the_live_display_and_a_pipe_plain_lines():
    assert isinstance(open_console(terminal()), LiveConsole)
    assert type(open_console(pipe())) is PlainConsole


def test_plain_lines_have_no_control_characters_and_come_every_few_seconds(pipeline: Path):
    now, lines = [0.0], list[str]()
    sink = PlainConsole(lines.append, every_s=10, clock=lambda: now[0])
    sink.begin("rl", total_steps=50)
    for step in range(1, 51):
        now[0] += 1
        sink.step(step, METRICS)
    sink.evaluation(evaluations(pipeline)[-1])
    sink.end()
    assert [line.split()[2] for line in lines[:-1]] == ["1/50", "11/50", "21/50", "31/50", "41/50", "50/50"]
    assert lines[1] == "rl  step 11/50  1.0 s/step, 39 s left  reward 0.531  length 41.2  entropy 0.800"
    assert "pass@1" in lines[-1]
    assert "pass@8" in lines[-1]
    assert all(character.isprintable() for line in lines for character in line)


def test_the_live_display_shows_stage_step_time_left_and_numbers(pipeline: Path):
    console = terminal(width=140)
    sink = LiveConsole(console)
    sink.begin("rl [x]", total_steps=50)
    sink.step(7, METRICS)
    sink.evaluation(evaluations(pipeline)[-1])
    sink.end()
    text = written(console)
    for part in ("rl [x]", "7/50", "left", "reward 0.531", "length 41.2", "evaluation at step"):
        assert part in text


def test_the_live_display_can_be_ended_twice_and_is_silent_for_a_stage_without_steps():
    console = terminal()
    sink = LiveConsole(console)
    sink.begin("model", total_steps=0)
    sink.end()
    sink.end()
    assert written(console) == ""


def test_a_plan_is_shown_and_each_step_says_which_stages_come_after_its_own():
    for sink, text in (
        (PlainConsole((lines := list[str]()).append), lambda: "\n".join(lines)),
        (LiveConsole(console := terminal(width=160)), lambda: written(console)),
    ):
        sink.plan("plan: sft (2 steps), then rl (9 steps)", {"sft": 2, "rl": 9, "rl_2": None})
        for stage in ("sft", "rl_2"):
            sink.begin(stage, total_steps=2)
            sink.step(1, METRICS)
            sink.end()
        assert "plan: sft (2 steps)" in text()
        assert " left, then rl (9 steps), then rl_2" in text()
        assert text().count("then rl_2") == 1


def test_progress_within_a_long_step_is_a_line_now_and_then_without_a_bar_and_in_it_with_one():
    now, lines = [0.0], list[str]()
    sink = PlainConsole(lines.append, every_s=10, clock=lambda: now[0])
    sink.begin("model", total_steps=0)
    for problem in range(1, 51):
        now[0] += 1
        sink.progress(f"{problem} of 50")
    assert lines == [f"model  {problem} of 50" for problem in (10, 20, 30, 40, 50)]
    console = terminal(width=140)
    live = LiveConsole(console)
    live.begin("rl", total_steps=9)
    live.progress("7 of 50")
    live.end()
    assert "7 of 50" in written(console)


def test_the_headline_leaves_out_what_does_not_matter():
    assert headline(METRICS) == "reward 0.531  length 41.2  entropy 0.800"
    assert headline(METRICS, limit=1) == "reward 0.531"
    assert headline({"time/step_s": 1.0}) == ""


def test_time_left_follows_the_recent_rate_and_counts_from_a_resumed_step():
    now = [0.0]
    pace = Pace(lambda: now[0], total=200)
    for step in range(101, 131):
        now[0] += 30 if step == 101 else 2  # the first step after a resume is slow; it leaves the window
        pace.step(step)
    assert pace.text() == "2.0 s/step, 2:20 left"


def test_the_results_table_has_every_number_and_fits_80_columns(pipeline: Path):
    rows = evaluations(pipeline)
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table(rows))
    text = written(console)
    assert "…" not in text
    for row in rows:
        low, high = (f"{100 * value:.1f}" for value in row["pass@1_interval"])
        assert f"{100 * row['pass@1']:.1f} [{low}, {high}]" in text
        for name in ("greedy", "pass@k", "maj@k", "truncated_frac"):
            assert f" {100 * row[name]:.1f}" in text
        for numbers in row["by_level"].values():
            assert f"{100 * numbers['pass@1']:.1f} / {100 * numbers['greedy']:.1f}" in text


def test_a_table_that_is_wider_than_the_terminal_becomes_lines_with_every_number(pipeline: Path, monkeypatch):
    rows = evaluations(pipeline)
    texts = []
    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        console = SafeConsole()
        with console.capture() as captured:
            console.print(results_table(rows))
        texts.append(captured.get())
    assert "\u2026" not in texts[0]
    assert max(map(len, texts[0].splitlines())) <= 60
    assert f"  greedy: {100 * rows[-1]['greedy']:.1f}\n" in texts[0]
    assert set(re.findall(r"[\w.]+", texts[1])) - {"stage"} <= set(re.findall(r"[\w.]+", texts[0]))


def test_the_results_table_of_problems_without_levels_has_one_part(pipeline: Path):
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table([{**row, "by_level": {}} for row in evaluations(pipeline)]))
    assert "By level" not in written(console)
    assert "pass@8" in written(console)


def test_sources_have_a_table_of_their_own_and_are_part_of_the_line(pipeline: Path):
    part = {"pass@1": 0.125, "greedy": 0.25}
    rows = [{**row, "by_source": {"easy": part, "[hard]": part}} for row in evaluations(pipeline)]
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table(rows))
    assert "By source" in written(console)
    assert "[hard]" in written(console)
    assert evaluation_line(rows[0]).endswith("easy: 12.5 %  [hard]: 12.5 %")


def test_a_level_with_brackets_is_printed_as_it_is(pipeline: Path):
    console = Console(file=io.StringIO(), width=80)
    console.print(results_table([{**row, "by_level": {"[/b]": row}} for row in evaluations(pipeline)]))
    assert "level [/b]" in written(console)


def test_numbers_and_durations_read_well():
    assert [short_number(value) for value in (0.0, 0.5312, 41.25, 12345.6, 1e-4, -0.02)] == [
        "0.000",
        "0.531",
        "41.2",
        "12,346",
        "1.0e-04",
        "-0.020",
    ]
    assert [duration(seconds) for seconds in (0.4, 59, 187, 3750)] == ["0 s", "59 s", "3:07", "1:02:30"]


def test_evaluations_on_fewer_problems_are_named_and_the_others_keep_their_number(pipeline: Path):
    rows = evaluations(pipeline)
    fewer = {**rows[-2], "num_problems": 50, "samples_per_prompt": 2}
    usual = "100 problems, 8 samples each, temperature 1"
    assert measured_on(rows) == usual
    said = f"{usual}; rl at step {fewer['step']}: 50 problems, 2 samples each"
    assert measured_on([*rows[:-2], fewer, rows[-1]]) == said
    console = pipe()
    console.print(results_table([*rows[:-2], fewer, rows[-1]]))
    assert said in " ".join(written(console).split())
    assert measured_on([{"stage": "rl", "step": 1}]) == ""


def test_a_report_does_not_put_the_number_of_its_last_evaluation_over_all_of_them(tmp_path: Path):
    folder = make_pipeline(tmp_path / "run", sft_steps=3, rl_steps=4)
    summary = json.loads((folder / "summary.json").read_text())
    summary["evaluations"][0]["num_problems"] = 50
    (folder / "summary.json").write_text(json.dumps(summary))
    page = write_report(folder).read_text(encoding="utf-8")
    first = summary["evaluations"][0]
    assert f"{first['stage']} at step {first['step']}: 50 problems. Intervals: Wilson" in page


def test_a_console_keeps_its_own_colours_and_shows_the_control_characters_of_others(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = SafeConsole()
    console.print(Text("bold \x1b[8m", style="bold"))
    table = Table(title="[b]title\x1b[2J")
    table.add_column("level \x9b1m")
    table.add_row(":warning: [/red]\x1b]0;x\x07")
    console.print(table)
    out = capsys.readouterr().out
    assert "\x1b[1mbold \\x1b[8m\x1b[0m" in out
    for shown in ("[b]title\\x1b[2J", "level \\x9b1m", ":warning: [/red]\\x1b]0;x"):
        assert shown in out
    assert not any(hostile in out for hostile in ("\x1b[8m", "\x1b[2J", "\x9b", "\x1b]", "\x07"))


def test_the_log_has_the_plain_lines_with_their_time_also_of_a_terminal(tmp_path: Path):
    console, log = terminal(), tmp_path / "log.txt"
    for steps in (2, 4):  # the second time as in a run that is resumed
        sink = open_console(console, log=log)
        sink.note("One note\x1b[2J.")
        sink.begin("rl", total_steps=4)
        sink.step(steps, METRICS)
        sink.event(steps, "an alarm")
        sink.end()
    lines = log.read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", "", line).split("  ")[:2] for line in lines] == [
        ["One note\\x1b[2J."],
        ["rl", "step 2/4"],
        ["rl", "step 2: an alarm"],
        ["One note\\x1b[2J."],
        ["rl", "step 4/4"],
        ["rl", "step 4: an alarm"],
    ]
    assert "reward 0.531" in lines[1]
    assert "reward 0.531" in written(console)


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path):
    open_console(pipe(), log=tmp_path / "missing" / "log.txt").note("shown")
    assert not (tmp_path / "missing").exists()


def test_the_first_line_of_rl_says_why_the_loss_is_near_0_and_no_other_line_does():
    lines: list[str] = []
    console = PlainConsole(lines.append, every_s=0)
    for stage, metrics in (("sft", {"train/loss": 1e-9}), ("rl", {**METRICS, "train/loss": 2.5e-9})):
        console.begin(stage, total_steps=3)
        console.step(1, metrics)
        console.step(2, metrics)
    assert ["a loss near 0 is expected" in line for line in lines] == [False, False, True, False]
    console.begin("rl", total_steps=3)
    console.step(1, {**METRICS, "train/loss": 0.4})
    assert "expected" not in lines[-1]
