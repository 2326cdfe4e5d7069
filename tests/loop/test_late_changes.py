"""A change of a resumed run is applied or refused: a key that no stage will read again cannot change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy_runs import toy_config

from ansatz.errors import ConfigError
from ansatz.loop.run_record import RunRecord, record_of, resumed_record
from ansatz.loop.stages.plan import last_reader, planned_stages

STORED = ("data.sft.", "data.train.", "data.heldout.", "data.unfit", "model.path", "model.tiny.", "model.toy")


def refused(config, *, finished: set[str]) -> set[str]:
    stages = planned_stages(config)
    done = [entry.stage.name in finished for entry in stages]
    return {key for key in record_of(config).recipe if last_reader(stages, done, key) is not None}


def test_over_all_keys_only_those_of_finished_stages_are_refused(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    keys = set(record_of(config).recipe)
    stored = {key for key in keys if key.startswith(STORED)}
    of_sft = {key for key in keys if key.startswith("sft.")}
    assert len(stored) > 8
    assert len(of_sft) > 3
    assert refused(config, finished=set()) == set()
    assert refused(config, finished={"problems", "model"}) == stored
    assert refused(config, finished={"problems", "model", "sft"}) == stored | of_sft
    assert refused(config, finished={entry.stage.name for entry in planned_stages(config)}) == keys


def test_rejection_still_reads_the_section_of_the_finished_sft(tmp_path: Path) -> None:
    config = toy_config(tmp_path, {"rejection": {"rounds": 1}})
    assert not any(key.startswith("sft.") for key in refused(config, finished={"problems", "model", "sft"}))


def test_a_late_change_is_refused_by_name_and_an_early_one_is_recorded(tmp_path: Path) -> None:
    config = toy_config(tmp_path)
    record = record_of(config)
    recipe = json.loads(json.dumps(record.recipe))
    before = RunRecord(recipe={**recipe, "train.lr": 0.5, "data.train.count": 7}, code=record.code)
    with pytest.raises(ConfigError, match=r"no effect: data\.train\.count was read by the stage problems"):
        resumed_record(
            before,
            config,
            allow_changes=True,
            read_by=lambda key: "the stage problems" if key.startswith("data.train") else None,
        )
    after = resumed_record(before, config, allow_changes=True)
    assert set(after.changes[-1]["changed"]) == {"train.lr", "data.train.count"}
