"""What random programs once showed to be wrong stays right, or is refused by its name."""

from __future__ import annotations

import re

import pytest

import aotviz
from aotviz.torch_private import versions
from tests.doors import alone
from tests.oracle.compare import judge, ours_aot
from tests.oracle.found import FOUND
from tests.oracle.found_leaf_views import FOUND_LEAF_VIEWS
from tests.oracle.found_refused import FOUND_REFUSED
from tests.oracle.found_views import FOUND_VIEWS
from tests.oracle.fuzz import report
from tests.oracle.strategy import from_source

EQUAL = FOUND | FOUND_LEAF_VIEWS | FOUND_VIEWS
TRANSPOSED = "a_transposed_input_is_written_through_as_strided"
SCATTERED = (TRANSPOSED, f"{TRANSPOSED}_and_not_differentiated")
OUTSIDE = "a_write_through_as_strided_is_outside_of_the_argument"


@pytest.mark.every(2)
@pytest.mark.parametrize("name", EQUAL)
def test_it_equals_eager(name):
    if name in SCATTERED and versions.has("a scatter by as_strided wants a contiguous input"):
        pytest.skip("this torch cannot trace it, and it is refused by name")
    program = from_source(name, f"import torch\n{EQUAL[name]}")
    verdict = judge(program, ours_aot())
    assert not verdict.differences, report(program, {"ours": verdict})
    for run, failure in verdict.failures:  # the page lists these as raised in the backward
        assert run.startswith(("hooked", "double")), report(program, {"ours": verdict})
        said = "hook would|differentiated again|gradient of x, a leaf"
        assert re.search(said, failure.message), failure


@pytest.mark.skipif(not versions.has("a scatter by as_strided wants a contiguous input"), reason="torch traces it")
@pytest.mark.parametrize("name", SCATTERED)
def test_a_scatter_that_torch_cannot_trace_is_refused_by_name(name):
    setup = from_source(name, f"import torch\n{EQUAL[name]}").builds[0]()
    with pytest.raises(aotviz.Refused) as caught:
        alone(setup.fn)(*setup.args)
    assert caught.value.reason == "as_strided in a chain of views"


@pytest.mark.parametrize("name", FOUND_REFUSED)
def test_it_is_refused_by_name(name):
    if name == OUTSIDE and versions.has("a write by as_strided may be outside of the argument"):
        pytest.skip("this torch traces it")
    reason, text = FOUND_REFUSED[name]
    setup = from_source(name, f"import torch\n{text}").builds[0]()
    with pytest.raises(aotviz.Refused) as caught:
        alone(setup.fn)(*setup.args)
    assert caught.value.reason == reason
