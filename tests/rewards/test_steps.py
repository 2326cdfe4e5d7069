"""Reasoning steps: where they end, which are right, and the rewards that judge them."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from given import build_grader
from tiny_models import tiny_token_classifier

from ansatz.data.word_problems import word_problems
from ansatz.errors import ConfigError, DataError, ModelError, RewardError
from ansatz.rewards.base import RewardResult, rewards
from ansatz.rewards.exact_steps import exact_steps
from ansatz.rewards.grader import check_golds
from ansatz.rewards.process import process
from ansatz.rewards.reasoning_steps import encode_steps, exact_labels, first_error, first_wrong_character, step_ends
from ansatz.trust import TrustedText
from ansatz.types import Problem

META = {"steps": [[12, "+", 3, 15], [15, "*", 2, 30]]}
RIGHT = "12+3=15\n15*2=30\n\\boxed{30}"


def problem(**changes) -> Problem:
    fields = {"id": "p", "question": "?", "answers": ("30",), "source": "test", "split": "train", "meta": META}
    return Problem(**{**fields, **changes})


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        (RIGHT, (8, 16, 26)),
        ("one\n\n two\n", (5, 10)),
        ("\n\none", (5,)),
        ("one\n  \n", (4,)),
        ("", ()),
        (" \n ", ()),
    ],
)
def test_a_step_is_a_line_with_the_line_ends_after_it(text, ends):
    assert step_ends(text) == ends


@pytest.mark.parametrize(
    ("at", "steps"),
    [
        ("blank_line", ["a\nb\n\n", "c\n"]),
        ("blank_line", ["a\n", "  \n b\nc\n\n\n", "d"]),
        ("sentence", ["1. Add 3.5 and 2.", ' Is it "5.5?"', " So\n", "x = 2.\n\n", "Done"]),
        ("sentence", ["\u7532\u3002", "\u4e59\uff01"]),
        ({"marker": "<s>"}, ["a\nb <s>", "\nc.<s>", " d"]),
        ({"marker": "<s>"}, ["a <s>", " <s>b<s>"]),  # nothing is between the first two markers
        ({"marker": "(*)"}, ["a(*)", "b"]),
    ],
)
def test_a_step_can_end_elsewhere(at, steps):
    ends = step_ends("".join(steps), at)
    assert ["".join(steps)[start:end] for start, end in zip((0, *ends), ends, strict=False)] == steps
    assert step_ends(" \n", at) == step_ends("", at) == ()


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (RIGHT, [True, True, True]),
        ("3+12=15\n2*15=30\n\\boxed{30}", [True, True, True]),  # terms may change places
        ("12+3=14\n15*2=30\n\\boxed{30}", [False, False, False]),  # all after the first error is wrong
        ("12+3=15\n15+2=17\n\\boxed{17}", [True, False, False]),
        ("12+3=15\n15*2=30\n\\boxed{31}", [True, True, False]),
        ("12+3=15\n\\boxed{30}", [True, False]),  # a step left out
        (RIGHT + "\nmore", [True, True, True, False]),
        ("12-3=15", [False]),
        ("", []),
    ],
)
def test_a_step_is_right_if_it_is_the_true_one_at_its_place(text, labels):
    assert exact_labels(problem(), text) == labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RIGHT, None),
        ("3+12=15\n2*15=30\n\\boxed{30}\n", None),
        ("12+3=14\n15*2=30", 6),
        ("3+13=15", 3),  # compared with 3+12=15, the order that agrees for longer
        ("12+3=1\n15*2=30", 6),  # the line end comes too early
        ("12+3=1", 5),
        ("12+3=150", 7),
        (" 13", 2),
        ("12+3=15\n\\boxed{30}", 8),
        ("12+3=15\n15*2=30\n\\boxed{31}", 24),
        (RIGHT + "\nmore", 27),
        ("", None),
    ],
)
def test_a_response_is_wrong_from_the_first_character_that_is_not_in_the_true_solution(text, expected):
    assert first_wrong_character(problem(), text) == expected


def test_every_planted_slip_is_found_and_no_true_solution_is_doubted():
    found = 0
    for each in word_problems(split="train", count=60, slip_rate=0.5, wording="plain", max_value=100):
        error = first_error(exact_labels(each, each.solution))
        assert (error is not None) == each.meta["slip"], each.solution
        found += error is not None
    assert 20 <= found <= 40


def test_exact_steps_reward_each_step_and_the_whole_by_their_mean(rollout):
    [result, empty] = exact_steps(
        [rollout("12+3=15\n15+2=17\n\\boxed{17}", gold="30", meta=META), rollout("", gold="30", meta=META)], wrong=-1.0
    )
    assert result == RewardResult(value=-1 / 3, steps=((8, 1.0), (16, -1.0), (26, -1.0)))
    assert empty == RewardResult(value=-1.0)
    with pytest.raises(DataError, match=r"no meta\.steps"):
        check_golds({"exact_steps": {}}, [problem(meta={})])


def test_step_rewards_are_weighted_and_rewards_of_the_whole_response_join_the_last_step(rollout):
    recipe = {"math_answer": {"weight": 0.5}, "exact_steps": {"weight": 2.0}}
    with build_grader(recipe) as grader:
        [scored] = grader.score([rollout(RIGHT, gold="30", meta=META)])
        assert scored.score.steps == ((8, 2.0), (16, 2.0), (26, 2.5))
        assert scored.score.value == 2.5
    with build_grader({"math_answer": {}}) as grader:
        [scored] = grader.score([rollout(RIGHT, gold="30", meta=META)])
        assert scored.score.steps == ()


def by_lines(rollouts):
    return [RewardResult(value=0.0, steps=((5, 1.0), (5, 2.0))) for _ in rollouts]


def test_a_users_steps_out_of_order_are_an_error_with_the_problem(rollout):
    with (
        build_grader({f"{__file__}:by_lines": {}}) as grader,
        pytest.raises(RewardError, match=r"'p0'.*in rising order"),
    ):
        grader.score([rollout("x")])


GIVES_STEPS = True


def test_which_rewards_give_steps_is_known_before_the_run():
    names = {name for name in rewards.names() if rewards.gives_steps(name)}
    assert names == {"exact_steps", "process"}
    assert rewards.gives_steps(TrustedText(f"{__file__}:by_lines"))


class Characters:
    """A tokenizer with one token per two characters."""

    def __call__(self, text, *, return_offsets_mapping):
        starts = range(0, len(text), 2)
        return {
            "input_ids": [ord(text[start]) for start in starts],
            "offset_mapping": [(start, min(start + 2, len(text))) for start in starts],
        }


def test_a_step_is_read_at_the_token_with_its_last_character():
    encoded = encode_steps(Characters(), "pro", "abc\nde", step_ends("abc\nde"))
    # pr|oa|bc|\nd|e: one token of the prompt alone; the line end is in the fourth, the last character in the fifth
    assert (encoded.num_prompt, encoded.at) == (1, (3, 4))
    assert encoded.tokens_of(range(6)) == (1, 2, 2, 3, 3, 4)


@pytest.fixture(scope="module")
def process_folder(tmp_path_factory):
    return tiny_token_classifier(tmp_path_factory.mktemp("process"))


@pytest.mark.parametrize(("whole", "expected"), [("min", min), ("last", lambda values: values[-1])])
def test_process_gives_each_step_the_sigmoid_of_the_logit_at_its_end(process_folder, rollout, whole, expected):
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    group = [rollout(RIGHT, prompt="Why?\n"), rollout("", prompt="Why?\n"), rollout("1+1=2", prompt="Why?\n")]
    results = process(group, model=process_folder, whole=whole, batch_size=2)
    model = AutoModelForTokenClassification.from_pretrained(process_folder).eval()
    ids = AutoTokenizer.from_pretrained(process_folder)("Why?\n" + RIGHT)["input_ids"]
    newlines = [index for index, token in enumerate(ids) if token == ids[4]]  # "Why?\n" is one token per character
    at = [*newlines[1:], len(ids) - 1]
    values = torch.sigmoid(model(input_ids=torch.tensor([ids])).logits[0, at, 0]).tolist()
    assert [end for end, _ in results[0].steps] == [8, 16, 26]
    assert [reward for _, reward in results[0].steps] == pytest.approx(values, abs=1e-5)
    assert results[0].value == pytest.approx(expected(values), abs=1e-5)
    assert results[1] == RewardResult(value=0.0)
    assert len(results[2].steps) == 1


def test_process_wants_a_token_classifier(tmp_path, rollout):
    with pytest.raises(ConfigError, match=r"rewards\.process\.model is missing"):
        process([rollout("x")])
    with pytest.raises(ModelError, match=r"rewards\.process\.model"):
        process([rollout("x")], model=str(tmp_path))


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["Let me see: ", "[\\boxed{42}]", "so be it."], [12, 33]),  # the call is a step, although its line goes on
        (["Let me see: ", "[\\boxed{42}", " "], [12]),  # a space makes no step of what a tool printed
        (["", "[\\boxed{42}\n]", "", "[7]", "\n"], []),
        (["a\n", "[1]", "", "[2]", "b\n"], [2, 10]),
        (["2+2=5", "[2+2=4]", "\n"], [5]),  # nor is its own step read at what the tool printed
        (["a", "[1\n2\n]", "\nb"], [1, 9]),
    ],
)
def test_what_a_tool_printed_is_no_step_of_the_policy(process_folder, rollout, texts, ends):
    """texts: of the policy and of the tool in turn."""
    places = [0, *itertools.accumulate(map(len, texts))]
    observations = tuple(zip(places[1::2], places[2::2], strict=False))
    response = dataclasses.replace(rollout("".join(texts), prompt="Why?\n"), observations=observations)
    (result,) = process([response], model=process_folder)
    assert [end for end, _ in result.steps] == ends
    assert result.value == (min(value for _, value in result.steps) if ends else 0.0)
