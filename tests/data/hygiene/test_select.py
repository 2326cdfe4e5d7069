import random

import pytest

from ansatz.data.hygiene.select import Candidate, select_responses, selection_counts
from ansatz.errors import ConfigError


def candidate(problem, sample, *, text=None, tokens=10, correct=True, whole=True):
    text = f"way {sample}" if text is None else text
    return Candidate(problem_id=problem, sample=sample, text=text, tokens=tokens, correct=correct, finished=whole)


def select(candidates, *, per_prompt=9, pick="shortest", seed=0, filters=()):
    return select_responses(candidates, per_prompt=per_prompt, pick=pick, seed=seed, filters=filters)


def places(selected):
    return [(response.problem_id, response.sample) for response in selected.kept]


def test_wrong_and_cut_off_responses_are_dropped_before_any_filter_runs():
    asked = []
    group = [candidate("a", 0, correct=False, whole=False), candidate("a", 1, whole=False), candidate("a", 2)]
    selected = select(group, filters=(lambda response: asked.append(response.sample),))
    assert [reason for _, reason in selected.dropped] == ["wrong", "cut_off"]
    assert (places(selected), asked) == ([("a", 2)], [2])


def test_the_first_filter_that_rejects_gives_the_reason():
    filters = (
        lambda response: "long" if response.tokens > 5 else None,
        lambda response: "odd" if response.sample % 2 else None,
    )
    group = [candidate("a", 0, tokens=9), candidate("a", 1, tokens=9), candidate("a", 3, tokens=1)]
    assert select(group, filters=filters).kinds == {"long": 2, "odd": 1}


def test_equal_words_and_signs_are_one_response_only_within_a_problem():
    group = [
        candidate("a", 0, text="So $x+1$ = 2."),
        candidate("a", 1, text="so x + 1 = 2"),
        candidate("a", 2, text="so x - 1 = 2"),
    ]
    selected = select([*group, candidate("b", 0, text="so x + 1 = 2")])
    assert places(selected) == [("a", 0), ("a", 2), ("b", 0)]
    assert selected.kinds == {"repeated": 1}


def test_the_shortest_responses_are_kept_and_ties_go_to_the_first_sample():
    group = [candidate("a", sample, tokens=tokens) for sample, tokens in ((3, 5), (0, 9), (2, 7), (1, 7))]
    selected = select(group, per_prompt=2)
    assert places(selected) == [("a", 3), ("a", 1)]
    assert selected.kinds == {"over": 2}


def test_a_random_choice_depends_only_on_seed_and_problem():
    group = [candidate("a", sample) for sample in range(8)]
    other = [candidate("b", sample) for sample in range(8)]
    first = places(select(group, per_prompt=3, pick="random"))
    shuffled = group + other
    random.Random(0).shuffle(shuffled)
    again = [place for place in places(select(shuffled, per_prompt=3, pick="random")) if place[0] == "a"]
    assert again == first
    picked = {tuple(places(select(group, per_prompt=3, pick="random", seed=seed))) for seed in range(20)}
    assert len(picked) > 10
    assert {sample for places_ in picked for _, sample in places_} == set(range(8))


def test_every_response_is_kept_or_dropped_once_and_the_report_counts_them():
    group = [candidate(name, sample, correct=sample % 2 == 0) for name in "abc" for sample in range(6)]
    group += [candidate("d", 0, correct=False)]
    selected = select(group, per_prompt=2)
    everything = [*selected.kept, *(response for response, _ in selected.dropped)]
    assert sorted(map(repr, everything)) == sorted(map(repr, group))
    assert selection_counts(selected) == {
        "problems": 4,
        "problems_kept": 3,
        "responses": 19,
        "kept": 6,
        "dropped": 13,
        "kinds": {"over": 3, "wrong": 10},
        "kept_per_problem": {"2": 3},
    }


@pytest.mark.parametrize(
    ("settings", "sentence"), [({"per_prompt": 0}, "per_prompt = 0"), ({"pick": "shortets"}, "Did you mean 'shortest'")]
)
def test_a_setting_out_of_its_range_is_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        select([], **settings)
