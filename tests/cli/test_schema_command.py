import json
import subprocess
import sys


def printed(*options):
    command = [sys.executable, "-m", "ansatz", "schema", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_the_verb_prints_the_schema_of_recipes_and_of_overlays():
    recipe, overlay = printed(), printed("--overlay")
    assert recipe["required"] == ["name", "data"]
    assert "required" not in overlay
    assert recipe["properties"].keys() == overlay["properties"].keys()
