"""Exports that fail, and sizes that were meant to stay dynamic."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn

import aotviz
from aotviz.explain.cures import export_cures as cures
from tests.cures.programs import Calls, Effect, compiled, errors, graph_breaks, program, watched
from tests.explain.logs import logged

DATA_DEPENDENT = ("pytorch/pytorch#147096", "pytorch/executorch#8988", "pytorch/pytorch#147672")


def exported(forward: Any, *args: torch.Tensor, **options: Any) -> None:
    module = type("Exported", (nn.Module,), {"forward": forward})()
    torch.export.export(module, args, **options)


def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.nonzero()
    if y.shape[0] > 3:
        return x.sum() * 2
    return x.sum()


def checks_the_count(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.nonzero()
    torch._check(y.shape[0] > 3)
    if y.shape[0] > 3:
        return x.sum() * 2
    return x.sum()


@program(
    "an export that branches on how many elements were found",
    cures.UNDECIDED,
    "`torch._check(y.shape[0] > 3)`",
    DATA_DEPENDENT,
    errors,
)
def a_count(cured: bool) -> None:
    exported(checks_the_count if cured else counts, torch.ones(6))


def asks(self: Any, x: torch.Tensor) -> torch.Tensor:
    if (x > 2).any():
        x = x.clamp(max=2)
    return x + 1


def asks_for_each(self: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.where((x > 2).any(), x.clamp(max=2), x) + 1


@program(
    "an export that branches on what a tensor holds",
    cures.BRANCH,
    "`torch.where` computes both and chooses by the tensor",
    (),
    errors,
)
def a_branch_on_a_tensor(cured: bool) -> None:
    exported(asks_for_each if cured else asks, torch.ones(6))


def reads(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = x.sum().int().item()
    if n > 3:
        return x.sin()
    return x.cos()


def chooses(self: Any, x: torch.Tensor) -> torch.Tensor:
    chosen: torch.Tensor = torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,))
    return chosen


@program(
    "an export that branches on a number of a tensor",
    cures.UNDECIDED,
    "`torch.cond`",
    ("pytorch/pytorch#173915",),
    errors,
)
def a_number_of_a_tensor(cured: bool) -> None:
    exported(chooses if cured else reads, torch.ones(6))


def repeats(self: Any, x: torch.Tensor, n: Any) -> torch.Tensor:
    count = n.item() if isinstance(n, torch.Tensor) else n
    return x * 2 if count > 2 else x


@program("an export that reads a number which is known before", cures.UNDECIDED, "pass a Python int", (), errors)
def a_known_number(cured: bool) -> None:
    exported(repeats, torch.ones(6), 3 if cured else torch.tensor(3))  # type: ignore[arg-type]


def operator(name: str, fake: bool) -> Any:
    @torch.library.custom_op(f"cures::{name}", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    if fake:
        torch.library.register_fake(f"cures::{name}")(lambda x: torch.empty_like(x))
    return double


@program(
    "an operator without a fake kernel",
    cures.NO_FAKE,
    '`@torch.library.register_fake("cures::unknown")`',
    ("vllm-project/vllm#44396",),
    errors,
)
def a_custom_operator(cured: bool) -> None:
    double = operator("known" if cured else "unknown", fake=cured)
    exported(lambda self, x: double(x) + 1, torch.ones(3))


@program(
    "an operator without a fake kernel in a compiled function",
    cures.NO_FAKE,
    '`@torch.library.register_fake("cures::faceless")`',
    (),
    graph_breaks,
)
def a_custom_operator_in_a_function(cured: bool) -> object:
    double = operator("with_a_face" if cured else "faceless", fake=cured)
    return aotviz.compile(lambda x: double(x) + 1, backend="eager")(torch.ones(3))


def drafts(calls: Calls, cured: bool) -> Effect:
    recording, _ = watched(calls, cured)
    draft = (cures.WRONG_FAKE, cures.GUARDED, cures.NO_FAKE, cures.UNDECIDED)
    failed = [point for point in recording.explain().points if {*draft} & {*point.fix.cures}]
    return Effect(len(failed), "problems of a draft", recording)


@program(
    "a fake kernel that gives another size",
    cures.WRONG_FAKE,
    "Correct the function",
    ("pytorch/pytorch#182328",),
    drafts,
    first=False,
)
def a_wrong_fake_kernel(cured: bool) -> None:
    name = "right_fake" if cured else "wrong_fake"

    @torch.library.custom_op(f"cures::{name}", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(lambda x: torch.empty_like(x) if cured else x.new_empty(x.shape[0] + 1))
    module = type("Drafted", (nn.Module,), {"forward": lambda self, x: double(x)})()
    torch.export.draft_export(module, (torch.ones(3),))


def even(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] % 2 == 0 else x * 3


@program(
    "a draft that holds only for some sizes", cures.GUARDED, "change the line that needs it", (), drafts, first=False
)
def a_guard_in_a_draft(cured: bool) -> None:
    forward = (lambda self, x: x * 2) if cured else even
    module = type("Drafted", (nn.Module,), {"forward": forward})()
    torch.export.draft_export(module, (torch.ones(4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})


def compares(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return y @ w


@program(
    "a marked size that a product compares with another tensor's",
    cures.FIXED_SIZE,
    "mark that tensor's dimension as well",
    ("pytorch/pytorch#145587",),
    errors,
)
def a_product(cured: bool) -> object:
    x, w = torch.ones(2, 6), torch.ones(6, 3)
    torch._dynamo.mark_dynamic(x, 1)
    if cured:
        torch._dynamo.mark_dynamic(w, 0)
    return compiled(compares)(x, w)


SIZES = (3, 4, 5, 6)


@program("a list that is indexed by a size", cures.FIXED_SIZE, "index a tensor in place of a list")
def a_list_by_size(cured: bool) -> object:
    scales = list(range(20))

    def indexing(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return x * (table if cured else scales)[x.shape[0]]

    step, table = compiled(indexing), torch.arange(20)
    return [step(torch.ones(size), table) for size in SIZES]


@program(
    "the length of a list that is as long as a size",
    cures.FIXED_SIZE,
    "use the size itself in place of the length of a list",
)
def a_length(cured: bool) -> object:
    def listing(x: torch.Tensor) -> torch.Tensor:
        doubled = x + 1
        length = x.shape[0] if cured else len([0] * x.shape[0])
        return doubled * length

    step = compiled(listing)
    return [step(torch.ones(size)) for size in SIZES]


@program("a size that Python hashes", cures.FIXED_SIZE, "compute the value outside and pass it as a tensor")
def a_computed_size(cured: bool) -> object:
    step = compiled(lambda x, code: x * (code if cured else hash(x.shape[0])))
    return [step(torch.ones(size), torch.tensor(hash(size))) for size in SIZES]


def branches(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.shape[1] == 6:
        y = y * 2
    return y.cos()


@program(
    "a marked size that a branch compares",
    cures.ACCEPTED_SIZE,
    "`torch._dynamo.maybe_mark_dynamic(x, 1)`",
    ("pytorch/pytorch#136002",),
    errors,
)
def a_compared_size(cured: bool) -> object:
    x = torch.ones(2, 6)
    (torch._dynamo.maybe_mark_dynamic if cured else torch._dynamo.mark_dynamic)(x, 1)
    return compiled(branches)(x)


@program(
    "an export that fails in eager too",
    cures.STOPPED,
    "Call the module in eager with the same inputs first",
    (),
    errors,
)
def an_export_that_fails_in_eager_too(cured: bool) -> None:
    exported(lambda self, x: x + torch.ones(4), torch.ones(4 if cured else 3))


@dataclass
class Scores:
    raw: torch.Tensor
    positive: torch.Tensor


@program(
    "an export that returns an object of a class of the user's",
    cures.RETURNED,
    "return a tensor, or a tuple or dict of tensors",
    ("pytorch/pytorch#152467",),
    errors,
)
def an_export_of_a_dataclass(cured: bool) -> None:
    made = dict if cured else Scores

    def forward(self: Any, x: torch.Tensor) -> Any:
        doubled = x * 2
        return made(raw=doubled, positive=doubled.relu())

    exported(forward, torch.ones(3))


def with_records(active: bool) -> Any:
    """As with TORCH_DTRACE=folder."""
    return mock.patch.object(torch._logging._internal, "GET_DTRACE_STRUCTURED", active)


@program(
    "an export that raises for its dynamic shapes",
    cures.UNFINISHED,
    "Run the program in eager with the same inputs",
    ("pytorch/pytorch#133653",),
    errors,
)
def an_export_with_wrong_dynamic_shapes(cured: bool) -> None:
    shapes = {"x": {0 if cured else 1: torch.export.Dim("rows")}}
    with with_records(active=True):
        exported(lambda self, x: x * 2, torch.ones(8), dynamic_shapes=shapes)


def untold(calls: Calls, cured: bool) -> Effect:
    with tempfile.TemporaryDirectory() as folder:
        recording = logged(lambda: calls(cured), Path(folder))
    points = [point for point in recording.explain().points if cures.UNLOGGED in point.fix.cures]
    return Effect(len(points), "exports whose end is not told", recording)


@program("a log that does not tell how an export ended", cures.UNLOGGED, "Set TORCH_DTRACE=folder", (), untold)
def an_export_without_records(cured: bool) -> None:
    with with_records(active=cured):
        exported(lambda self, x: x * 2, torch.ones(8))


class Counting(nn.Module):
    def __init__(self, cured: bool) -> None:
        super().__init__()
        if cured:
            self.register_buffer("count", torch.tensor(0))
        else:
            self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.count, torch.Tensor):
            self.count.add_(1)
        else:
            self.count += 1
        return x * 2


def uncounted(calls: Calls, cured: bool) -> Effect:
    recording, counted = watched(calls, cured)
    return Effect(2 - int(counted), "calls that the exported program did not count", recording)


@program(
    "a module that counts its calls is exported",
    cures.LEFT_OUT,
    '`self.register_buffer("count", ...)`',
    ("pytorch/pytorch#130820",),
    uncounted,
)
def an_attribute_that_forward_sets(cured: bool) -> int:
    module = torch.export.export(Counting(cured), (torch.ones(3),)).module()
    for _ in range(2):
        module(torch.ones(3))
    return int(getattr(module, "count", 0))


@program(
    "an export whose two names are one dimension",
    cures.ONE_DIMENSION,
    "give both the same dimension in `dynamic_shapes`: `rows` in place of `others`",
    (),
    errors,
)
def two_names_of_a_dimension(cured: bool) -> None:
    rows = torch.export.Dim("rows")
    shapes = {"x": {0: rows}, "y": {0: rows if cured else torch.export.Dim("others")}}
    exported(lambda self, x, y: x + y, torch.ones(4), torch.ones(4), dynamic_shapes=shapes, strict=True)


@program(
    "an export with longer sizes than a table has rows",
    cures.BOUND,
    "`torch.export.Dim(..., max=16)`",
    ("pytorch/TensorRT#2922",),
    errors,
)
def a_table_that_is_too_short(cured: bool) -> None:
    table = torch.ones(16, 4)
    shapes = {"x": {0: torch.export.Dim("length", max=16 if cured else 1024)}}
    with with_records(active=True):
        exported(lambda self, x: x + table[: x.shape[0]], torch.ones(8, 4), dynamic_shapes=shapes)


@program(
    "an export of more sizes than a branch holds for",
    cures.BOUND,
    "`torch.export.Dim(..., min=5)`",
    (),
    errors,
)
def a_branch_in_an_export(cured: bool) -> None:
    shapes = {"x": {0: torch.export.Dim("rows", min=5 if cured else 2)}}
    with with_records(active=True):
        exported(lambda self, x: x * 2 if x.shape[0] > 4 else x, torch.ones(8, 6), dynamic_shapes=shapes)


@program(
    "an export of sizes that are no multiple of a number",
    cures.SUGGESTED,
    "`_rows = Dim('_rows', min=1)`; `rows = 4*_rows`",
    (),
    errors,
)
def a_multiple_of_four(cured: bool) -> None:
    rows = 4 * torch.export.Dim("_rows", min=1) if cured else torch.export.Dim("rows")
    exported(lambda self, x: x.reshape(-1, 4, 6), torch.ones(8, 6), dynamic_shapes={"x": {0: rows}})


@program(
    "an export by tracing whose two names are one dimension",
    cures.ONE_DIMENSION,
    "give both the same dimension in `dynamic_shapes`: `rows` in place of `others`",
    (),
    errors,
)
def two_names_of_a_dimension_in_a_trace(cured: bool) -> None:
    rows = torch.export.Dim("rows")
    shapes = {"x": {0: rows}, "y": {0: rows if cured else torch.export.Dim("others")}}
    exported(lambda self, x, y: x + y, torch.ones(4), torch.ones(4), dynamic_shapes=shapes)


@program(
    "a view with the size of the example as a number",
    cures.WRITTEN_SIZE,
    "Write what it is the size of in its place, `x.shape[0]`",
    (),
    errors,
)
def a_view(cured: bool) -> object:
    x = torch.ones(4, 6)
    torch._dynamo.mark_dynamic(x, 0)
    return compiled(lambda x: x.view(x.shape[0] if cured else 4, 2, 3) * 2)(x)


@program(
    "a table that is as long as the example",
    cures.FIXED_SIZE,
    "take of a table as many rows as there are: `table[:x.shape[0]]`",
    (),
    errors,
)
def a_table(cured: bool) -> object:
    x, table = torch.ones(6, 2), torch.ones(6, 2)
    torch._dynamo.mark_dynamic(x, 0)
    return compiled(lambda x: x * (table[: x.shape[0]] if cured else table))(x)


@dataclass
class Request:
    ids: torch.Tensor


@dataclass
class Registered:
    ids: torch.Tensor


torch.export.register_dataclass(Registered)


@program(
    "an export whose input is a dataclass",
    cures.INPUT_CLASS,
    "`torch.export.register_dataclass(Request)`",
    ("pytorch/pytorch#147400",),
    errors,
)
def a_dataclass(cured: bool) -> None:
    request: Any = (Registered if cured else Request)(torch.ones(3))
    exported(lambda self, request: request.ids * 2, request)


@program(
    "an export whose `dynamic_shapes` has another name than the argument",
    cures.NAMES_OF_SHAPES,
    "the names of the arguments of `forward`, all that are passed: `x`",
    (),
    errors,
)
def another_name(cured: bool) -> None:
    shapes = {"x" if cured else "tokens": {0: torch.export.Dim("length")}}
    exported(lambda self, x: x * 2, torch.ones(3), dynamic_shapes=shapes)
