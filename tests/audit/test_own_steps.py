"""The audit of updates that Ansatz itself has made: none is accused, and what is not computed is not certified."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_policy

from ansatz.audit.bundle import bundle_of
from ansatz.audit.claims import audit
from ansatz.config.schema import TrainSection
from ansatz.errors import CheckpointError
from ansatz.objectives.build import build_objective
from ansatz.train.local import LocalTrainer
from ansatz.train.optim import Schedule
from ansatz.train.repeat import repeat_update
from ansatz.train.sample import TrainSample
from ansatz.train.skipped import StoredUpdate


def samples(trainer: LocalTrainer) -> list[TrainSample]:
    """Two prompts with four responses each. The sampler is off by at least 0.5 nats at the first token of a response,
    and by 0.05 at the others. Every second response is of an earlier version."""
    rewards = ((1.0, 0.0, 0.5, 0.25), (1.0, 0.75, 1.0, 0.0))
    rows = [
        TrainSample(
            prompt_ids=(5, 6 + group, 7),
            token_ids=tuple((3 * group + 5 * place + 2 * token) % 50 + 2 for token in range(3 + place % 2)),
            behavior_logps=[0.0] * (3 + place % 2),
            versions=[1 - place % 2] * (3 + place % 2),
            group=group,
            reward=reward,
            truncated=place == 3,
            components=(reward, float(place)),
        )
        for group, of_group in enumerate(rewards)
        for place, reward in enumerate(of_group)
    ]
    return [
        dataclasses.replace(
            row, behavior_logps=[logp + (0.5 + number / 10 if k == 0 else 0.05) for k, logp in enumerate(known.logps)]
        )
        for number, (row, known) in enumerate(zip(rows, trainer.token_logps(rows), strict=True))
    ]


def updates_of(algorithm: dict[str, Any], **settings: Any) -> list[StoredUpdate]:
    trainer = LocalTrainer(
        tiny_policy(),
        build_objective(algorithm, max_response_tokens=8),
        settings=TrainSection(**settings),
        dtype=torch.float32,
        schedule=Schedule(lr=1e-3),
    )
    updates = list[StoredUpdate]()
    trainer.version, trainer.bundles = 1, {1: updates.append}
    trainer.update(trainer.batch(samples(trainer)), step=1)
    return updates


SEQUENCE = {"name": "truncate", "level": "sequence"}


@pytest.mark.parametrize(
    ("algorithm", "settings", "not_told"),
    [
        ({"preset": "grpo"}, {}, set()),
        ({"preset": "gdpo"}, {}, {"advantage"}),
        ({"preset": "high_entropy"}, {}, set()),
        ({"kl": "full", "kl_coef": 0.1}, {}, {"loss"}),
        ({"entropy_coef": 0.01}, {}, set()),
        ({"likelihood_coef": 0.1, "likelihood_weights": "token_mean"}, {}, set()),
        ({"masks": "not_truncated"}, {}, {"advantage"}),  # nothing is stored of those of truncated responses
        ({"masks": {"name": "rejection", "high": 0.1}, "correction": SEQUENCE}, {}, {"mask"}),  # first tokens go
        ({"advantage": "batch_zscore"}, {}, set()),
        ({"advantage": "batch_zscore"}, {"updates_per_step": 2}, {"advantage"}),
    ],
)
def test_an_update_of_our_own_is_accused_of_nothing(
    algorithm: dict[str, Any], settings: dict[str, Any], not_told: set[str]
):
    for update in updates_of(algorithm, **settings):
        claims = {claim.name: claim for claim in audit(bundle_of(update)) if claim.name != "sampler gap"}
        assert [claim.line for claim in claims.values() if claim.status == "contradicts"] == []
        found = {name for name in ("loss", "advantage", "mask") if claims[name].status == "cannot tell"}
        assert found == not_told, [claims[name].line for name in found | not_told]


def test_the_entropy_bonus_of_a_loss_is_the_one_that_was_adapted():
    (update,) = updates_of({"entropy_coef": 0.01, "entropy_target": 1.0})
    adapted = dataclasses.replace(update, objective=dataclasses.replace(update.objective, entropy_coef=0.5))
    claim = next(claim for claim in audit(bundle_of(adapted)) if claim.name == "loss")
    assert claim.status == "consistent", claim.line


def test_an_update_that_compares_whole_distributions_cannot_be_repeated(tmp_path: Path):
    (update,) = updates_of({"kl": "full", "kl_coef": 0.1})
    update.write(tmp_path / "bundle")
    with pytest.raises(CheckpointError, match="compares whole distributions with the reference"):
        repeat_update(tmp_path / "bundle", update.objective)
