"""Exports, against torch's own on the same modules: the graph after renaming, and the signature by meaning."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch import aot_autograd as torchs
from torch.utils._pytree import tree_flatten

import aotviz
from aotviz.comparing.same_graph import difference
from aotviz.frontends.export import ExportRefused
from aotviz.torch_private import versions
from tests.oracle.compare import tensor_leaves
from tests.oracle.modules import MODULES
from tests.oracle.programs import PROGRAMS


def by_meaning(graph: Any, signature: Any) -> dict[str, Any]:
    """A signature with node names replaced by positions, so that two graphs' can be compared."""
    inputs = {node.name: f"input {i}" for i, node in enumerate(graph.graph.find_nodes(op="placeholder"))}
    results = next(iter(reversed(graph.graph.nodes))).args[0]
    outputs: dict[str, list[int]] = {}
    for i, node in enumerate(results):
        outputs.setdefault(getattr(node, "name", str(node)), []).append(i)

    def spoken(value: Any) -> Any:
        if isinstance(value, str):
            return inputs.get(value) or outputs.get(value) or value
        if value is None or isinstance(value, (list, tuple)):
            value = value or ()
            return [spoken(v) for v in value]
        return {str(spoken(k)): spoken(v) for k, v in value.items()}

    fields = "parameters buffers user_inputs user_outputs inputs_to_parameters inputs_to_buffers buffers_to_mutate"
    fields += " parameters_to_mutate user_inputs_to_mutate"
    found = {name: spoken(getattr(signature, name)) for name in fields.split()}
    backward = signature.backward_signature
    if backward is not None:
        found["gradients"] = spoken(backward.gradients_to_parameters), spoken(backward.gradients_to_user_inputs)
    return {**found, "in_spec": str(signature.in_spec), "out_spec": str(signature.out_spec)}


def both(mod: Callable[[], nn.Module], args: Callable[[], tuple[Any, ...]], **options: Any) -> None:
    """Export by torch and by us, and compare. Nodes whose results nobody uses, torch leaves in the graph."""
    theirs = torchs.aot_export_module(mod(), args(), **options)
    ours = aotviz.aot_export_module(mod(), args(), **options)
    allowed = {"extra"}
    again = "an export of gradients is traced once more" if options["trace_joint"] else "an export is traced once more"
    if versions.has(again):
        if not options.get("pre_dispatch"):  # ours asserts there too
            _undo_the_second_trace(theirs[0].graph)
        allowed.add("order")
    found = difference(ours[0], theirs[0])
    assert found is None or found.kind in allowed, found
    assert len(ours[0].graph.nodes) <= len(theirs[0].graph.nodes)
    assert by_meaning(*ours) == by_meaning(*theirs)


def _undo_the_second_trace(graph: torch.fx.Graph) -> None:
    """Where torch traces its own graph again, a `detach` becomes an `alias`, and `to` asserts what it is given."""
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.alias.default:
            node.target = torch.ops.aten.detach.default
        elif node.target is torch.ops.aten._assert_tensor_metadata.default:
            graph.erase_node(node)


class Loss(nn.Module):
    """Any module, its outputs summed to a loss and detached."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        leaves = list(tensor_leaves(self.inner(*args)))
        return (sum(leaf.double().sum() for leaf in leaves), *(leaf.detach() for leaf in leaves))


class Function(nn.Module):
    """A function as a module without parameters, which returns a flat tuple: torch's export takes nothing else."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return tuple(tree_flatten(self.fn(*args))[0])


TIED = "tied_weights"  # torch makes an input of each name, and leaves all but one unused


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {TIED}))
def test_a_module_exports_as_torch_exports_it(name: str) -> None:
    build = MODULES[name].builds[0]
    both(lambda: build().fn, lambda: build().args, trace_joint=False)


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {TIED, "unused_parameter"}))
def test_a_module_and_its_gradients_export_as_torch_exports_them(name: str) -> None:
    build = MODULES[name].builds[0]
    both(lambda: Loss(build().fn), lambda: build().args, trace_joint=True, output_loss_index=0)


FUNCTIONS = """
    plain_arithmetic input_returned_as_it_is intermediate_and_its_views intermediate_is_unbound_and_returned perceptron
    moving_average_is_read_then_updated plain_input_is_mutated_and_nothing_returned top_values_and_their_indices
    only_intermediates_are_mutated output_computed_under_no_grad scatter_into_an_input numbers_strings_and_none
""".split()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_exports_as_torch_exports_it(name: str) -> None:
    build = PROGRAMS[name].builds[0]
    both(lambda: Function(build().fn), lambda: build().args, trace_joint=False)


def test_tied_parameters_are_one_input_with_one_gradient() -> None:
    build = MODULES[TIED].builds[0]
    module, args = Loss(build().fn), build().args
    graph, signature = aotviz.aot_export_module(module, args, trace_joint=True, output_loss_index=0)
    assert signature.parameters == tuple(name for name, _ in module.named_parameters())
    _, *rest = graph(*module.parameters(), *args)
    module(*args)[0].backward()
    gradients = rest[len(signature.user_outputs) - 1 :]
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


def test_the_loss_is_found_behind_mutated_buffers() -> None:
    layer = Loss(nn.BatchNorm1d(3))
    _, signature = aotviz.aot_export_module(layer, (torch.randn(4, 3),), trace_joint=True, output_loss_index=0)
    assert signature.backward_signature is not None
    assert signature.backward_signature.loss_output == signature.user_outputs[0]
    assert signature.user_outputs[0] not in signature.buffers_to_mutate


def test_keyword_arguments_are_user_inputs() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Any, *, scale: Any) -> Any:
            return (super().forward(x) * scale["by"],)

    args, kwargs = (torch.ones(1, 2),), {"scale": {"by": torch.tensor(3.0)}}
    graph, signature = aotviz.aot_export_module(Scaled(2, 2), args, kwargs=kwargs, trace_joint=False)
    assert len(signature.user_inputs) == 2
    assert graph(torch.eye(2), torch.zeros(2), torch.ones(1, 2), torch.tensor(3.0))[0].tolist() == [[3.0, 3.0]]


def test_symbolic_sizes_stay_symbolic() -> None:
    graph, _ = aotviz.aot_export_module(nn.Linear(2, 2), (torch.ones(5, 2),), trace_joint=False, dynamic_shapes=True)
    assert graph(torch.eye(2), torch.zeros(2), torch.ones(7, 2))[0].shape == (7, 2)
    sizes = [str(node.meta["val"].shape[0]) for node in graph.graph.find_nodes(op="placeholder")]
    assert sizes[:2] == ["2", "2"]
    assert not sizes[2].isdigit()


# --- what an export refuses -----------------------------------------------------------------------------------------


def _shares(x: Any, y: Any) -> Any:
    x.mul_(2)
    return (y + 1,)


def _resized(x: Any) -> Any:
    x.t_()
    return (x + 1,)


def _written(x: Any, w: Any) -> Any:
    x.mul_(2)
    return ((x * w).sum(),)


BASE = torch.ones(4)
GROWN = torch.ones(2, requires_grad=True) * 1
REFUSED: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], str]] = {
    "a duplicate that is written": (_shares, (BASE, BASE), {}, "inputs 'x' and 'y' are the same tensor"),
    "an overlap that is written": (
        _shares,
        (BASE[:3], BASE[1:]),
        {},
        "'x' and 'y' share memory, and one would be written",
    ),
    "a shape that changes": (_resized, (torch.ones(2, 3),), {}, "shape, strides or storage of input 'x'"),
    "a written input with a gradient": (_written, (GROWN, torch.ones(2)), {"loss": 0}, "writes input 'x', which"),
    "no loss named": (lambda x: (x.sum(),), (GROWN,), {"loss": None}, "needs output_loss_index"),
    "no such output": (lambda x: (x.sum(),), (GROWN,), {"loss": 3}, "output_loss_index=3, and the call returns 1"),
    "a loss of two elements": (lambda x: (x * 2,), (GROWN,), {"loss": 0}, r"output\[0\], must have one element"),
    "a loss without gradient": (lambda x: (x.detach().sum(),), (GROWN,), {"loss": 0}, "does not require grad"),
    "a second output with gradient": (lambda x: (x.sum(), x * 2), (GROWN,), {"loss": 0}, r"Detach output\[1\]"),
    "an input without use": (lambda x, w: (x.sum(),), (GROWN, GROWN * 1), {"loss": 0}, "input 'w' requires grad"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_a_graph_cannot_express_is_refused_by_name(what: str) -> None:
    fn, args, options, message = REFUSED[what]
    module = nn.Module()
    module.forward = fn  # type: ignore[method-assign]
    joint = {"trace_joint": "loss" in options, "output_loss_index": options.get("loss")}
    with pytest.raises(ExportRefused, match=message):
        aotviz.aot_export_module(module, args, **joint)
    with pytest.raises((RuntimeError, AssertionError, IndexError)):  # torch refuses it too
        torchs.aot_export_module(module, args, **joint)


# --- before dispatch ------------------------------------------------------------------------------------------------


class Calls(nn.Module):
    """A module that does what a function says; `parts` are its own."""

    def __init__(self, fn: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return (self.fn(self, *args),)


def grad_modes(self: Any, x: Any) -> Any:
    y = self.layer(x)
    with torch.no_grad():
        z = y.sin()
    with torch.enable_grad():
        u = z.cos()
    return y + z + u


def under_autocast(self: Any, x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.layer(x).float()


def written_view(_self: Any, x: Any) -> Any:
    y = x.view(-1).clone()
    y[:2].add_(1)
    return y.reshape(3, 3).t()


def counted(self: Any, x: Any) -> Any:
    self.count.add_(1)
    return x * self.count


def written_argument(_self: Any, x: Any) -> Any:
    x.mul_(2)
    return x[:1].sin()


BEFORE_DISPATCH: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: Calls(lambda self, x: self.layer(x), layer=nn.Linear(3, 3)),
    "convolution and batch norm": lambda: Calls(
        lambda self, x: self.layers(x.view(1, 1, 3, 3)),
        layers=nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2)).eval(),
    ),
    "batch norm in training": lambda: Calls(lambda self, x: self.layer(x), layer=nn.BatchNorm1d(3)),
    "dropout": lambda: Calls(lambda self, x: self.layer(x), layer=nn.Dropout(0.5)),
    "dropout that drops nothing": lambda: Calls(lambda self, x: self.layer(x), layer=nn.Dropout(0.5).eval()),
    "attention": lambda: Calls(lambda _, x: nn.functional.scaled_dot_product_attention(x, x, x)),
    "grad modes": lambda: Calls(grad_modes, layer=nn.Linear(3, 3)),
    "autocast": lambda: Calls(under_autocast, layer=nn.Linear(3, 3)),
    "a written view": lambda: Calls(written_view),
    "a written buffer": lambda: Calls(counted, count=torch.zeros(3)),
    "a written argument": lambda: Calls(written_argument),
    "a returned parameter": lambda: Calls(lambda self, x: (x, self.layer.weight), layer=nn.Linear(3, 3)),
}


@pytest.mark.parametrize("grad_mode", [True, False])
@pytest.mark.parametrize("what", BEFORE_DISPATCH)
def test_a_graph_from_before_dispatch_is_torchs(what: str, grad_mode: bool) -> None:
    with torch.set_grad_enabled(grad_mode):
        both(BEFORE_DISPATCH[what], lambda: (torch.ones(3, 3),), trace_joint=False, pre_dispatch=True)


def test_a_graph_from_before_dispatch_computes_what_the_module_does() -> None:
    module, x = BEFORE_DISPATCH["grad modes"](), torch.ones(3, 3)
    graph, signature = aotviz.aot_export_module(module, (x,), trace_joint=False, pre_dispatch=True)
    (y,) = graph(*module.parameters(), x)
    torch.testing.assert_close(y, module(x)[0])
    assert y.requires_grad
    assert torch._C._set_grad_enabled in {node.target for node in graph.graph.nodes}
    assert signature.parameters == ("layer.weight", "layer.bias")


def test_a_graph_from_before_dispatch_has_symbolic_sizes_and_decomposes_what_it_is_told() -> None:
    def both_ways(**options: Any) -> None:
        module = BEFORE_DISPATCH["linear"]
        both(module, lambda: (torch.ones(5, 3),), trace_joint=False, pre_dispatch=True, **options)

    both_ways(dynamic_shapes=True)
    both_ways(decompositions=torch._decomp.get_decompositions([torch.ops.aten.linear, torch.ops.aten.addmm]))


# --- attributes -----------------------------------------------------------------------------------------------------


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.seen: list[Any] = []
        self.last: Any = None

    def forward(self, x: Any) -> Any:
        self.last = x * 2
        self.seen.append(x + 1)
        return (self.last,)


class Reassigns(Remembers):
    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        return (x * self.count,)


def test_an_assigned_attribute_is_told_by_name_and_undone() -> None:
    module = Remembers()
    with pytest.warns(UserWarning, match=r"assigns a tensor to self\.seen\[0\], self\.last"):
        aotviz.aot_export_module(module, (torch.ones(2),), trace_joint=False)
    assert module.last is None
    assert module.seen == []


def test_an_assigned_buffer_is_a_mutated_buffer() -> None:
    module = Reassigns()
    kept = module.count
    graph, signature = aotviz.aot_export_module(module, (torch.ones(2),), trace_joint=False)
    assert module.count is kept
    assert list(signature.buffers_to_mutate.values()) == ["count"]
    assert [t.tolist() for t in graph(torch.tensor(4.0), torch.ones(2))] == [5.0, [5.0, 5.0]]


# --- the simple joint graph -----------------------------------------------------------------------------------------


def simple(x: Any, y: Any) -> Any:
    return x * y, (x + y.exp()).sum()


@pytest.mark.parametrize("joint", [True, False])
def test_a_joint_graph_of_flat_tensors_is_torchs(joint: bool) -> None:
    args = (torch.ones(3, requires_grad=True), torch.full((3,), 2.0))
    ours = aotviz.aot_export_joint_simple(simple, args, trace_joint=joint)
    theirs = torchs.aot_export_joint_simple(simple, args, trace_joint=joint)
    assert difference(ours, theirs) is None
    flat = [arg.detach() for arg in args]
    called = (flat, [torch.ones(3), torch.ones(())]) if joint else flat
    assert str(ours(*called)) == str(theirs(*called))


def _writes_x(x: Any, y: Any) -> Any:
    x.add_(1)
    return (x * y,)


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (_writes_x, (torch.ones(2), torch.ones(2)), "writes input 'x'"),
        (lambda x, y: (x.view(-1), y * 2), (torch.ones(2), torch.ones(2)), r"output\[0\] is a view of an input"),
        (lambda x, y: (y * x, y), (torch.ones(2), torch.ones(2)), r"output\[1\] is an input itself"),
        (lambda x, y: {"a": x * y}, (torch.ones(2), torch.ones(2)), "whose result is one flat tuple"),
        (lambda x, y: x * y[0], (torch.ones(2), [torch.ones(2)]), "whose arguments is one flat tuple"),
    ],
    ids=["write", "view", "input", "dict", "nested"],
)
def test_a_simple_export_refuses_a_change_of_convention(fn: Any, args: Any, message: str) -> None:
    with pytest.raises(ExportRefused, match=message):
        aotviz.aot_export_joint_simple(fn, args, trace_joint=False)


# --- export, then compile -------------------------------------------------------------------------------------------


def test_a_joint_graph_is_exported_edited_and_compiled() -> None:
    layer = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    x = torch.randn(4, 3)
    joint = aotviz.aot_export_joint_with_descriptors(None, layer, (x,))
    with contextlib.ExitStack() as stack:
        theirs = torchs.aot_export_joint_with_descriptors(stack, layer, (x,))
        assert difference(joint.graph_module, theirs.graph_module) is None
        assert joint.params_spec == theirs.params_spec
        assert joint.buffers_spec == theirs.buffers_spec
        assert joint.in_spec.num_leaves == theirs.in_spec.num_leaves
    again = copy.deepcopy(layer)
    expected = again(x)
    expected.sum().backward()
    compiled = aotviz.aot_compile_joint_with_descriptors(joint)
    found = compiled(*layer.parameters(), *layer.buffers(), x)
    found.sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close([p.grad for p in layer.parameters()], [p.grad for p in again.parameters()])
    torch.testing.assert_close(list(layer.buffers()), list(again.buffers()))
    node = next(node for node in joint.graph_module.graph.nodes if node.target is torch.ops.aten.addmm.default)
    with joint.graph_module.graph.inserting_after(node):
        doubled = joint.graph_module.graph.call_function(torch.ops.aten.mul.Tensor, (node, 2))
    doubled.meta.update(node.meta)
    node.replace_all_uses_with(doubled, delete_user_cb=lambda user: user is not doubled)
    layer.eval()
    changed = aotviz.aot_compile_joint_with_descriptors(joint)(*layer.parameters(), *layer.buffers(), x)
    wide = copy.deepcopy(again).train()
    torch.testing.assert_close(changed, wide[1](wide[0](x) * 2))
    torch.testing.assert_close(compiled(*layer.parameters(), *layer.buffers(), x), again.train()(x))


def test_an_edited_graph_with_other_outputs_is_refused() -> None:
    joint = aotviz.aot_export_joint_with_descriptors(None, nn.Linear(2, 2), (torch.ones(1, 2),))
    output = next(iter(reversed(joint.graph_module.graph.nodes)))
    output.args = (output.args[0][:-1],)
    with pytest.raises(ValueError, match="outputs and now has"):
        aotviz.aot_compile_joint_with_descriptors(joint)


def test_a_compiled_export_tells_what_it_takes() -> None:
    joint = aotviz.aot_export_joint_with_descriptors(None, nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(TypeError, match="takes 2 parameters, 0 buffers"):
        aotviz.aot_compile_joint_with_descriptors(joint)(torch.ones(1, 2))


def test_a_tensor_in_place_of_the_arguments_is_said_to_be_one() -> None:
    for export in (aotviz.aot_export_module, aotviz.aot_export_joint_simple):
        with pytest.raises(TypeError, match="args is a tensor; it must be a tuple"):
            export(nn.Linear(3, 2), torch.ones(4, 3), trace_joint=False)
    with pytest.raises(TypeError, match="args is a tensor"):
        aotviz.aot_export_joint_with_descriptors(None, nn.Linear(3, 2), torch.ones(4, 3))


def test_what_a_trace_cannot_follow_is_named_in_an_export_too() -> None:
    class Chooses(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x if x.sum() > 0 else super().forward(x),)

    with pytest.raises(aotviz.Refused, match=r"asks for the value of a tensor that depends on 'x', at .*x\.sum"):
        aotviz.aot_export_module(Chooses(3, 3), (torch.ones(4, 3),), trace_joint=False)
    with pytest.raises(NotImplementedError, match=r"uses the tensor 'self\.weight'"):
        aotviz.aot_export_joint_simple(nn.Linear(3, 3), (torch.ones(4, 3),), trace_joint=True)
