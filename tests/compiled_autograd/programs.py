"""Programs with a backward. Each returns what a user can see of it: gradients, and the log of its hooks' calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import aotviz

PROGRAMS: dict[str, Callable[[], Any]] = {}


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@program
def gradients_of_one_tensor_are_added_in_order():
    x = leaf(50)
    y = (x.sin() * x).exp() + x.cos() * x.tanh() + x * x * x
    (y.sum() + x.sum() * 3).backward()
    return [x.grad]


@program
def hooks_of_every_kind():
    log: list[Any] = []
    x, w = leaf(4), leaf(4)
    a = x * 2
    b = a.sin()
    c = b * w
    d = c.exp()
    for name, tensor in {"x": x, "w": w, "a": a, "b": b, "c": c, "d": d}.items():
        tensor.register_hook(lambda g, name=name: log.append((name, g.clone())))
        tensor.register_hook(lambda g, name=name: (log.append(f"{name} again"), g * 2)[1])
    for tensor in (b, c):
        tensor.grad_fn.register_hook(lambda i, o: log.append(("post", [g is None for g in i], [g.clone() for g in o])))
        tensor.grad_fn.register_prehook(lambda o: log.append(("pre", [g.clone() for g in o])))
    x.register_post_accumulate_grad_hook(lambda p: log.append(("accumulated", p.grad.clone())))
    b.retain_grad()
    d.sum().backward()
    return [log, x.grad, w.grad, b.grad]


@program
def hooks_of_modules():
    model, log = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), []
    for part in model:
        part.register_full_backward_hook(lambda m, i, o: log.append((type(m).__name__, i, o)))
        part.register_full_backward_pre_hook(lambda m, o: log.append(o))
    model(leaf(2, 3)).sum().backward()
    return [log]


@program
def training_with_gradients_that_are_kept_and_dropped():
    model, seen = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)), []
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        F.cross_entropy(model(torch.randn(5, 4)), torch.arange(5) % 3).backward()
        optimizer.step()
        if step % 2:
            optimizer.zero_grad(set_to_none=step == 1)
        seen += [parameter.detach().clone() for parameter in model.parameters()]
    return seen


@program
def batches_of_four_sizes():
    seen = []
    for size in (3, 4, 5, 7):
        x = leaf(size, 2)
        (x.sin().sum(0) * x.expand(size, 2).mean()).sum().backward()
        seen.append(x.grad)
    return seen


@program
def slices_that_begin_at_other_places():
    x, seen = leaf(2, 5), []
    for k in range(4):
        x.grad = None
        torch.tensor_split(x, [1, 2, 3], dim=1)[k].sum().backward()
        seen.append(x.grad)
    return seen


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k, x.exp()

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return g * ctx.k + h * x.exp(), None


@program
def custom_function_one_result_unused():
    seen = []
    for k in (2, 3):
        x = leaf(3)
        Scaled.apply(x, k)[0].sum().backward()
        seen.append(x.grad)
    return seen


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return None


@program
def custom_function_without_a_gradient():
    log: list[Any] = []
    x = leaf(3)
    a = x * 2
    a.register_hook(log.append)
    x.register_hook(log.append)
    x.register_post_accumulate_grad_hook(lambda p: log.append("accumulated"))
    NoGradient.apply(a).sum().backward()
    return [x.grad, log]


@program
def views_that_are_written():
    x = leaf(4)
    y = x * 1
    y[1:3].mul_(2)
    y[0] = x[3] * 5
    y.sum().backward()
    return [x.grad]


@program
def sparse_gradients():
    table = nn.Embedding(5, 3, sparse=True)
    (table(torch.tensor([1, 1, 2])) * table.weight[:1]).sum().backward()
    return [table.weight.grad]


@program
def saved_tensor_hooks():
    log: list[str] = []

    def pack(tensor):
        log.append("pack")
        return tensor.detach().numpy().copy()

    def unpack(packed):
        log.append("unpack")
        return torch.from_numpy(packed)

    y = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        z = (y.sin() * y).exp()
    z.sum().backward()
    return [y.grad, log]


@program
def checkpoints_of_both_kinds():
    layer, x = nn.Linear(3, 3), leaf(2, 3)
    for reentrant in (False, True):
        checkpoint(lambda x: layer(x).sin(), x, use_reentrant=reentrant).sum().backward()
    return [x.grad, layer.weight.grad]


@program
def gradients_that_are_asked_for():
    x, w, v = leaf(3), leaf(3), leaf(3)
    h = x * w
    y = (h.sin() * v).sum()
    first = torch.autograd.grad(y, [x, h], retain_graph=True)
    y.backward(inputs=[w])
    return [first, x.grad, w.grad, v.grad, torch.autograd.grad(x.sum(), [x, w], allow_unused=True)]


@program
def queued_callbacks():
    log: list[str] = []
    queue = torch.autograd.Variable._execution_engine.queue_callback
    x = leaf(3)

    def hook(gradient):
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: (log.append("first"), engine.queue_callback(lambda: log.append("second"))))
        log.append("hook")

    del queue
    x.register_hook(hook)
    (x * 2).sum().backward()
    return [log, x.grad]


@program
def convolutions_under_autocast():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3)
    )
    model.append(nn.Linear(36, 2))
    seen = []
    for size in (2, 3, 2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(size, 1, 8, 8)).float().square().mean()
        loss.backward()
        seen += [parameter.grad.clone() for parameter in model.parameters()]
    return seen


@program
def recurrent_network():
    model, x = nn.LSTM(3, 4, 2), leaf(5, 2, 3)
    model(x)[0].sum().backward()
    return [x.grad, *(parameter.grad for parameter in model.parameters())]


@program
def backward_inside_a_hook():
    log: list[Any] = []
    x = leaf(3)

    def hook(gradient):
        with torch.enable_grad():
            z = torch.ones(2, requires_grad=True)
            z.register_hook(log.append)
            (z * 2).sum().backward()
        log.append(z.grad)

    x.register_hook(hook)
    (x * 2).sum().backward()
    return [x.grad, log]


@program
def second_derivative():
    x = leaf(3)
    (gradient,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    gradient.sum().backward()
    return [x.grad, gradient.detach()]


@program
def batches_of_gradients():
    x = leaf(3)
    return [torch.autograd.grad(x.sin() * x, x, torch.eye(3), is_grads_batched=True)[0]]


@program
def anomaly_mode():
    x = leaf(3)
    with torch.autograd.set_detect_anomaly(True):
        (x * 2).sum().backward()
    return [x.grad]


def raised(function: Callable[[], Any]) -> tuple[str, str]:
    try:
        function()
    except BaseException as error:
        return type(error).__name__, str(error)
    return "", ""


@program
def errors_of_hooks():
    found = []
    for stop in (ValueError("mine"), KeyboardInterrupt("stop")):

        def hook(*given, stop=stop):
            raise stop

        for register in ("register_hook", "register_post_accumulate_grad_hook"):
            x = leaf(3)
            handle = getattr(x, register)(hook)
            found.append(raised((x * 2).sum().backward))
            handle.remove()
            x.grad = None
            (x * 3).sum().backward()
            found.append(x.grad)
    return found


@program
def hooks_that_return_something_wrong():
    found = []
    values = (3, torch.ones(2), torch.ones(3, dtype=torch.float64), torch.ones(3), (torch.ones(3),), (None,), ())
    for value in values:

        def my_hook(*given, value=value):
            return value

        for where in range(4):
            x = leaf(3)
            y = x * 2
            node = y.grad_fn
            registers = (
                y.register_hook,
                x.register_post_accumulate_grad_hook,
                node.register_prehook,
                node.register_hook,
            )
            registers[where](my_hook)
            found.append((*raised(y.sum().backward), x.grad))
    return found


@program
def graphs_that_are_gone_or_were_never_there():
    y = leaf(3).sin().sum()
    y.backward()
    return [raised(y.backward), raised(torch.ones(3).sum().backward)]


def two_batch_sizes(compile: Callable[..., Any], backend: str) -> list[Any]:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    run, seen = compile(model, backend=backend), []
    for size in (2, 2, 3):
        x = leaf(size, 3)
        run(x).square().sum().backward()
        seen.append(x.grad)
    return [*seen, *(parameter.grad for parameter in model.parameters())]


@program
def torch_compiled_forward():
    return two_batch_sizes(torch.compile, "aot_eager")


@program
def aotviz_compiled_forward():
    return two_batch_sizes(aotviz.compile, "eager")


@program
def python_that_changes_gradients_before_they_are_accumulated():
    """`.grad` of a leaf counts when its gradient is accumulated, whatever it was when the backward began."""
    seen = []
    for there in (None, 10.0, 10.0):
        for change in (None, 7.0):
            w, v = leaf(2), leaf(2)
            for one in (w, v):
                one.grad = None if there is None else torch.full((2,), there)
            y = w * 3

            def hook(g, v=v, w=w, change=change):
                v.grad = w.grad = None if change is None else torch.full((2,), change)

            y.register_hook(hook)
            (y * v).sum().backward()
            seen += [w.grad, v.grad]
    return seen


@program
def a_layer_that_a_reentrant_checkpoint_shares():
    layer = nn.Linear(2, 2)
    checkpoint(layer, layer(torch.ones(1, 2)), use_reentrant=True).sum().backward()
    return [parameter.grad for parameter in layer.parameters()]


@program
def a_backward_in_a_hook_adds_to_the_same_leaf():
    w = leaf(2)
    y = w * 3

    def hook(g):
        with torch.enable_grad():
            (w * 2).sum().backward()

    y.register_hook(hook)
    y.sum().backward()
    return [w.grad]


@program
def gradients_that_become_sparse():
    w, seen = leaf(3, 2), []
    for there in (torch.zeros(3, 2), torch.sparse_coo_tensor([[0], [1]], [2.0], (3, 2)), None, torch.zeros(3, 2)):
        w.grad = there
        (w * w).sum().backward()
        seen.append(w.grad)
    return seen


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.calls, ctx.name = 0, "layer3"
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        assert isinstance(ctx, torch.autograd.function.FunctionCtx)
        assert type(ctx.saved_tensors) is tuple
        ctx.calls += 1
        return g * 2 * ctx.calls


@program
def a_function_whose_backward_writes_to_its_ctx():
    x = leaf(1)
    y = Counting.apply(x)
    for _ in range(3):
        y.backward(torch.ones(1), retain_graph=True)
    return [x.grad, y.grad_fn.calls]


@program
def gradients_that_a_function_returns_wrongly():
    def answer(give: Callable[[Any], Any]) -> Any:
        class Gives(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, n, z):
                return x * z

            @staticmethod
            def backward(ctx, g):
                return give(g)

        x, z = leaf(2), leaf(2)
        found = raised(lambda: Gives.apply(x, 3, z).sum().backward())
        return [found, x.grad, z.grad]

    answers = [
        lambda g: (g, None, g, g),
        lambda g: (g, None, g, None),
        lambda g: (g, None, None),
        lambda g: (g, g, g),
        lambda g: (g,),
        lambda g: g,
        lambda g: None,
        lambda g: [g, None, g],
        lambda g: (3, None, g),
        lambda g: (g[:1], None, g),
        lambda g: (g.expand(3, 2), None, g),
        lambda g: (g.to("meta"), None, g),
        lambda g: (g.double(), None, g),
    ]
    return [answer(one) for one in answers]


@program
def modes_in_which_the_engine_runs_it():
    layer, seen = nn.Linear(3, 2), []
    with forward_ad.dual_level():
        y = layer(forward_ad.make_dual(torch.randn(3), torch.randn(3))).sin().sum()
        y.backward()
        seen += [parameter.grad.clone() for parameter in layer.parameters()]
    loss = layer(torch.randn(2, 3)).sum()
    with torch.inference_mode():
        loss.backward()
    return [*seen, *(parameter.grad.clone() for parameter in layer.parameters())]


@program
def errors_with_their_causes():
    x = leaf(2)
    y = x * 2

    def hook(g):
        try:
            {}["k"]
        except KeyError as error:
            raise RuntimeError("the hook failed") from error

    y.register_hook(hook)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return [str(error), repr(error.__cause__), error.__suppress_context__]
    return []


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    found: list[Any] = [None] * count

    def one(k: int) -> None:
        found[k] = work(k)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@program
def the_node_that_runs_is_told_to_python():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            look("backward")
            return g * x * 2

    nodes: dict[Any, str] = {}
    seen: list[tuple[str, str]] = []

    def look(where: str) -> None:
        node = torch._C._current_autograd_node()
        seen.append((where, "" if node is None else nodes.get(node, f"unknown {node.name()}")))

    def unpack(packed):
        look("unpack")
        return packed

    def hook(g):
        look("hook")
        with torch.enable_grad():
            other = (inner := leaf(2)) * 3
        nodes[other.grad_fn] = "inner"
        other.register_hook(lambda g: look("hook of the inner one"))
        torch.autograd.grad(other, inner, torch.ones(2))
        look("hook again")

    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), unpack):
        a = Doubled.apply(x)
        b = a.sin() * a
    c = b.exp()
    leaf_node = torch.autograd.graph.get_gradient_edge(x).node
    nodes |= {a.grad_fn: "a", b.grad_fn: "b", c.grad_fn: "c", leaf_node: "x"}
    for tensor in (x, a, b, c):
        tensor.register_hook(hook)
    b.grad_fn.register_prehook(lambda g: look("pre-hook"))
    c.grad_fn.register_hook(lambda i, o: look("post-hook"))
    x.register_post_accumulate_grad_hook(lambda p: look("accumulated"))

    def at_the_end(_):
        torch.autograd.Variable._execution_engine.queue_callback(lambda: look("callback"))

    a.register_hook(at_the_end)
    c.sum().backward()
    look("outside")
    return seen
