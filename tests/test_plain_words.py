"""The code and the pages are written in plain English: none of the phrases that were once this project's own."""

import re

import pytest
from toy_runs import REPOSITORY

PHRASES = {
    r"\bso many\b": "name the number: N tokens, that many",
    r"\b(go|goes|gone|going|went) on with\b": "resume, continue",
    r"\bof (now|then)\b": "current, at that time",
    r"\b(stand|stands|standing) (beside|in place)\b": "is next to, is written next to",
    r"(?<!there )\bis no (?!longer\b|more\b|less\b|better\b|worse\b|larger\b|smaller\b|one\b)[a-z]+": "is not a ...",
    r"\bbeside\b": "next to, together with, as well as",
    r"\bbut for\b": "except",
    r"\bfor one in\b": "name what is iterated: rollout, row, group",
    r"\b(is|was|are|were) told\b(?! apart)": "is called with, receives",
    r"\basked of\b": "required of, called with",
    r"\bin place of\b": "instead of",
}
"""Patterns, without regard to case, and what to write."""

FOLDERS = ("ansatz", "docs", "examples", "benchmarks", "tools")
FILES = [
    path
    for folder in FOLDERS
    for suffix in ("py", "md", "yaml")
    for path in sorted((REPOSITORY / folder).rglob(f"*.{suffix}"))
]


@pytest.mark.parametrize("pattern", PHRASES)
def test_no_file_uses_a_phrase_of_the_old_dialect(pattern):
    hits = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:100]}"
        for path in [REPOSITORY / "README.md", *FILES]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line, flags=re.IGNORECASE)
    ]
    assert hits == [], f"say instead: {PHRASES[pattern]}"


@pytest.mark.parametrize(
    ("sentence", "is_plain"),
    [
        ("runs/x is no run folder", False),
        ("The key is no longer used, and there is no other.", True),
        ("so many tokens from the first on are no end tokens", False),
        ("End-of-sequence tokens are masked out for the first N tokens.", True),
        ("a rollout that is gone on with under the weights of now", False),
        ("a rollout that is resumed with the current weights", True),
    ],
)
def test_the_patterns_find_the_dialect_and_leave_plain_english(sentence, is_plain):
    assert is_plain == (not any(re.search(pattern, sentence, flags=re.IGNORECASE) for pattern in PHRASES))
