import pytest
from toy_runs import TOY

from ansatz.data.base import load_problems
from ansatz.models.tiny import build_tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny model with random weights."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    stories = load_problems("word_problems", split="train", settings={"count": 40})
    build_tiny_model(folder, texts=[story.question for story in stories], **TOY["model"]["tiny"])
    return folder
