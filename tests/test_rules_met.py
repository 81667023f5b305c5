"""The counts of rules and special cases (tests/oracle/rules_met.py) are of what really happened, and leave none out."""

import re

import pytest
import torch

from aotviz.ir.refusals import RULES
from tests.doors import alone
from tests.oracle import rules_met
from tests.oracle.compare import CANDIDATES, expect
from tests.oracle.fuzz import entry, judge, standing
from tests.oracle.special_cases import noted
from tests.oracle.strategy import from_source


def moves(x):
    x.t_()
    return x * 2


def overlapping(x, y):
    x.mul_(2)
    return y + 1


def asks(x):
    return x * 2 if not torch.compiler.is_compiling() and x.sum() > 0 else x


def whole():
    return torch.ones(4, requires_grad=True) * 1.5


def halves():
    base = torch.ones(4)
    return base[:3], base[1:]


@pytest.mark.parametrize(
    ("fn", "arguments", "cases"),
    [
        (moves, lambda: [whole().view(2, 2)], {"as_views", "moved argument", "reordered"}),
        (overlapping, halves, {"SyntheticBases", "members"}),
        (asks, lambda: [torch.ones(2)], {"is_compiling"}),
        (lambda x: x * 2, lambda: [torch.ones(2)], set()),
    ],
)
def test_the_special_cases_that_a_call_meets_are_noted(fn, arguments, cases):
    with noted() as met:
        alone(fn)(*arguments())
    assert met == cases


def test_a_row_has_the_rule_by_which_a_program_is_refused_or_runs_in_eager():
    program = from_source(
        "writes_twice",
        "import torch\ndef inputs(): return [torch.ones(3)]\n"
        "def f(a):\n    b = a.as_strided((2, 2), (1, 1))\n    b.add_(torch.ones(2, 2))\n    return b * 1\n",
    )
    row, expected = {"key": "1:0"}, expect(program)
    for name in rules_met.CANDIDATES:
        verdict = judge(program, CANDIDATES[name](), expected)
        row[name] = entry(verdict, standing(program, CANDIDATES[name](), verdict, expected), (), 0)
    refused, in_eager = rules_met.counted([row, row], "refusals", "in_eager")
    assert refused == in_eager == {"overlapping write": 2}


def test_the_page_counts_each_rule_and_each_special_case_once():
    section = rules_met.PAGE.read_text().partition(f"## {rules_met.TITLE}\n")[2]
    rules, cases = section.split("How many of them meet each special case.")
    for text, names in ((rules, RULES), (cases.rpartition("\n\n")[0], rules_met.CASES)):
        met = re.findall(r"^\| `([^`]+)`", text, re.M)
        missed = re.findall(r"`([^`]+)`", text.partition("Not met: ")[2])
        assert sorted([*met, *missed]) == sorted(names)
