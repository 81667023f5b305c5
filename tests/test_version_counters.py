"""Version counters and the strides of dimensions of size one: what random programs found, compared with eager's by both
doors. The oracle calls such a difference a detail; here it fails."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from tests.oracle.compare import Candidate, judge, ours_aot, torch_compile
from tests.oracle.dtensor_statements import HEADER
from tests.oracle.fuzz import report
from tests.oracle.strategy import from_source

DOORS = {"aot_function": ours_aot(), "torch.compile": torch_compile("aotviz_eager")}
pytestmark = pytest.mark.xdist_group("ranks")

PROGRAMS = {
    "a_dimension_of_size_one_lies_where_its_stride_says": """
def inputs():
    base = torch.linspace(-1.1, 1.3, 4).reshape(2, 2).clone().requires_grad_() * 1.5
    return base[:1], base[::2]

def f(written, x):
    written.neg_()
    return x * 2.0
""",
    "what_a_memory_budget_draws_again_has_no_version": """
context = lambda: torch._functorch.config.patch(activation_memory_budget=0.0)

def inputs():
    return (torch.linspace(-1.1, 1.3, 12).reshape(3, 4).clone().requires_grad_(),)

def f(x):
    return torch.nn.functional.dropout(x + x, 0.5)
""",
    "a_view_of_a_part_is_moved_and_returned": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).reshape(4, 1).clone().requires_grad_(),)

def f(x):
    d = distribute_tensor(x.detach(), mesh, [Shard(1)])
    d.add_(1.0)
    whole = d.full_tensor()
    whole.t_()
    return whole
""",
    "a_view_of_a_part_is_moved_and_not_returned": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 4).clone(),)

def f(x):
    local = distribute_tensor(x, mesh, [Replicate()]).to_local()
    y = local * 3.0
    local.unsqueeze_(0)
    return y
""",
    "writes_to_the_whole_and_to_a_part_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (distribute_tensor(torch.linspace(-0.8, 1.2, 6).reshape(2, 3), mesh, [Shard(0)]),)

def f(d):
    d.mul_(0.5)
    local = d.to_local()
    local.mul_(0.5)
    local.unbind()[0].neg_()
    return local
""",
    "a_class_writes_a_plain_argument_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(2, 3).clone(),)

def f(x):
    d = DTensor.from_local(x, mesh, [Replicate()])
    d.mul_(0.5)
    return x * 2.0
""",
    "a_collective_writes_a_view_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-1.1, 1.3, 3).clone(),)

def f(x):
    return distribute_tensor(x.unbind(0)[1], mesh, [Replicate()]).sin().to_local()
""",
    "a_part_is_a_leaf_and_is_written_under_no_grad": """
def inputs():
    return torch.linspace(-1.1, 1.3, 4).clone().requires_grad_(), torch.ones(3)

def f(x, y):
    local = distribute_tensor(x, mesh, [Replicate()]).to_local()
    with torch.no_grad():
        local.fill_(0.5)
    return y.sum()
""",
    "a_leaf_is_given_another_storage_in_inference_mode": """
context = torch.inference_mode

def inputs():
    return (torch.linspace(-0.32, 0.88, 9).reshape(3, 3).clone().requires_grad_(),)

def f(x):
    with torch.no_grad():
        x.set_(x * 2.0)
    x.squeeze_()
    return x * 3.0
""",
    "one_half_becomes_jagged_and_the_other_is_written": """
def inputs():
    base = torch.linspace(-0.84, 1.16, 6).requires_grad_() * 1.5
    return base[:2], base[3:]

def f(x, written):
    y = torch.nested.nested_tensor_from_jagged(x * 2.0, torch.tensor([0, 1, 2])).sin().values()
    written.select(0, 1).neg_()
    return y
""",
    "a_part_of_a_result_is_a_view_of_a_detached_input": """
def inputs():
    return (torch.linspace(-0.84, 1.16, 9).reshape(3, 3).clone(),)

def f(x):
    d = DTensor.from_local(x.detach(), mesh, [Replicate()])
    d.sin_()
    torch._dynamo.graph_break()
    return d.full_tensor()
""",
    "a_views_grad_fn_is_made_again_before_its_gradient_is_asked_for": """
def inputs():
    base = torch.linspace(-1.1, 1.3, 6).clone().requires_grad_()
    return base[4:], base[:1], base[2:3], base[1:3]

def f(x, one, written, other):
    written.detach().sub_(one.clone())
    other + 1.0
    return torch.autograd.grad((x * 2.0).sin().sum(), x)[0]
""",
    "a_views_grad_fn_is_made_again_before_the_gradient_of_its_other_name_is_asked_for": """
def inputs():
    base = torch.linspace(-1.1, 1.3, 8).reshape(4, 2).clone().requires_grad_() * 1.5
    return base[1:], base[3:]

def f(written, x):
    same = x.contiguous()
    written.add_(1.0)
    return torch.autograd.grad((same * 2.0).sin().sum(), same, create_graph=True)[0]
""",
    "a_dtensor_writes_below_a_view_that_a_custom_function_returned": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 6).reshape(2, 3).requires_grad_() * 1.5,)

def f(x):
    column = x.narrow(1, 2, 1)
    column.copy_(column)
    d = DTensor.from_local(x, mesh, [Shard(0)])
    before = d.redistribute(mesh, [Replicate()]).to_local(grad_placements=[Replicate()])
    d.mul_(0.5)
    return d.to_local(grad_placements=[Replicate()]), before.t()
""",
    "a_view_of_a_leaf_view_is_taken_in_inference_mode_and_written_as_a_dtensor": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 9).reshape(3, 3).requires_grad_(),)

def f(x):
    with torch.inference_mode():
        turned = x.t()
    d = DTensor.from_local(turned, mesh, [Shard(1)])
    d.sin_()
    whole = d.full_tensor()
    half = whole.tensor_split(2)[0]
    whole.mul_(0.5)
    return half, turned
""",
    "a_dtensor_of_an_expanded_tensor_is_written": """
def inputs():
    return (torch.linspace(-0.7, 1.1, 6).reshape(3, 2).clone().expand(2, -1, -1),)

def f(x):
    d = distribute_tensor(x, mesh, [Shard(0)])
    d.add_(1.0)
    return d.to_local(grad_placements=[Replicate()])
""",
    "the_part_of_a_dtensor_over_a_view_that_was_taken_under_no_grad": """
def inputs():
    return (torch.linspace(-1.1, 1.3, 8).reshape(2, 2, 2).clone().requires_grad_(),)

def f(x):
    with torch.no_grad():
        part = x.narrow(0, 0, 2)
    return DTensor.from_local(part, mesh, [Shard(2)]).to_local()
""",
    "a_view_is_moved_after_a_view_of_another_input": """
def inputs():
    x, y = torch.linspace(-1.1, 1.3, 8).reshape(2, 4, 1).unbind()
    return x.clone().requires_grad_() * 1.5, y.clone().requires_grad_() * 1.5

def f(x, moved):
    part = x.narrow(0, 1, 3)
    moved.view(1, 4).t_()
    return part
""",
}


@pytest.fixture(scope="module", autouse=True)
def _group():
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_equals_eager_to_the_last_detail(name: str, door: Candidate, clean_dynamo: None) -> None:
    program = from_source(name, f"import torch\n{HEADER}{PROGRAMS[name]}")
    verdict = judge(program, door)
    assert verdict.status == "equal", report(program, {door.name: verdict})
