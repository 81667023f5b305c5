"""A traced function puts tensors into caches and objects: they are taken out again, and the place is named."""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import aotviz
from aotviz.frontends.export import aot_export_joint_simple, aot_export_joint_with_descriptors, aot_export_module
from aotviz.ir.refusals import Refused
from aotviz.lowerings import run_graph
from aotviz.python_state import leaks
from aotviz.torch_private import versions
from aotviz.torch_private.functional_tensors import FunctionalTensor
from tests.tiers import slow


@functools.lru_cache
def bounded(n: int) -> torch.Tensor:
    return torch.arange(n).float()


@functools.cache
def unbounded(n: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.arange(n).float(), [torch.ones(n)]


DICT: dict[int, Any] = {}
ORDERED: collections.OrderedDict[str, Any] = collections.OrderedDict()
LIST: list[Any] = ["before"]
DEEP: list[Any] = [{"inner": {"list": []}}]
SET: set[Any] = set()
DEQUE: collections.deque[Any] = collections.deque(["before"], maxlen=3)
TABLE: Any = None
CONTEXT: contextvars.ContextVar[Any] = contextvars.ContextVar("CONTEXT", default="before")
LOCAL = threading.local()


class Holder:
    shared: Any = None
    later: Any

    def __init__(self) -> None:
        self.table: Any = None
        self.tables: dict[str, Any] = {}

    @functools.cached_property
    def computed(self) -> torch.Tensor:
        return torch.arange(4).float()


class Slotted:
    __slots__ = ("table",)


HOLDER, SLOTTED = Holder(), Slotted()


def in_dict(n: int) -> Any:
    return DICT.setdefault(n, torch.arange(n).float())


def in_ordered(n: int) -> Any:
    ORDERED["last"] = (n, {"t": torch.arange(n).float()})
    return ORDERED["last"][1]["t"]


def in_list(n: int) -> Any:
    LIST.append(torch.arange(n).float())
    return LIST[-1]


def in_deep(n: int) -> Any:
    DEEP[0]["inner"]["list"].append(torch.arange(n).float())
    return DEEP[0]["inner"]["list"][-1]


def in_set(n: int) -> Any:
    SET.add(torch.ones(n))
    return torch.ones(n)


def in_deque(n: int) -> Any:
    DEQUE.append(torch.ones(n))
    return DEQUE[-1]


def in_global(n: int) -> Any:
    global TABLE
    if TABLE is None:
        TABLE = torch.arange(n).float()
    return TABLE


def in_attribute(n: int) -> Any:
    if HOLDER.table is None:
        HOLDER.table = torch.arange(n).float()
    return HOLDER.table


def in_new_attribute(n: int) -> Any:
    if not hasattr(HOLDER, "later"):
        HOLDER.later = torch.arange(n).float()
    return HOLDER.later


def in_class(n: int) -> Any:
    Holder.shared = torch.arange(n).float()
    return Holder.shared


def in_slot(n: int) -> Any:
    SLOTTED.table = torch.arange(n).float()
    return SLOTTED.table


def in_function(n: int) -> Any:
    in_function.table = torch.arange(n).float()  # type: ignore[attr-defined]
    return in_function.table  # type: ignore[attr-defined]


def in_default(n: int, cache: dict[int, Any] = {}) -> Any:  # noqa: B006
    return cache.setdefault(n, torch.arange(n).float())


def in_context(n: int) -> Any:
    CONTEXT.set(torch.arange(n).float())
    return CONTEXT.get()


def in_local(n: int) -> Any:
    LOCAL.table = torch.arange(n).float()
    return LOCAL.table


def _in_cell() -> Callable[[int], Any]:
    table = None

    def in_cell(n: int) -> Any:
        nonlocal table
        if table is None:
            table = torch.arange(n).float()
        return table

    return in_cell


in_cell = _in_cell()

HELPERS: list[tuple[Callable[[int], Any], str]] = [
    (bounded, r"the cache of bounded\(\)"),
    (lambda n: unbounded(n)[0], r"the cache of unbounded\(\)"),
    (in_dict, r"DICT\[4\]"),
    (in_ordered, r"ORDERED\['last'\]\[1\]\['t'\]"),
    (in_list, r"LIST\[1\]"),
    (in_deep, r"DEEP\[0\]\['inner'\]\['list'\]\[0\]"),
    (in_set, "SET"),
    (in_deque, r"DEQUE\[1\]"),
    (in_global, "TABLE"),
    (in_attribute, "HOLDER.table|a Holder.table"),
    (in_new_attribute, "a Holder.later"),
    (in_class, "Holder.shared"),
    (in_slot, "a Slotted.table"),
    (in_function, r"in_function.table"),
    (in_default, r"in_default\[4\]"),
    (in_context, "the context variable 'CONTEXT'"),
    (in_local, r"table"),
    (lambda n: in_cell(n), r"in_cell.table"),
    (lambda n: HOLDER.computed, "a Holder.computed"),
]


def functional_tensors() -> list[Any]:
    """Those that something but a trace refers to: all, once nothing of a trace is alive."""
    gc.unfreeze()  # else what other files left is not listed until a refusal looks for what holds a tensor
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is FunctionalTensor]


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    global TABLE, in_cell
    yield
    TABLE, in_cell = None, _in_cell()
    bounded.cache_clear()
    unbounded.cache_clear()
    for container in (DICT, ORDERED, SET):
        container.clear()
    LIST[:], DEEP[:] = ["before"], [{"inner": {"list": []}}]


def test_tensors_that_helpers_keep_are_taken_out_and_their_places_named():
    def scaled(x):
        return [x * helper(x.shape[0]) for helper, _ in HELPERS]

    x = torch.ones(4, requires_grad=True)
    others = functional_tensors()  # what other tests of this process have left, alive while this one runs
    before = set(map(id, others))
    with pytest.raises(Refused, match="scaled stores a tensor in ") as caught:
        aotviz.aot_function(scaled, run_graph)(x)
    assert caught.value.reason == "tensor is kept"
    for _, where in HELPERS:
        assert re.search(where, str(caught.value)), where
    del caught
    assert not [one for one in functional_tensors() if id(one) not in before]
    for _ in range(2):  # eager, as if nothing had been
        assert all(isinstance(out, torch.Tensor) for out in scaled(x))


@pytest.mark.parametrize("helper", [bounded, unbounded])
def test_one_helper_keeps_a_tensor(helper):
    with pytest.raises(Refused, match=f"stores a tensor in .*{helper.__name__}"):
        aotviz.aot_function(lambda x: x * helper(4)[0], run_graph)(torch.ones(4))
    assert type(helper(4)[0]) is torch.Tensor


class Cached(nn.Module):
    def forward(self, x):
        return (x * in_dict(x.shape[0]),)


DOORS: dict[str, Callable[[Any], Any]] = {
    "aot_function": lambda x: aotviz.aot_function(Cached(), run_graph)(x),
    "aot_module": lambda x: aotviz.aot_module(Cached(), run_graph)(x),
    "aot_module_simplified": lambda x: aotviz.aot_module_simplified(Cached(), [x], run_graph)(x),
    "aot_export_module": lambda x: aot_export_module(Cached(), (x,), trace_joint=False),
    "aot_export_joint_simple": lambda x: aot_export_joint_simple(Cached(), (x,), trace_joint=True),
    "aot_export_joint_with_descriptors": lambda x: aot_export_joint_with_descriptors(None, Cached(), (x,)),
    "trace_stages": lambda x: aotviz.trace_stages(Cached(), x, until="metadata"),
    "trace_stages, joint": lambda x: aotviz.trace_stages(Cached(), x, until="joint"),
}


# A search of the whole heap for what keeps a tensor takes seconds a door.
@pytest.mark.parametrize(
    "door",
    [
        door if door in ("aot_function", "aot_export_joint_with_descriptors", "trace_stages") else slow(door)
        for door in DOORS
    ],
)
def test_every_door_leaves_nothing_behind(door):
    with pytest.raises(Refused, match=r"stores a tensor in DICT\[4\]"):
        DOORS[door](torch.ones(4, requires_grad=True))
    assert DICT == {}


def test_torch_compile_takes_such_a_function():
    torch._dynamo.reset()
    x = torch.ones(4, requires_grad=True)
    for _ in range(2):
        (out,) = torch.compile(Cached(), backend="aotviz_eager")(x)
        assert torch.equal(out, torch.arange(4).float())
    assert type(DICT[4]) is torch.Tensor


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = x * 2
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        in_deep(4)
        return grad * ctx.kept


def test_what_a_backward_keeps_is_taken_out():
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(Refused, match=r"stores a tensor in DEEP\[0\]\['inner'\]\['list'\]\[0\]"):
        aotviz.aot_function(lambda x: Keeping.apply(x), run_graph)(x)
    assert DEEP == [{"inner": {"list": []}}]


def test_what_a_function_keeps_in_its_own_context_is_no_leak(monkeypatch):
    monkeypatch.setitem(globals(), "in_deep", lambda n: None)
    x = torch.ones(4, requires_grad=True)
    out = aotviz.aot_function(lambda x: Keeping.apply(x), run_graph)(x)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0], torch.full((4,), 2.0))


def test_a_trace_that_fails_leaves_nothing_behind_either():
    def fails(x):
        local = [x * in_dict(x.shape[0])]
        in_global(4)
        raise ValueError(f"no {len(local)}")

    with pytest.raises(ValueError, match="no 1") as caught:
        aotviz.aot_function(fails, run_graph)(torch.ones(4, requires_grad=True))
    assert DICT == {}
    assert TABLE is None
    assert any("DICT[4]" in note for note in caught.value.__notes__)


class Halving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = x
        return x * 0.5

    @staticmethod
    def backward(ctx, grad):
        return grad * 0.5 + ctx.kept * 0


HEARD: list[torch.Tensor] = []


def hooks_what_it_makes(x):
    made = x * 2
    made.register_hook(lambda gradient: HEARD.append(gradient.sum()))
    return made.sin()


def writes_a_view(x):
    view = x.view(2, 2)
    view.mul_(2)
    return view + 1


def writes_beside_a_leaf(whole, x):
    view = x.view(-1)
    whole.mul_(2)
    return view * 3


def writes_outside_of_its_argument(x):
    return x.as_strided((2,), (1,), 100).mul_(2) + x.sum()


LEAF, WHOLE = torch.ones(4, requires_grad=True), torch.ones(4)
LEAVING_NOTHING: dict[str, tuple[Any, ...]] = {
    "what a custom function keeps": (lambda x: Halving.apply(x * 2), LEAF),
    "a hook that is called in each backward": (hooks_what_it_makes, LEAF),
    "a leaf that is a view": (writes_beside_a_leaf, WHOLE, WHOLE.view(2, 2).requires_grad_()),
    "a refusal": (writes_outside_of_its_argument, LEAF * 1),
    "a refusal inside a graph": (torch.fx.symbolic_trace(writes_outside_of_its_argument), LEAF * 1),
}


@pytest.fixture
def searched(monkeypatch):
    """What is said before each search of the objects of the process, which begins with a collection."""
    found: list[str] = []
    noted = SimpleNamespace(get_referents=gc.get_referents, collect=lambda: found.append("collected"))
    monkeypatch.setattr(leaks, "gc", noted)
    return found


@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.LSTM(4, 4), (3, 2, 4)), (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 3, 8))],
)
def test_where_nothing_is_kept_the_objects_of_the_process_are_not_searched(module, shape, searched):
    result = aotviz.compile(module, backend="eager")(torch.ones(shape))
    (result[0] if isinstance(result, tuple) else result).sum().backward()
    assert not searched


@pytest.mark.parametrize("name", LEAVING_NOTHING)
def test_neither_are_they_for_what_the_trace_itself_keeps(name, searched):
    fn, *args = LEAVING_NOTHING[name]
    raised = RuntimeError if versions.has("a view outside of its storage fails in a trace") else NotImplementedError
    with pytest.raises(raised) if "refusal" in name else nullcontext():
        aotviz.aot_function(fn, run_graph)(*args).sum().backward()
    assert not searched


def test_neither_are_they_for_a_view_that_is_written_in_inference_mode(searched):
    with torch.inference_mode():
        assert torch.equal(aotviz.aot_function(writes_a_view, run_graph)(torch.ones(4)), torch.full((2, 2), 3.0))
    assert not searched


@pytest.mark.filterwarnings("ignore::aotviz.RanInEager")
def test_what_a_refusal_costs_does_not_grow_with_what_was_recorded(monkeypatch):
    def refused(x):
        x.as_strided((3, 3), (1, 1)).mul_(2)
        return x + 1

    walked = []

    def referents(holder, known=leaks._referents):
        walked.append(type(holder))
        return known(holder)

    def walked_by_a_refusal():
        torch._dynamo.reset()
        walked.clear()
        with pytest.raises(Refused):
            aotviz.aot_function(refused, run_graph)(torch.arange(12.0).view(3, 4))
        return len(walked)

    monkeypatch.setattr(leaks, "_referents", referents)
    with aotviz.record() as recording:
        at_first = walked_by_a_refusal()
        for _ in range(20):
            aotviz.aot_function(lambda x: x.sin().cos(), run_graph)(torch.ones(3, requires_grad=True))
        assert len(recording) > 20
        assert 0 < walked_by_a_refusal() < 2 * at_first


def test_a_failing_trace_that_keeps_nothing_says_nothing():
    def fails(x):
        local = {"x": [x * 2], "y": (x.sin(), lambda: x)}
        raise ValueError(f"no {len(local)}")

    with pytest.raises(ValueError, match="no 2") as caught:
        aotviz.aot_function(fails, run_graph)(torch.ones(4, requires_grad=True))
    assert not any("left" in note for note in caught.value.__notes__)


def test_a_module_registers_a_buffer_while_it_runs():
    class Registers(nn.Module):
        def forward(self, x):
            self.inner = nn.Module()
            self.inner.register_buffer("mask", x.detach() * 2)
            return x * self.inner.mask

    module = Registers()
    with pytest.raises(Refused, match=r"a Module\.mask"):
        aotviz.aot_function(module, run_graph)(torch.ones(4, requires_grad=True))
    assert dict(module.inner.named_buffers()) == {}


@pytest.mark.parametrize("door", ["compile", "aot_module"])
def test_a_module_that_occurs_twice_gets_its_parameters_back(door):
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    weight, x = layer.weight, torch.ones(1, 2)
    compiled = aotviz.compile(model, backend="eager") if door == "compile" else aotviz.aot_module(model, run_graph)
    assert torch.equal(compiled(x), model(x))
    assert layer.weight is weight
    compiled(x).sum().backward()
    assert weight.grad is not None


def test_a_library_may_keep_what_it_made_before():
    DICT[4] = torch.arange(4).float()
    before = dict(DICT)

    def scaled(x):
        return x * len(DICT)

    assert torch.equal(aotviz.aot_function(scaled, run_graph)(torch.ones(4)), torch.ones(4))
    assert DICT.keys() == before.keys()
    assert DICT[4] is before[4]


# --- what is returned, and no leak -----------------------------------------------------------------------------------


class Layer:
    def __init__(self, keys):
        self.keys = keys


class Cache:
    def __init__(self, *layers):
        self.layers = [Layer(keys) for keys in layers]
        self.length = len(layers)


def test_a_result_that_holds_tensors_where_pytree_does_not_look_is_refused_by_its_place():
    def f(x):
        return {"logits": x * 2, "cache": Cache(x.sin())}

    message = r"output\['cache'\] is a Cache that contains the tensor output\['cache'\]\.layers\[0\]\.keys.*register"
    with pytest.raises(TypeError, match=message):
        aotviz.aot_function(f, run_graph)(torch.ones(3))
    assert isinstance(f(torch.ones(3))["cache"].layers[0].keys, torch.Tensor)


def test_an_object_without_tensors_is_returned():
    cache = aotviz.aot_function(lambda x: (x * 2, Cache(1, "two")), run_graph)(torch.ones(3))[1]
    assert [layer.keys for layer in cache.layers] == [1, "two"]


def test_the_cache_in_the_result_of_a_language_model_is_named():
    transformers = pytest.importorskip("transformers")
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 32, "n_positions": 16}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    tokens = torch.ones(1, 4, dtype=torch.long)
    with pytest.raises(TypeError, match=r"output\['past_key_values'\] is a DynamicCache.*use_cache=False"):
        aotviz.aot_module(model, run_graph)(tokens)
    logits = aotviz.aot_module(model, run_graph)(tokens, use_cache=False).logits
    torch.testing.assert_close(logits, model(tokens, use_cache=False).logits)


def inside_inference_mode(x):
    with torch.inference_mode():
        y = (x * 2).cos()
    return x.detach().sin() * y


def doubled(x):
    return (x * 2).sin(), x.view(-1)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("function", "around"), [(inside_inference_mode, False), (doubled, True)])
def test_inference_mode_keeps_no_tensor(function, around, requires_grad):
    def found(call):
        x = torch.ones(3, requires_grad=requires_grad)
        with torch.inference_mode(around):
            result = call(x)
        flat = result if isinstance(result, tuple) else (result,)
        return [(one, one.requires_grad, one.is_inference()) for one in flat]

    compiled = aotviz.aot_function(function, run_graph)
    for _ in range(2):
        for mine, eager in zip(found(compiled), found(function), strict=True):
            torch.testing.assert_close(mine[0], eager[0])
            assert mine[1:] == eager[1:]


def plain(x):
    return x.sin() * 2


def writes(x):
    x.mul_(2)
    return x.sin()


def keeps_by_name(x):
    return Keeping.apply(x)


@pytest.mark.every(2)
@pytest.mark.parametrize("fn", [plain, writes, keeps_by_name])
@pytest.mark.parametrize("door", ["aot_function", "compile", "torch.compile"])
def test_a_program_does_not_keep_the_arguments_that_it_was_compiled_for(fn, door, monkeypatch):
    monkeypatch.setitem(globals(), "in_deep", lambda n: None)
    torch._dynamo.reset()
    doors = {
        "aot_function": lambda fn: aotviz.aot_function(fn, run_graph),
        "compile": lambda fn: aotviz.compile(fn, backend="eager"),
        "torch.compile": lambda fn: torch.compile(fn, backend="aotviz_eager"),
    }
    compiled = doors[door](fn)
    given = []
    for _ in range(2):
        x = torch.ones(4, requires_grad=True) * 1
        compiled(x).sum().backward()
        given.append(weakref.ref(x))
        del x
    gc.collect()
    assert [reference() for reference in given] == [None, None]
