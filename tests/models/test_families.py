"""Every family of docs/models.md at toy size: it agrees with transformers, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_models import tiny_folder

from ansatz.errors import ModelError
from ansatz.models.families import FAMILIES
from ansatz.models.load import check_folder
from tools import families, family_runs
from tools.families import SUPPORTED, Family
from tools.family_runs import LOGP_TOLERANCE, logp_gap, read_results
from tools.model_reference import PAGE, page

REFUSED = [family for family in families.FAMILIES if family.refused]


def folder_of(family: Family, folder: Path) -> Path:
    return tiny_folder(folder, family.config, **family.settings)


@pytest.mark.parametrize("family", SUPPORTED, ids=lambda family: family.name)
def test_sampler_and_training_agree_with_transformers(tmp_path: Path, family: Family) -> None:
    assert logp_gap(folder_of(family, tmp_path)) < LOGP_TOLERANCE


def test_a_gap_of_the_sampler_or_of_training_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder(tmp_path)
    honest = family_runs.transformers_logps
    monkeypatch.setattr(family_runs, "transformers_logps", lambda *given: 1.001 * honest(*given))
    assert logp_gap(folder) > LOGP_TOLERANCE


@pytest.mark.parametrize("family", REFUSED, ids=lambda family: family.name)
def test_a_refused_family_is_refused_by_name_before_its_weights_are_read(tmp_path: Path, family: Family) -> None:
    folder = folder_of(family, tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"does not support. Use a model of one of these families: Llama 2 ") as caught:
        check_folder(folder, key="rejection.teacher")
    assert str(caught.value).startswith(f"rejection.teacher = {str(folder)!r} has the model type {family.refused}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["a_family_of_next_year", "opt", "mixtral", "gemma3", "phi", "stablelm", ""])
def test_a_model_type_that_is_not_listed_is_refused_whether_or_not_transformers_knows_it(
    tmp_path: Path, kind: str
) -> None:
    config = tiny_folder(tmp_path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": kind}))
    with pytest.raises(ModelError, match=f"has the model type '{kind}', which Ansatz does not support"):
        check_folder(tmp_path)


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "compressed-tensors", "of next year", None])
def test_weights_in_a_format_that_is_not_converted_are_refused_by_name(tmp_path: Path, method: str | None) -> None:
    config = tiny_folder(tmp_path) / "config.json"
    settings = {"quant_method": method, "bits": 4}
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": settings}))
    with pytest.raises(ModelError, match=f"has weights that were quantised by '{method}', which Ansatz does not load"):
        check_folder(tmp_path)


def test_every_supported_model_type_is_tested() -> None:
    assert {family.model_type for family in SUPPORTED} == FAMILIES.keys()


@pytest.mark.parametrize("family", SUPPORTED, ids=lambda family: family.name)
def test_the_recorded_results_are_those_of_this_toy_model_and_within_the_tolerances(family: Family) -> None:
    results = family_runs.Results(**read_results()["families"][family.name])
    assert results.settings == family_runs.digest(family), "run: python -m tools.family_runs NAME"
    assert family_runs.check_results(results) == []


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
