"""What a release consists of besides the code: versions that agree, forms and workflows that are valid, and a site that
shows every page. `make release` and `make site` build them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import ansatz_verify
import pytest
import yaml
from toy_runs import REPOSITORY

import ansatz
from tools import locks, site
from tools.llms_text import short_text

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def strings(value: Any) -> list[str]:
    """Every text in a value of YAML or TOML, however deep."""
    if isinstance(value, dict):
        value = list(value.values())
    return [value] if isinstance(value, str) else [text for item in value for text in strings(item)]


def test_package_citation_and_import_have_one_version():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] == ansatz.__version__
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
    assert f"Ansatz {PROJECT['version']}," in settings["copyright"]
    assert citation["license"] == PROJECT["license"]
    verifier = tomllib.loads((REPOSITORY / "packages/verify/pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert verifier["version"] == ansatz_verify.__version__ == PROJECT["version"]
    assert f"ansatz-verify=={PROJECT['version']}" in PROJECT["dependencies"]


def test_the_changelog_has_a_dated_section_of_this_version_and_of_what_it_asks_from_users():
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    heading = f"## {PROJECT['version']} ({citation['date-released']})\n"
    assert changelog.count(heading) == 1
    assert "\n### What you may have to change\n" in changelog.partition(heading)[2].partition("\n## ")[0]


def test_links_of_the_pages_for_contributors_lead_to_files_and_headings():
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        for path, heading in re.findall(r"\]\(([\w/.-]*)#?([\w-]*)\)", text):
            page = REPOSITORY / (path or name)
            assert page.is_file(), (name, path)
            titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
            anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
            assert not heading or heading in anchors, (name, path, heading)


def test_every_promise_of_security_names_tests_that_exist():
    text = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
    promises = text.partition("## The test of each line")[2]
    file, named = "", 0
    for path, test in re.findall(r"`(tests/[\w/]+\.py)?(?:::(test_\w+))?`", promises):
        file, named = path or file, named + 1
        code = (REPOSITORY / file).read_text(encoding="utf-8")
        assert f"def {test or 'test_'}" in code, (file, test)
    assert named >= promises.count("\n| ") - 1


@pytest.mark.parametrize("version", locks.python_versions())
def test_the_lock_of_each_python_has_the_tested_versions_with_hashes_and_names_no_index(version):
    text = locks.lock_path(version).read_text(encoding="utf-8")
    locked = re.findall(r"^([\w.-]+)==(\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.M)
    assert len(locked) == text.count("==") > 100
    assert "://" not in text
    tested = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").partition("# Below")[0].split()
    expected = {
        re.sub(r"[_.]", "-", name.lower()): pinned for name, _, pinned in (line.partition("==") for line in tested)
    }
    assert {name for name, pinned in expected.items() if pinned and dict(locked).get(name) != pinned} == set()


def test_the_site_shows_every_page_of_the_documentation():
    settings = tomllib.loads((REPOSITORY / "zensical.toml").read_text(encoding="utf-8"))["project"]
    docs = REPOSITORY / "docs"
    assert sorted(strings(settings["nav"])) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


def test_the_list_for_programs_names_pages_of_the_site():
    links = re.findall(r"\]\(([\w/.-]+)\.html", short_text())
    pages = {re.sub(r"(^|/)index$", r"\1README", link) for link in links}
    assert len(pages) > 30
    assert [page for page in pages if not (REPOSITORY / "docs" / f"{page}.md").is_file()] == []


def test_the_page_on_pypi_has_no_link_into_the_repository():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert re.findall(r"\]\((?!https:)|<!--|!\[", text) == []
    assert "*Quickstart*: read a run" in text
    assert "ansatz train first/recipe.yaml" in text


def test_the_site_brings_files_of_the_repository_and_finds_links_that_lead_nowhere(tmp_path):
    page = '<h2 id="a">A</h2><a href="#a"></a><a href=../deploy/slurm.sh></a><a href="{}"></a>'
    (tmp_path / "cluster.html").write_text(page.format("cluster.html#b"), encoding="utf-8")
    site.bring_files(tmp_path)
    assert list(site.broken_links(tmp_path)) == ["cluster.html: cluster.html#b"]
    copied = tmp_path / "files" / "deploy" / "slurm.sh.txt"
    assert copied.read_bytes() == (REPOSITORY / "deploy" / "slurm.sh").read_bytes()
    (tmp_path / "cluster.html").write_text(page.format("none.html"), encoding="utf-8")
    assert list(site.broken_links(tmp_path)) == ["cluster.html: ../deploy/slurm.sh", "cluster.html: none.html"]


def test_workflows_run_targets_of_the_makefile_that_exist():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    commands = [
        step["run"]
        for workflow in WORKFLOWS
        for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
        for step in job.get("steps", ())
        if step.get("run", "").startswith("make ")
    ]
    assert {command.split()[1] for command in commands} == {"check", "workflows", "test", "release", "site"}
    assert all(re.search(rf"^{command.split()[1]}:", makefile, re.M) for command in commands)


def test_the_hooks_are_the_tools_of_make_check():
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    checks = re.findall(r"\$\(BIN\)/(\S+)", makefile.partition("\ncheck: env\n")[2])
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert {hook["entry"].removeprefix(".venv/bin/").split()[0] for hook in hooks} == set(checks)


def test_forms_of_issues_ask_for_what_is_needed_to_repeat_a_fault():
    forms = REPOSITORY / ".github" / "ISSUE_TEMPLATE"
    bug = yaml.safe_load((forms / "bug.yml").read_text(encoding="utf-8"))
    required = {field["id"] for field in bug["body"] if field.get("validations", {}).get("required")}
    assert required == {"what", "command", "doctor"}
