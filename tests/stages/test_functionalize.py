"""functionalize: where the changes of inputs happen."""

from __future__ import annotations

import torch

from aotviz.ir import graphs
from tests.stages.support import evidence, stage_alone, targets

torch.set_num_threads(1)
KEEP = {"keep_inference_input_mutations": True}


def f(x, y):
    x.mul_(2)
    return x + y


def test_a_write_leaves_the_graph_where_it_may_not_stay():
    before, after = stage_alone("functionalize", f, torch.ones(2), torch.ones(2))
    assert after.graph_module is before.graph_module
    assert [slot.kind for slot in after.slots] == ["mutation", "output"]
    assert evidence(after) == {"x after mutation": "written by the wrapper"}


def test_a_write_that_may_stay_is_a_copy_to_the_input_at_the_end_of_the_graph():
    before, after = stage_alone("functionalize", f, torch.ones(2), torch.ones(2), **KEEP)
    assert targets(before.graph_module.graph) == ["mul", "add"]
    assert targets(after.graph_module.graph) == ["mul", "add", "copy_"]
    copy = [node for node in after.graph_module.graph.nodes if node.op == "call_function"][-1]
    assert graphs.is_input_mutation(copy)
    assert copy.args[0].name == "arg0_1"
    assert [slot.kind for slot in after.slots] == ["output"]
    assert len(graphs.outputs(after.graph_module.graph)) == 1
    assert evidence(after) == {"x after mutation": "written by the graph itself"}


def test_tangents_point_at_the_slots_that_are_left():
    def g(x, buffer):
        with torch.no_grad():
            buffer.add_(1)
        return x * buffer

    before, after = stage_alone("functionalize", g, torch.ones(2, requires_grad=True), torch.ones(2), **KEEP)
    assert [t.slot for t in before.tangents] == [1]
    assert [t.slot for t in after.tangents] == [0]
    assert targets(after.graph_module.graph)[-1] == "copy_"


def test_a_write_that_autograd_must_see_leaves_the_graph_even_where_others_stay():
    def g(x, y, w):
        x.mul_(w)
        y.mul_(2)
        return x + y

    _, after = stage_alone("functionalize", g, torch.ones(2), torch.ones(2), torch.ones(2, requires_grad=True), **KEEP)
    assert evidence(after) == {
        "x after mutation": "written by the wrapper",
        "y after mutation": "written by the graph itself",
    }
    assert [str(slot.descriptor) for slot in after.slots] == ["x after mutation", "output"]


def test_without_mutations_the_graph_stays_as_it_is():
    before, after = stage_alone("functionalize", lambda x: x + 1, torch.ones(2), **KEEP)
    assert after.graph_module is before.graph_module
    assert after.evidence == ()
