"""Graph breaks, and the restarts that they cause."""

from __future__ import annotations

import builtins
import copy
import json
import linecache
import logging
import threading
import warnings
from contextlib import nullcontext
from typing import Any

import torch

from aotviz.explain import answers
from aotviz.explain.cures import break_cures as cures
from tests.cures.programs import Calls, Effect, compiled, errors, graph_breaks, program, settled, watched

LOG = logging.getLogger(__name__)


@program(
    "a branch on a tensor's value",
    cures.BRANCH,
    "choose with `torch.where`",
    ("pytorch/pytorch#173915", "intel/llm-scaler#333"),
    graph_breaks,
)
def a_branch(cured: bool) -> object:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    def choosing(x: torch.Tensor) -> torch.Tensor:
        return torch.where(x.sum() > 0, x * 2, x * 3)

    return compiled(choosing if cured else branching)(torch.ones(3))


@program(
    "a branch that cannot be computed twice", cures.BRANCH, "use `torch.cond`", ("jaseci-labs/jac#2794",), graph_breaks
)
def a_conditional(cured: bool) -> object:
    def branching(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    def choosing(x: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return chosen

    return compiled(choosing if cured else branching)(torch.ones(3))


@program("a seed that is set inside", cures.SEEDED, "Set the seed before the call", (), graph_breaks)
def a_seed(cured: bool) -> object:
    def seeding(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return x + torch.rand(3)

    if cured:
        torch.manual_seed(3)
        return compiled(lambda x: x + torch.rand(3))(torch.ones(3))
    return compiled(seeding)(torch.ones(3))


@program("tolist()", cures.TOLIST, "outside the compiled function", ("pytorch/pytorch#163798",), graph_breaks)
def a_list(cured: bool) -> object:
    inside = compiled(lambda x, n: x * n.tolist()[0])
    outside = compiled(lambda x, n: x * n)
    n = torch.tensor([3])
    return outside(torch.ones(2), n.tolist()[0]) if cured else inside(torch.ones(2), n)


@program(
    "item()",
    cures.ITEM,
    "`torch._dynamo.config.capture_scalar_outputs = True`",
    ("pytorch/pytorch#130917", "rusty1s/pytorch_scatter#457", "mit-han-lab/distrifuser#26"),
    graph_breaks,
)
def an_item(cured: bool) -> object:
    with torch._dynamo.config.patch(capture_scalar_outputs=cured):
        return compiled(lambda x: x * x.sum().item())(torch.ones(2))


@program(
    "item() that need not be a number",
    cures.ITEM,
    "Keep the value in a tensor",
    ("pytorch/pytorch#158642",),
    graph_breaks,
)
def an_item_that_may_be_a_tensor(cured: bool) -> object:
    return compiled(lambda x: x * (x.sum() if cured else x.sum().item()))(torch.ones(2))


@program(
    "a boolean mask",
    cures.OUTPUT_SIZE,
    "`torch._dynamo.config.capture_dynamic_output_shape_ops = True`",
    ("pytorch/pytorch#114220", "pytorch/pytorch#165421"),
    graph_breaks,
)
def a_mask(cured: bool) -> object:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=cured):
        return compiled(lambda x: x[x > 0] * 2)(torch.ones(3))


@program(
    "a mask whose sum is all that is needed", cures.OUTPUT_SIZE, "an operator of fixed output size", (), graph_breaks
)
def a_masked_sum(cured: bool) -> object:
    return compiled(lambda x: torch.where(x > 0, x, 0.0).sum() if cured else x[x > 0].sum())(torch.ones(3))


@program(
    "print",
    cures.PRINT,
    "`torch._dynamo.config.reorderable_logging_functions.add(print)`",
    ("pytorch/pytorch#93739",),
    graph_breaks,
)
def a_print(cured: bool) -> object:
    def printing(x: torch.Tensor) -> torch.Tensor:
        print("inside")
        return x * 2

    with torch._dynamo.config.patch(reorderable_logging_functions={builtins.print} if cured else set()):
        return compiled(printing)(torch.ones(3))


@program(
    "a log message",
    cures.LOGGING,
    "`torch._dynamo.config.ignore_logging_functions.add(logging.getLogger('tests.cures.breaks').warning)`",
    ("pytorch/pytorch#132635", "pytorch/pytorch#108650", "tenstorrent/tt-torch#852"),
    graph_breaks,
)
def a_log_message(cured: bool) -> object:
    def logging_in_between(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        LOG.warning("inside")
        return y + 1

    with torch._dynamo.config.patch(ignore_logging_functions={LOG.warning} if cured else set()):
        return compiled(logging_in_between)(torch.ones(3))


def of_library(source: str) -> Any:
    """The function `run` of a source, as if it lay in a library."""
    file, names = "/opt/lib/python3.11/site-packages/library/model.py", {}
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["run"]


@program(
    "a log message of a library",
    cures.LOGGING,
    "If you can do without the message, before the first call: "
    "`torch._dynamo.config.ignore_logging_functions.add(logging.getLogger('library').warning)`",
    (),
    graph_breaks,
)
def a_log_message_of_a_library(cured: bool) -> object:
    run = of_library(
        "import logging\ndef run(x):\n    logging.getLogger('library').warning('inside')\n    return x + 1"
    )
    ignored = {logging.getLogger("library").warning} if cured else set()
    with torch._dynamo.config.patch(ignore_logging_functions=ignored):
        return compiled(lambda x: run(x) * 3)(torch.ones(3))


@program(
    "a library that asks for a tensor's value",
    cures.ITEM,
    "Set `torch._dynamo.config.capture_scalar_outputs = True`",
    (),
    graph_breaks,
)
def a_number_in_a_library(cured: bool) -> object:
    run = of_library("def run(x):\n    return x * x.sum().item()")
    with torch._dynamo.config.patch(capture_scalar_outputs=cured):
        return compiled(lambda x: run(x) * 3)(torch.ones(3))


@program("a loop whose length is a tensor's value", cures.STEPS, "as a Python int", (), graph_breaks)
def a_loop_of_unknown_length(cured: bool) -> object:
    def repeated(x: torch.Tensor, times: Any) -> torch.Tensor:
        for _ in range(int(times)):
            x = x * 2
        return x

    return compiled(repeated)(torch.ones(3), 3 if cured else torch.tensor(3))


@program(
    "a loop until a tensor's value is reached", cures.WHILE, "loop outside the compiled function", (), graph_breaks
)
def a_loop_until(cured: bool) -> object:
    def until(x: torch.Tensor) -> torch.Tensor:
        steps = 0
        while not (x > 10).all():
            x = x * 2 + 1
            steps += 1
        return x * steps

    if not cured:
        return compiled(until)(torch.ones(3))
    x, steps, step = torch.ones(3), 0, compiled(lambda x: x * 2 + 1)
    while not (x > 10).all():
        x, steps = step(x), steps + 1
    return x * steps


@program("a sparse tensor", cures.SPARSE, "pass a dense one: `x.to_dense()`", (), graph_breaks)
def a_sparse_tensor(cured: bool) -> object:
    x = torch.eye(3).to_sparse()
    return compiled(lambda x: (x @ torch.ones(3, 2)) * 2)(x.to_dense() if cured else x)


@program("a random generator as an argument", cures.GENERATOR, "pass what was drawn", (), graph_breaks)
def a_generator(cured: bool) -> object:
    generator = torch.Generator().manual_seed(0)
    if cured:
        return compiled(lambda x, noise: x + noise)(torch.ones(3), torch.rand(3, generator=generator))
    return compiled(lambda x: x + torch.rand(3, generator=generator))(torch.ones(3))


@program(
    "a warning",
    cures.WARNING,
    "`torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)`",
    (),
    graph_breaks,
)
def a_warning(cured: bool) -> object:
    def warning(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        warnings.warn("a slow path")  # noqa: B028  # torch 2.15 puts off no call with a keyword
        return y + 1

    with torch._dynamo.config.patch(reorderable_logging_functions={warnings.warn} if cured else set()):
        return compiled(warning)(torch.ones(3))


@program(
    "a library that raises an error for this input",
    cures.RAISES,
    "give it an input for which it does not raise, or check the input before the call",
    (),
    errors,
)
def an_error_of_a_library(cured: bool) -> object:
    run = of_library("def run(x):\n    if x.shape[0] != 4:\n        raise ValueError('four rows')\n    return x * 2")
    return compiled(lambda x: run(x) + 1)(torch.ones(4 if cured else 3))


@torch.compiler.disable
def excluded(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@program(
    "a function that is excluded",
    cures.DISABLED,
    "call that function before",
    ("pytorch/pytorch#167927", "pytorch/pytorch#144908"),
    graph_breaks,
)
def a_disabled_function(cured: bool) -> object:
    inside, outside = compiled(lambda x: excluded(x + 1).sin()), compiled(lambda x: x.sin())
    add = compiled(lambda x: x + 1)
    x = torch.ones(3)
    return outside(excluded(add(x))) if cured else inside(x)


@program("an error of the program itself", cures.RAISES, "an input for which it does not raise", (), errors)
def a_check_that_raises(cured: bool) -> object:
    def wants_eight(x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != 8:
            raise ValueError("wants 8 features")
        return x * 2

    return torch.compile(wants_eight, backend="aot_eager", fullgraph=True)(torch.ones(8 if cured else 6))


@program(
    "an error that only tracing meets", cures.RAISES, "move this line out of the compiled function", (), graph_breaks
)
def an_address_that_is_read(cured: bool) -> object:
    def aligned(x: torch.Tensor, address: int | None = None) -> torch.Tensor:
        address = x.data_ptr() if address is None else address
        return x * 2 if address % 4 == 0 else x * 2 + 0

    x = torch.ones(3)
    return compiled(aligned)(x, *([x.data_ptr()] if cured else []))


@program("a copy in the function", cures.BUILTIN, "Call it outside the compiled function", (), graph_breaks)
def a_module_that_is_copied(cured: bool) -> object:
    layer = torch.nn.ReLU()
    layer.register_buffer("scale", torch.ones(()))

    def copied(x: torch.Tensor) -> torch.Tensor:
        return copy.deepcopy(layer)(x + 1)

    def outside(x: torch.Tensor) -> torch.Tensor:
        return other(x + 1)

    other = copy.deepcopy(layer)
    return compiled(outside if cured else copied)(torch.ones(3))


@program("a random generator that is made inside", cures.GENERATOR, "pass what was drawn", (), graph_breaks)
def a_generator_that_is_made_inside(cured: bool) -> object:
    def noisy(x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        if noise is None:
            noise = torch.randn(3, generator=torch.Generator().manual_seed(7))
        return x + noise

    drawn = (torch.randn(3, generator=torch.Generator().manual_seed(7)),) if cured else ()
    return compiled(noisy)(torch.ones(3), *drawn)


@program("a lock that is taken inside", cures.CONTEXT, "Enter it outside the compiled function", (), graph_breaks)
def a_lock(cured: bool) -> object:
    lock = threading.Lock()

    def locked(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        with lock:
            y = y + 1
        return y.cos()

    if not cured:
        return compiled(locked)(torch.ones(3))
    with lock:
        return compiled(lambda x: (x.sin() + 1).cos())(torch.ones(3))


@program("a call of graph_break", cures.CALLED, "Remove the `graph_break()` call", (), graph_breaks)
def a_called_break(cured: bool) -> object:
    def breaking(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    return compiled((lambda x: x * 2 + 1) if cured else breaking)(torch.ones(3))


@program(
    "a context manager that breaks the graph",
    cures.CONTEXT,
    "Enter it outside the compiled function",
    ("pytorch/pytorch#141964",),
    graph_breaks,
)
def a_context_manager(cured: bool) -> object:
    def inside(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        with torch.autograd.detect_anomaly(check_nan=False):
            return y * 2

    def plain(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) * 2

    if cured:
        step = compiled(plain)
        with torch.autograd.detect_anomaly(check_nan=False):
            return step(torch.ones(3))
    return compiled(inside)(torch.ones(3))


@program(
    "a library that torch does not compile",
    cures.SKIPPED,
    "Call it outside the compiled function",
    ("pytorch/pytorch#138004", "pytorch/pytorch#107865"),
    graph_breaks,
)
def a_skipped_library(cured: bool) -> object:
    def packed(x: torch.Tensor) -> torch.Tensor:
        lengths = torch.tensor([2, 1])
        return torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)[0]

    inside, outside = compiled(lambda x: packed(x) * 2), compiled(lambda x: x * 2)
    x = torch.ones(2, 3, 4)
    return outside(packed(x)) if cured else inside(x)


@program(
    "a function of Python's library, part of which torch replaces", cures.BUILTIN, "Call it outside", (), graph_breaks
)
def a_polyfill(cured: bool) -> object:
    inside, outside = compiled(lambda x: x * len(json.dumps({"a": 1}))), compiled(lambda x, n: x * n)
    x = torch.ones(3)
    return outside(x, len(json.dumps({"a": 1}))) if cured else inside(x)


@program("a recurrent layer", cures.RECURRENT, "`torch._dynamo.config.allow_rnn = True`", (), graph_breaks)
def a_recurrent_layer(cured: bool) -> object:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(3, 4)
    with torch._dynamo.config.patch(allow_rnn=cured):
        return compiled(lambda x: layer(x)[0] * 2)(torch.ones(2, 1, 3)).detach()


@program("backward inside", cures.BACKWARD, "outside the compiled function", ("pytorch/torchdynamo#943",), graph_breaks)
def a_backward(cured: bool) -> object:
    weight = torch.ones(3, requires_grad=True)

    def train(x: torch.Tensor) -> torch.Tensor:
        loss = (weight * x).sum()
        if not cured:
            loss.backward()
        return loss

    loss = compiled(train)(torch.ones(3))
    if cured:
        loss.backward()
    return weight.grad


def _broken(graph: object, inputs: object) -> None:
    raise NotImplementedError("no relu")


@program(
    "a backend that raises",
    cures.OF_BACKEND,
    '`torch.compile(..., backend="eager")`',
    ("pytorch/pytorch#140518",),
    errors,
)
def a_broken_backend(cured: bool) -> object:
    return compiled(torch.relu, backend="eager" if cured else _broken)(torch.ones(3))


def restarts(calls: Calls, cured: bool) -> Effect:
    recording, result = watched(calls, cured)
    again = next(
        (one for one in answers.sections(answers.facts_of(recording)) if one.title == "Restarts of Dynamo"), None
    )
    return Effect(len(again.points) if again is not None else 0, "restarts", recording, result)


@program(
    "a restart at a graph break",
    cures.RESTARTS,
    "Remove those graph breaks",
    ("pytorch/pytorch#124437",),
    restarts,
    first=False,
)
def a_restart(cured: bool) -> object:
    def breaking(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    return compiled((lambda x: x * 2 + 1) if cured else breaking)(torch.ones(3))


KEY = object()


@program(
    "an object as the key of a dictionary",
    cures.TORCHS_HINT,
    "a different type of object as the dictionary key",
    ("pytorch/pytorch#149920",),
    graph_breaks,
)
def an_odd_key(cured: bool) -> object:
    key = "scale" if cured else KEY
    return compiled(lambda x, given: x * given.get(key))(torch.ones(3), {key: 2})


STEPS: dict[str, object] = {}


@program(
    "breaks inside torch's optimizers",
    cures.NOT_YOURS,
    "Nothing is to be done in your program",
    ("pytorch/pytorch#104053", "pytorch/pytorch#117767"),
    settled,
)
def an_optimizer(cured: bool) -> object:
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    step = STEPS.setdefault("step", (compiled(lambda: optimizer.step()), parameter))
    run, weight = step  # type: ignore[misc]
    weight.grad = torch.ones(3)
    run()
    return None


@program(
    "a built-in function that needs values",
    cures.BUILTIN,
    "Call it outside the compiled function",
    ("pytorch/pytorch#111652", "pytorch/pytorch#99752"),
    graph_breaks,
)
def a_builtin(cured: bool) -> object:
    inside, outside = compiled(lambda x: x * len(bytes(x.numpy()))), compiled(lambda x, n: x * n)
    x = torch.ones(3)
    return outside(x, len(bytes(x.numpy()))) if cured else inside(x)


@program(
    "a print of what is no tensor, number or string",
    cures.BUILTIN,
    "Call it outside the compiled function",
    (),
    graph_breaks,
)
def a_print_of_a_size(cured: bool) -> object:
    def printing(x: torch.Tensor) -> torch.Tensor:
        if not cured:
            print(x.shape)
        return x * 2

    with torch._dynamo.config.patch(reorderable_logging_functions={builtins.print}):
        return compiled(printing)(torch.ones(3))


@program(
    "dropout under vmap",
    cures.RANDOM_IN_VMAP,
    '`torch.vmap(..., randomness="different")`',
    ("pytorch/rl#2313",),
    errors,
)
def random_numbers_in_vmap(cured: bool) -> object:
    randomness = "different" if cured else "error"

    def noisy(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5).sum()

    return compiled(lambda x: torch.vmap(noisy, randomness=randomness)(x), fullgraph=True)(torch.ones(2, 3))


@program(
    "a setting that another thread made", cures.OF_THREAD, "in the function that the thread runs", (), graph_breaks
)
def a_setting_of_another_thread(cured: bool) -> object:
    found: list[object] = []

    def work() -> None:
        with torch._dynamo.config.patch(capture_scalar_outputs=True) if cured else nullcontext():
            found.append(compiled(lambda x: x * x.sum().item())(torch.ones(3)))

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    return found
