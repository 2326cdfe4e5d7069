import json


def test_the_verb_prints_the_schema_of_recipes_and_of_overlays(ansatz):
    recipe, overlay = (json.loads(ansatz("schema", *options)[1]) for options in ((), ("--overlay",)))
    assert recipe["required"] == ["name", "data"]
    assert "required" not in overlay
    assert recipe["properties"].keys() == overlay["properties"].keys()
