"""What random programs once showed to be wrong stays right, or is refused by its name."""

from __future__ import annotations

import re

import pytest

import aotviz
from tests.doors import alone
from tests.oracle.compare import judge, ours_aot
from tests.oracle.found import FOUND
from tests.oracle.found_leaf_views import FOUND_LEAF_VIEWS
from tests.oracle.found_refused import FOUND_REFUSED
from tests.oracle.found_views import FOUND_VIEWS
from tests.oracle.fuzz import report
from tests.oracle.strategy import from_source

EQUAL = FOUND | FOUND_LEAF_VIEWS | FOUND_VIEWS


@pytest.mark.every(2)
@pytest.mark.parametrize("name", EQUAL)
def test_it_equals_eager(name):
    program = from_source(name, f"import torch\n{EQUAL[name]}")
    verdict = judge(program, ours_aot())
    assert not verdict.differences, report(program, {"ours": verdict})
    for run, failure in verdict.failures:  # the page lists these as raised in the backward
        assert run.startswith(("hooked", "double")), report(program, {"ours": verdict})
        said = "hook would|differentiated again|gradient of x, a leaf"
        assert re.search(said, failure.message), failure


@pytest.mark.parametrize("name", FOUND_REFUSED)
def test_it_is_refused_by_name(name):
    reason, text = FOUND_REFUSED[name]
    setup = from_source(name, f"import torch\n{text}").builds[0]()
    with pytest.raises(aotviz.Refused) as caught:
        alone(setup.fn)(*setup.args)
    assert caught.value.reason == reason
