"""What the audit says about steps with one mistake each, and about steps without one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ansatz.audit.bundle import Bundle
from ansatz.audit.claim import Claim
from ansatz.audit.claims import audit, check_advantage, check_rewards, waste
from ansatz.audit.loss import compute, promised
from ansatz.audit.promise import Promise, promise_of
from ansatz.objectives.build import build_objective
from tests.audit.made_bundle import made, with_arrays, with_loss


def claims(bundle: Bundle) -> dict[str, Claim]:
    return {claim.name: claim for claim in audit(bundle)}


def contradicted(bundle: Bundle) -> dict[str, str]:
    return {name: claim.line for name, claim in claims(bundle).items() if claim.status == "contradicts"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "bnpo", "beta": 0.1},
        {"loss_type": "cispo", "epsilon_high": 2.0},
        {"loss_type": "sapo"},
        {"loss_type": "grpo", "sapo_temperature_neg": 1.1, "vespo_k_pos": 1.0},  # of other losses
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"num_iterations": 1},
    ],
)
def test_a_step_that_keeps_its_promise_is_accused_of_nothing(options: dict[str, Any]):
    found = claims(made(**options))
    assert {name: claim.line for name, claim in found.items() if claim.status == "contradicts"} == {}
    assert found["loss"].status in ("certified", "consistent")
    assert found["advantage"].status in ("certified", "consistent")


def component(kind: str, **settings: Any) -> Any:
    return getattr(build_objective({kind: settings}), kind)


@pytest.mark.parametrize(
    ("options", "changes", "words"),
    [
        ({}, {"weights": component("weights", name="sequence_mean")}, "sequence_mean over the whole step instead"),
        ({"epsilon_high": 0.3}, {"surrogate": component("surrogate", name="clip", low=0.2, high=0.2)}, "high 0.2"),
        ({}, {"surrogate": component("surrogate", name="plain")}, "surrogate plain instead of clip"),
        ({}, {"anchor": "policy"}, "anchor of the ratio is policy instead of old"),
        ({}, {"ratio": component("ratio", name="sequence")}, "ratio sequence instead of token"),
        ({"beta": 0.1}, {"kl_coef": 0.0}, "no KL"),
        ({"beta": 0.1}, {"kl_coef": -0.1}, "the KL with the wrong sign"),
        (
            {"delta": 1.25},
            {"surrogate": component("surrogate", name="clip")},
            "no upper bound of the ratio (delta 1.25",
        ),
        ({"beta": 0.1, "use_bias_correction_kl": False}, {"kl": component("kl", name="k2")}, "KL k2 instead of k3"),
        ({}, {"policy_coef": -1.0}, "-1 times the promised loss: the sign is wrong"),
    ],
)
def test_a_formula_with_one_change_is_named(options: dict[str, Any], changes: dict[str, Any], words: str):
    assert words in contradicted(with_loss(made(**options), **changes))["loss"]


def test_a_loss_that_no_change_explains_is_still_contradicted():
    bundle = made()
    noise_T = np.random.default_rng(9).normal(size=len(bundle.arrays["token_T"]))
    assert "No known formula" in contradicted(with_arrays(bundle, gradient_T=noise_T))["loss"]


@pytest.mark.parametrize(
    ("project", "options", "words"),
    [
        ("OpenRLHF", {"estimator": "rloo"}, "the project 'OpenRLHF' is not one of trl, verl, openrlhf"),
        ("verl", {}, "the options of verl are not in the bundle"),
        ("verl", {"policy_loss.no_such_option": 1}, "policy_loss.no_such_option = 1 is refused"),
        ("skyrl", {"advantage_batch_normalize": True}, "its mean runs over padding"),
        ("trl", {"loss_type": "new"}, "loss_type = 'new' is refused, because it has no counterpart here"),
    ],
)
def test_options_that_are_not_understood_promise_nothing(project: str, options: dict[str, Any], words: str):
    promise = promise_of(Bundle(project=project, version="1", step=1, arrays={}, options=options))
    assert isinstance(promise, str)
    assert words in promise


def test_options_are_read_by_their_dotted_names_and_next_to_those_of_the_run():
    options = {"policy_loss.loss_mode": "gspo", "num_generations": 4, "learning_rate": 1e-6}
    promise = promise_of(Bundle(project="verl", version="0.9.1", step=1, arrays={}, options=options))
    assert isinstance(promise, Promise), promise
    assert promise.component("ratio")[0] == "sequence"


def test_a_loss_type_that_a_bundle_leaves_out_is_the_default_of_trl():
    bundle = made()
    left = {name: value for name, value in bundle.options.items() if name != "loss_type"}
    assert promise_of(dataclasses.replace(bundle, options=left)) == promise_of(bundle)


@pytest.mark.parametrize(("steps_per_generation", "names"), [(2, []), (4, ["stale_negatives"])])
def test_trl_masks_stale_negatives_where_an_update_can_see_samples_of_earlier_weights(
    steps_per_generation: int, names: list[str]
):
    bundle = made(num_iterations=1, steps_per_generation=steps_per_generation, off_policy_mask_threshold=0.1)
    promise = promise_of(bundle)
    assert isinstance(promise, Promise), promise
    assert [correction["name"] for correction in promise.spec["correction"]] == names
    assert promise.spec["anchor"] == ("old" if names else "policy")


@pytest.mark.parametrize(
    ("project", "options", "is_seen"),
    [
        ("trl", {"vllm_importance_sampling_mode": "sequence_truncate", "loss_type": "dapo"}, False),
        ("verl", {"rollout_correction.rollout_is": "sequence"}, True),
    ],
)
def test_a_token_outside_the_mask_is_in_the_ratio_to_the_sampler_where_tokens_are_rejected_later(
    project: str, options: dict[str, Any], is_seen: bool
):
    arrays = made().arrays
    sampled_T = arrays["sampled_mask_T"]
    mask_T = sampled_T & np.roll(sampled_T, 1)  # without the first tokens of responses
    gradients = []
    for gap in (0.0, 1.0):
        behavior_T = arrays["old_logp_T"] - gap * (sampled_T & ~mask_T)
        more = {"mask_T": mask_T, "behavior_logp_T": behavior_T}
        bundle = Bundle(project=project, version="1", step=1, arrays={**arrays, **more}, options=options)
        promise = promise_of(bundle)
        assert isinstance(promise, Promise), promise
        gradients.append(compute(bundle, promised(bundle, promise)).gradient_T)
    assert np.array_equal(*gradients) != is_seen


def test_the_smallest_counterexample_of_a_mask_is_its_first_token():
    bundle = made()
    mask_T = bundle.arrays["mask_T"].copy()
    ends = np.flatnonzero(np.diff(bundle.arrays["segment_T"]))
    mask_T[ends] = False
    bundle = dataclasses.replace(
        with_arrays(bundle, mask_T=mask_T), notes={"end_ids": bundle.arrays["token_T"][ends].tolist()}
    )
    assert "7 without loss are end-of-sequence tokens" in contradicted(bundle)["mask"]
    assert f"token {ends[0] - 2} (id {bundle.arrays['token_T'][ends[0]]}) of rollout 0" in contradicted(bundle)["mask"]


@pytest.mark.parametrize(
    ("which", "words"),
    [("first", "8 without loss are the first tokens of responses"), ("one", "are all tokens of 1 response.")],
)
def test_tokens_without_loss_are_named_by_their_place(which: str, words: str):
    bundle = made()
    sampled_T = bundle.arrays["sampled_mask_T"]
    lost = {"first": sampled_T & ~np.roll(sampled_T, 1), "one": sampled_T & (bundle.arrays["segment_T"] == 3)}
    assert words in contradicted(with_arrays(bundle, mask_T=sampled_T & ~lost[which]))["mask"]


def test_tokens_of_truncated_responses_are_not_called_padding():
    bundle = made(mask_truncated_completions=True)
    line = contradicted(with_arrays(bundle, truncated_N=np.arange(8) == 2))["mask"]
    assert "tokens of truncated responses, which the options leave out" in line
    assert "although its response is not to be trained on" in line


def test_a_reference_at_temperature_1_is_named():
    bundle = made(beta=0.1, temperature=0.6)
    wrong_T = bundle.arrays["ref_logp_T"] * 0.5
    arrays = {"recomputed_ref_logp_T": bundle.arrays["ref_logp_T"], "recomputed_ref_raw_logp_T": wrong_T}
    bundle = with_loss(with_arrays(bundle, ref_logp_T=wrong_T, **arrays))
    assert "taken at temperature 1" in contradicted(bundle)["reference log-probs"]


def test_stale_old_log_probs_are_named():
    bundle = made()
    other_T = bundle.arrays["old_logp_T"] + 0.3 * np.random.default_rng(2).normal(size=len(bundle.arrays["token_T"]))
    bundle = with_loss(with_arrays(bundle, old_logp_T=other_T))
    assert set(contradicted(bundle)) == {"old log-probs"}
    assert "stale" in contradicted(bundle)["old log-probs"]


@pytest.mark.parametrize("name", ["token_T", "sampled_mask_T", "mask_T", "group_N", "component_NK", "advantage_T"])
def test_a_missing_array_is_never_a_contradiction(name: str):
    bundle = made()
    left = {key: value for key, value in bundle.arrays.items() if key not in (name, "advantage_N")}
    assert contradicted(dataclasses.replace(bundle, arrays=left)) == {}


def test_a_token_without_loss_is_named_by_its_place_where_ids_are_unknown():
    bundle = made()
    sampled_T = bundle.arrays["sampled_mask_T"]
    arrays = {key: value for key, value in bundle.arrays.items() if key != "token_T"}
    arrays["mask_T"] = sampled_T & np.roll(sampled_T, 1)  # without the first tokens of responses
    line = contradicted(dataclasses.replace(bundle, arrays=arrays))["mask"]
    assert "8 without loss are the first tokens of responses" in line
    assert "token 0 of rollout 0 was sampled but has no loss" in line


def test_the_advantage_of_a_rollout_without_loss_is_not_known_and_its_group_has_a_signal():
    bundle = made()
    left = {name: value for name, value in bundle.arrays.items() if name != "advantage_N"}
    left["mask_T"] = bundle.arrays["mask_T"] & (bundle.arrays["segment_T"] != 3)
    bundle = dataclasses.replace(bundle, arrays=left)
    says = "1 of 8 rollouts have no token that counts in the loss, so their advantages are not known."
    assert check_advantage(bundle, promise_of(bundle)).says == says
    assert "0 of 2 groups have no signal: all their advantages are 0." in waste(bundle)


def test_without_arrays_nothing_can_be_told():
    bundle = Bundle(project="verl", version="0.9.1", step=1, arrays={"group_N": np.zeros(4, int)})
    assert {claim.status for claim in audit(bundle)} == {"cannot tell"}


def test_rewards_are_graded_again():
    texts = [{"response": "The answer is 4", "answer": "4"}, {"response": "The answer is 5", "answer": "4"}]
    arrays = {"reward_N": np.array([1.0, 1.0]), "group_N": np.array([0, 0])}
    bundle = Bundle(
        project="verl", version="0.9.1", step=1, arrays=arrays, rollouts=texts, notes={"rewards": ["score"]}
    )
    claim = check_rewards(bundle)
    assert claim.status == "contradicts"
    assert "1 of 2" in claim.says
    assert "rollout 1 with gold '4' and reward 1" in claim.example
    right = dataclasses.replace(bundle, arrays={**arrays, "reward_N": np.array([1.0, 0.0])})
    assert check_rewards(right).status == "certified"


def test_waste_counts_groups_without_signal_and_repeated_responses():
    bundle = made()
    flat_N = np.where(bundle.arrays["group_N"] == 0, 0.0, bundle.arrays["advantage_N"])
    texts = [{"response": "same" if row < 3 else str(row)} for row in range(8)]
    lines = waste(dataclasses.replace(with_arrays(bundle, advantage_N=flat_N), rollouts=texts))
    assert "1 of 2 groups have no signal: all their advantages are 0." in lines
    assert "2 of 8 responses repeat another one of their group." in lines


def test_the_demo_needs_no_torch():
    program = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['ansatz', 'audit', '--demo']; "
        "from ansatz.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "advantage: contradicts. The rule is group_zscore (ddof 1, eps 0.0001, std over batch)" in done.stdout
    assert "rewards: certified" in done.stdout
