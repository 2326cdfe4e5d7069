"""Random answers, well-formed and broken, and what must hold of every verdict on them."""

from __future__ import annotations

import time

from ansatz_verify import Reason, Verdict, equivalent, verify
from hypothesis import strategies as st

CPU_LIMIT_S = 2.0  # of this process; its share of a busy machine does not count

_ATOMS = st.sampled_from([
    *"0123456789xyznabie", "12", "1,234", "0.5", "10^{20}", "9^{9^{9}}", "99999!", "\\pi", "e", "\\infty",
    "\\alpha", "3.14", "2\\frac12", "50\\%", "30^\\circ", "\\$5", "5\\text{ cm}", "204_5", "0.\\overline{3}",
    "\\text{or}", "B", "\\emptyset",
])  # fmt: skip
_SIGNS = st.sampled_from(
    ["+", "-", "*", "/", "^", "_", "=", "<", "\\le ", ",", "\\cup ", "\\pm ", "\\cdot ", ":", " ", "!", "\\text{ or }"]
)
_JUNK = st.sampled_from([
    "{", "}", "(", ")", "[", "]", "\\{", "\\}", "|", "$", "\\", "\\\\", "&", "%", "\\left", "\\frac", "\\sqrt",
    "\\sum_{k=1}^{n}", "\\begin{pmatrix}", "\\end{pmatrix}", "\\boxed{", "\\text{", "\\int", "\\lim_{x\\to 0}",
    "\u200b", "\x00", "é", "∑", "'", "#",
])  # fmt: skip


def _wrap(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    shapes = [
        "({})",
        "[{}]",
        "\\{{{}\\}}",
        "\\sqrt{{{}}}",
        "|{}|",
        "\\sin({})",
        "-{}",
        "\\boxed{{{}}}",
        "\\text{{{}}}",
        "${}$",
        "{}!",
        "\\ln {}",
    ]
    pairs = [
        "\\frac{{{}}}{{{}}}",
        "{}^{{{}}}",
        "{} + {}",
        "{}{}",
        "({}, {}]",
        "\\binom{{{}}}{{{}}}",
        "{} = {}",
        "\\log_{{{}}} {}",
    ]
    pairs += [
        "\\begin{{pmatrix}} {} \\\\ {} \\end{{pmatrix}}",
        "{} \\cup {}",
        "\\sum_{{k=1}}^{{{}}} {}",
        "{} \\bmod {}",
    ]
    one = st.builds(lambda shape, a: shape.format(a), st.sampled_from(shapes), inner)
    two = st.builds(lambda shape, a, b: shape.format(a, b), st.sampled_from(pairs), inner, inner)
    return one | two


def answers() -> st.SearchStrategy[str]:
    """Trees of LaTeX, strings of fragments, and any text at all."""
    trees = st.recursive(_ATOMS, _wrap, max_leaves=12)
    fragments = st.lists(_ATOMS | _SIGNS | _JUNK, max_size=25).map("".join)
    return trees | fragments | st.text(max_size=60)


def check_verdict(gold: str, answer: str) -> float:
    """Grades in three ways; the seconds that the slowest took. Asserts that nothing raises, hangs or breaks a law."""
    begin = time.thread_time()
    verdicts: list[Verdict] = [
        equivalent(gold, answer),
        verify(gold, f"\\boxed{{{answer}}}"),
        verify(gold, answer, mode="last_number"),
    ]
    assert time.thread_time() - begin < CPU_LIMIT_S, (gold, answer)
    for verdict in verdicts:
        assert verdict.correct == (verdict.reason is Reason.EQUAL)
        assert verdict.reason is not Reason.CRASHED, (gold, answer)
    return max(verdict.seconds for verdict in verdicts)
