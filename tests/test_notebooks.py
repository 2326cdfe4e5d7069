"""The notebooks: without outputs, with text around every cell; `make test-foreign` executes them."""

from __future__ import annotations

import json

import pytest
from toy_runs import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_a_notebook_has_text_and_no_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    text = [cell for cell in cells if cell["cell_type"] == "markdown"]
    assert "".join(text[0]["source"]).startswith("# ")
    assert len(text) >= 4
    assert [cell["outputs"] for cell in code if cell["outputs"] or cell["execution_count"]] == []


@each_notebook
def test_a_notebook_is_listed_on_the_page_of_notebooks(path):
    page = (REPOSITORY / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert f"- `{path.name}`: " in page


@pytest.mark.slow
@each_notebook
def test_a_notebook_runs_from_the_first_cell_to_the_last(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "image/png" in str(output)]
    assert pictures or "gpu" in path.stem
