"""The forms of tests that public data sets use: honest programs pass in each, and objects that lie in none."""

from __future__ import annotations

import pytest

from ansatz.errors import ConfigError, DataError
from ansatz.rewards import sandbox
from ansatz.rewards.code_forms import CheckedTest, CompareTest, read_forms
from ansatz.rewards.code_safety import UnsafeTest
from ansatz.rewards.code_tests import check_golds, code_tests
from ansatz.rewards.grader import check_golds as check_recipe_golds
from ansatz.types import Reason

SQUARE = """
def f(x): return x * x
class Solution:
    def f(self, x): return x * x
"""
FORMS = {
    "a call and a literal": "assert f(2) == 4",
    "a literal and a call": "assert 4 == f(2)",
    "a keyword": "assert f(x=2) == 4, 'of a number'",
    "LeetCode": "assert Solution().f(2) == 4",
    "and": "assert f(2) == 4 and f(3) == 9",
    "a difference": "assert abs(f(2) - 4.0) < 1e-6",
    "in": "assert f(2) in (3, 4)",
    "a chain": "assert f(2) == 4 == f(-2)",
    "bounds": "assert 3 < f(2) < 5",
    "not": "assert not f(2) != 4",
    "isclose": "import math\nassert math.isclose(f(2), 4.0)",
    "a set": "assert set([f(2), f(-2)]) == {4}",
    "sorted": "assert sorted([f(3), f(2)]) == [4, 9]",
    "round": "assert round(f(2), 2) == 4",
    "type": "assert type(f(2)) is int and isinstance(f(2), int) and f(2) == 4",
    "a comprehension": "assert [f(n) for n in range(3)] == [0, 1, 4]",
    "all": "assert all(f(n) == n * n for n in range(4))",
    "any": "assert any(f(2) == n for n in (3, 4))",
    "a tuple": "assert (f(2), f(3)) == (4, 9)",
    "a key": "assert {f(2): 1} == {4: 1}",
    "not None": "assert f(2) is not None and f(2) == 4",
    "text": "assert str(f(2)) == '4'",
    "a power": "assert f(2) ** 0.5 == 2",
    "a hash": "assert hash(f(2)) == hash(4)",
    "expected by an expression": "assert f(2) == 2 * 2",
    "statements": "result = f(2)\nexpected = 4\nassert result == expected",
    "a loop": "for n in range(4):\n    assert f(n) == n * n",
    "a test function": "from solution import f\ndef test_square():\n    assert f(2) == 4",
    "unittest": (
        "import unittest\nclass Square(unittest.TestCase):\n    def test_square(self):\n"
        "        self.assertEqual(f(2), 4)\n        self.assertAlmostEqual(f(3), 9.0)"
    ),
    "a parameter with the name of the function": "def check(f):\n    assert f(2) == 4\ncheck(f)",
    "check": "def check(candidate):\n    assert candidate(2) == 4\ncheck(f)",
}
YES = """
class Yes:
    def __init__(self, *given): pass
    def yes(self, *given): return True
    def same(self, *given): return self
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = __bool__ = __instancecheck__ = yes
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __truediv__ = __pow__ = __abs__ = __neg__ = __round__ = same
    def __hash__(self): return hash(4)
    def __float__(self): return 4.0
    def __int__(self): return 4
    def __str__(self): return '4.0'
    def __iter__(self): return iter([Yes()])
def f(*given, **more): return Yes()
class Solution:
    def f(self, *given, **more): return Yes()
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sandbox():
    try:
        sandbox.require("full")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def judge(rollout):
    def judged(source, tests=None, /, **meta):
        given = {} if tests is None else {"tests": tests}
        return code_tests([rollout(f"```python\n{source}\n```", meta=given | meta)])[0]

    return judged


@pytest.mark.parametrize("form", FORMS)
def test_every_form_pays_the_right_function_and_neither_a_wrong_one_nor_an_object_that_equals_everything(judge, form):
    values = [judge(source, [FORMS[form]]).value for source in (SQUARE, SQUARE.replace("x * x", "x + 5"), YES)]
    assert values == [1.0, 0.0, 0.0]


def lie(base: str, value: str, methods: str) -> str:
    lines = "\n".join(f"    {line}" for line in methods.split("\n"))
    return f"class Lie({base}):\n{lines}\ndef f(x): return Lie({value})"


EQUAL = "def __eq__(self, other): return True\ndef __ne__(self, other): return False\n__hash__ = None"
LIES = {
    "int": (lie("int", "0", EQUAL + "\ndef __abs__(self): return 0\ndef __sub__(self, other): return 0"), "4"),
    "float": (lie("float", "0", EQUAL + "\ndef __lt__(self, other): return True"), "4.0"),
    "str": (lie("str", "'no'", EQUAL + "\ndef __contains__(self, other): return True"), "'yes'"),
    "list": (lie("list", "[]", EQUAL + "\ndef __len__(self): return 2"), "[1, 2]"),
    "tuple": (lie("tuple", "()", EQUAL), "(1, 2)"),
    "dict": (lie("dict", "{}", EQUAL + "\ndef __getitem__(self, key): return 1"), "{1: 2}"),
    "set": (lie("set", "()", EQUAL + "\ndef __sub__(self, other): return set()"), "{1, 2}"),
    "class": (lie("object", "", EQUAL + "\n__class__ = int"), "4"),
    "metaclass": (
        "class M(type):\n  def __eq__(self, o): return True\nclass C(metaclass=M): pass\ndef f(x): return C",
        "4",
    ),
}


@pytest.mark.parametrize("kind", LIES)
def test_a_subclass_counts_by_its_content_and_not_by_its_methods(judge, kind):
    source, expected = LIES[kind]
    for test in (f"assert f(2) == {expected}", f"assert f(2) == {expected} and f(2) == {expected}"):
        assert judge(source, [test]).value == 0.0


PUBLIC = {
    "a Counter is a dict": ("from collections import Counter as f", ["assert f('aab') == {'a': 2, 'b': 1}"]),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)",
        ["assert f() == (1, 2)"],
    ),
    "nested values": (
        "def f(x): return {(1, 'a'): [x, None, {2}, frozenset(), b'x', 1j, 10**5000, float('inf')]}",
        ["assert f(2.5) == {(1, 'a'): [2.5, None, {2}, frozenset(), b'x', 1j, 10**5000, float('inf')]}"],
    ),
    "the standard library's numbers and dates": (
        "import datetime as d\nfrom fractions import Fraction as F\nfrom decimal import Decimal\n"
        "def f(): return [F(1, 2), Decimal('0.5'), d.date(2020, 1, 2), d.timedelta(1)]",
        [
            "import datetime as d\nfrom fractions import Fraction as F\nfrom decimal import Decimal\n"
            "assert f() == [F(1, 2), Decimal('0.5'), d.date(2020, 1, 2), d.timedelta(1)]"
        ],
    ),
    "a generator": (
        "def f(n):\n    yield from range(n)",
        ["assert list(f(3)) == [0, 1, 2]", "assert next(f(3)) == 0", "assert 2 in f(3)"],
    ),
    "an endless iterator": (
        "import itertools\ndef f(): return itertools.count()",
        ["import itertools\nassert list(itertools.islice(f(), 3)) == [0, 1, 2]"],
    ),
    "an expected error": (
        "class Negative(ValueError): pass\ndef f(x): raise Negative('below 0')",
        [
            "try:\n    f(-1)\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'below 0'",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n"
            "        with self.assertRaises(ValueError):\n            f(-1)",
        ],
    ),
    "a list changed in place": ("def f(x): x.sort()", ["x = [3, 1]\nf(x)\nassert x == [1, 3]"]),
    "a board changed in place": (
        "class Solution:\n    def f(self, board): board[0][0] = 9",
        ["x = [[1], [2]]\nSolution().f(board=x)\nassert x == [[9], [2]]"],
    ),
    "functions as arguments": (
        "def f(g, x): return g(g(x))",
        ["assert f(lambda v: v + 1, 3) == 5", "assert f(str, 3) == '3'", "import math\nassert f(math.sqrt, 16) == 2"],
    ),
    "objects of the program": (
        "class Pair:\n    def __init__(self, a, b): self.a = a\ndef f(pairs): return sum(p.a for p in pairs)",
        ["assert f([Pair(1, 2), Pair(3, 4)]) == 4", "p = Pair(5, 6)\np.a += 1\nassert p.a == 6"],
    ),
    "a class with a state": (
        "class Cache:\n  def __init__(self, n): self.d = {}\n  def put(self, k, v): self.d[k] = v\n"
        "  def get(self, k): return self.d.get(k, -1)",
        ["c = Cache(2)\nc.put(1, 5)\nassert c.get(1) == 5\nassert c.get(2) == -1"],
    ),
    "None": ("def f(): return None", ["assert f() is None", "assert f() == None"]),
    "truth of an object": ("import re\ndef f(s): return re.match('a', s)", ["assert f('ab')", "assert not f('b')"]),
    "random arguments": (
        "def f(x): return sorted(x)",
        ["import random\nfor _ in range(9):\n    x = [random.random(), 1, 0]\n    assert f(x[:]) == sorted(x)"],
    ),
    "what a program prints": ("print('hello')\ndef f(x):\n    print(x)\n    return x", ["assert f(1) == 1"]),
    "a round trip": ("def f(s): return s[::-1]\ng = f", ["assert g(f('abc')) == 'abc'"]),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_honest_programs_return_is_understood(judge, name):
    source, tests = PUBLIC[name]
    assert judge(source, tests).verdict.reason is Reason.EQUAL


@pytest.mark.parametrize("test", [FORMS["a call and a literal"], FORMS["and"]], ids=["compared", "checked"])
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(x):\n    while True: pass", Reason.TIMEOUT),
        ("import time\ndef f(x): time.sleep(600)", Reason.TIMEOUT),
        ("import os\ndef f(x): os._exit(0)", Reason.UNPARSED),
        ("def f(x): raise SystemExit", Reason.UNPARSED),
        ("def f(x): return f(x)", Reason.UNPARSED),
        ("import os\ndef f(x):\n  while True: os.write(1, b'x' * 10**6)", Reason.TIMEOUT),
    ],
)
def test_a_function_that_does_not_return_is_no_wrong_answer(rollout, test, source, reason):
    rollouts = [rollout(f"```python\n{source}\n```", meta={"tests": [test]})]
    assert code_tests(rollouts, timeout_s=0.5)[0].verdict.reason is reason


def test_large_values_are_compared_by_the_checker_in_its_own_time(rollout):
    """Keys that collide are compared with each other, which would hold up the process that trains."""
    expected, sources = dict.fromkeys(range(20000), 0), ["return {n: 0 for n in range(20_000)}"]
    sources.append("return {n * (2**61 - 1): 0 for n in range(20_000)}")
    keys = [[str(n), 0] for n in range(2_000)]
    judged = list[float]()
    for test in (f"assert f(2) == {expected}", {"fn_name": "g", "inputs": [[2]], "outputs": [keys]}):
        for source in sources:
            program = f"```python\ndef f(x): {source}\nclass Solution:\n  def g(self, x): return {keys}\n```"
            judged.append(code_tests([rollout(program, meta={"tests": [test]})], timeout_s=2.0)[0].value)
    assert judged == [1.0, 0.0, 1.0, 1.0]


NODES = """
class ListNode:
    def __init__(self, val=0, next=None):
        self.val, self.next = val, next
    def says(self): return 'ours'
def list_node(values):
    head = None
    for value in reversed(values): head = ListNode(value, head)
    return head
def is_same_list(a, b):
    while a and b:
        if a.val != b.val: return False
        a, b = a.next, b.next
    return a is None and b is None
"""
REVERSED = "def check(candidate):\n    assert is_same_list(candidate(head=list_node([1, 2, 3])), list_node([3, 2, 1]))"
REVERSE = """
class Solution:
    def reverse(self, head):
        last = None
        while head: head.next, last, head = last, head, head.next
        return last
"""


def test_nodes_of_linked_lists_go_to_the_program_and_back(judge):
    settings = {"entry_point": "Solution().reverse", "setup": NODES}
    assert judge(REVERSE, [REVERSED], **settings).value == 1.0
    assert judge(REVERSE.replace("return last", "return head"), [REVERSED], **settings).value == 0.0
    lies = "\ndef is_same_list(a, b): return True\nclass ListNode:\n    def __eq__(self, other): return True\n"
    assert judge(lies + REVERSE.replace("return last", "return head"), [REVERSED], **settings).value == 0.0


def test_an_attribute_cannot_take_the_place_of_a_method_of_the_setup(judge):
    lies = "class Solution:\n    def f(self, head):\n        head.says = lambda: 'theirs'\n        return head"
    says = "def check(f):\n    assert f(list_node([1])).says() == '{}'"
    for word in ("theirs", "ours"):
        assert judge(lies, [says.format(word)], entry_point="Solution().f", setup=NODES).value == 0.0


POLY = "import math\ndef check(candidate):\n    assert math.fabs(poly([1, 2], candidate([1, 2]))) < 1e-4"


def test_a_helper_of_a_test_is_the_setups_and_not_the_programs(judge):
    setup = (
        "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\ndef find_zero(xs):\n    'Find a zero.'"
    )
    settings = {"entry_point": "find_zero", "setup": setup}
    assert judge("def find_zero(xs): return -xs[0] / xs[1]", [POLY], **settings).value == 1.0
    assert judge("def poly(xs, x): return 0\ndef find_zero(xs): return 9", [POLY], **settings).value == 0.0


@pytest.mark.parametrize(
    ("source", "meta"),
    [
        ("def f(x): return x", {"test_list": ["assert f(1) == 1", "assert set(f([1])) == {1}"], "test_setup_code": ""}),
        ("def f(n): return n.v", {"test_list": ["assert f(root) == 1"], "test_setup_code": "root = Node(1)"}),
        ("def f(x): return x", {"test": "def check(candidate):\n    assert candidate(1) == 1", "entry_point": "f"}),
        ("def f(a, b): return a, b", {"input_output": '{"fn_name": "f", "inputs": [[1, 2]], "outputs": [[1, 2]]}'}),
        (
            "class Solution:\n    def f(self, a): return a + 1",
            {"tests": {"fn_name": "f", "inputs": [[1], [2]], "outputs": [2, [3]]}},
        ),
        ("print(2 * int(input()))", {"input_output": {"inputs": ["2\n", "3"], "outputs": ["4\n", "6\n"]}}),
        ("print(2 * int(input()))", {"tests": [{"input": "2", "output": "4", "testtype": "stdin"}]}),
        (
            "class Solution:\n    def f(self, a, b): return sorted(a) + [b]",
            {
                "tests": [{"input": "[2, 1]\n5", "output": "[1, 2, 5]", "testtype": "functional"}],
                "entry_point": "Solution().f",
            },
        ),
        (
            "class Solution:\n    def f(self, a): return a + 1",
            {
                "tests": '[{"input": "1", "output": "2", "testtype": "functional"}]',
                "metadata": '{"func_name": "f"}',
            },
        ),
    ],
    ids=[
        *("MBPP", "MBPP with a setup", "HumanEval", "TACO", "APPS", "APPS printed"),
        *("LiveCodeBench", "its functions", "its functions by metadata"),
    ],
)
def test_the_fields_of_public_data_sets_are_read(judge, source, meta):
    assert judge(source + "\nclass Node:\n    def __init__(self, v): self.v = v", **meta).value == 1.0
    assert judge("def f(*given): return 77\nclass Node: pass\nprint(77)", **meta).value == 0.0


@pytest.mark.parametrize(
    ("test", "meta", "reason"),
    [
        ("assert same(f(2), 4)", {}, "leaves the decision"),
        ("x = f(2)\nassert not differs(x, 4)", {}, "leaves the decision"),
        ("assert same(f(2), 4) == True", {}, "leaves the decision"),
        ("assert isinstance(f(2), Number)", {}, "leaves the decision"),
        ("try:\n    f(2)\nexcept Odd:\n    assert True", {}, "leaves the decision"),
        ("def check(g):\n    assert same(g(2), 4)", {"entry_point": "f"}, "takes same from the program"),
        ("def check(g):\n    assert g(2) == 4", {}, "needs meta entry_point"),
        ("def check(g):\n    assert g(2) == 4", {"entry_point": "f("}, "entry_point"),
        ("def helper(g):\n    assert g(2) == 4", {}, "nothing calls"),
        ("f(2)", {}, "asserts nothing"),
        ("assert f(", {}, "not Python"),
        ("assert f(2) == 4\nreturn", {}, "not Python"),
        ("import io\nfrom contextlib import redirect_stdout\nassert f(2) is None", {}, "redirect_stdout"),
        ("def test_f(capsys):\n    assert capsys", {}, "capsys"),
        ("import inspect\nassert 'for' in inspect.getsource(f)", {}, "inspect"),
        ("import numpy as np\nassert np.allclose(f(2), 4)", {}, "packages: true"),
        ({"inputs": ["1"], "outputs": []}, {}, "as many outputs"),
        ({"inputs": [[5, 3]], "outputs": [[8]]}, {}, "or fn_name"),
        ({"inputs": [5], "outputs": ["10"]}, {}, "or fn_name"),
        ({"input": [5], "output": "8"}, {}, "or fn_name"),
        ({"input": "x", "output": "1", "testtype": "functional"}, {"entry_point": "f"}, "not JSON"),
        ({"input": "1", "output": "1", "testtype": "functional"}, {"metadata": "{}"}, "needs meta entry_point"),
        ({"stdin": "1"}, {}, "stdout"),
    ],
)
def test_a_test_that_could_be_forged_or_not_be_run_is_refused_with_the_reason(rollout, test, meta, reason):
    problem = rollout("", problem="p3", meta={"tests": [test]} | meta).prompt.problem
    with pytest.raises(DataError, match=f"'p3'.*{reason}"):
        code_tests([rollout("```\nx\n```", problem="p3", meta=problem.meta)])
    if reason != "packages: true":  # which the recipe's setting decides
        with pytest.raises(DataError, match=f"'p3'.*{reason}"):
            check_golds([problem])
    with pytest.raises(DataError, match=f"'p3'.*{reason}"):  # as before a run
        check_recipe_golds({"code_tests": {}}, [problem])


def test_packages_that_the_recipe_allows_are_no_reason_to_stop(rollout):
    meta = {"tests": ["import numpy as np\nassert np.allclose(f(2), 4)"]}
    problem = rollout("", problem="p3", meta=meta).prompt.problem
    check_recipe_golds({"code_tests": {"packages": True}}, [problem])


def test_only_a_call_is_compared_without_a_process_for_the_test():
    def form(test):
        (read,) = read_forms({"tests": [test]}, packages=False)
        return type(read)

    assert {form(FORMS[name]) for name in ("a call and a literal", "LeetCode", "a keyword")} == {CompareTest}
    dunder, builtin = "assert f(2).__eq__(4) == True", "assert abs(f(2) - 4) == 0"
    assert {form(test) for test in (dunder, builtin, FORMS["a chain"])} == {CheckedTest}


def test_a_long_test_is_refused_only_for_an_f_string():
    long = f"assert f(2) == '{'a' * 200_000}'"
    assert read_forms({"tests": [long]}, packages=False)
    with pytest.raises(UnsafeTest, match="an f-string"):
        read_forms({"tests": [f"{long} + f'{{a}}'"]}, packages=False)
