"""The collectives of torch.distributed as functional ones, for which a graph waits.

`torch.distributed.broadcast(tensor)` runs an operator that returns a `Work` at once and writes to its argument later.
Python waits for that work. A graph knows neither the write nor the wait. So a trace calls the functional collective,
which returns a new tensor, then `wait_tensor`, and then writes the value; this is what Dynamo makes of `all_reduce`.
Where torch has no functional form (`scatter`), the processes exchange the same pieces by `all_to_all_single`.

Each process has its own graph, and they wait for one another. So a collective stays in the graph even if this process
does not read its result, and none is merged with an equal one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
import torch.fx as fx

if torch.distributed.is_available():
    import torch.distributed._functional_collectives  # by which a trace knows the shapes of their results

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Pairs = Iterable[tuple[torch.Tensor, torch.Tensor]]  # (a tensor that is written, its new value)
_Given = SimpleNamespace  # the arguments of a collective by their names, and as `kind` that of a reduction

_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")  # by their numbers in `ReduceOp`


def is_one(target: Any) -> bool:
    """Whether an operator is a collective that writes later, when Python waits for the `Work` that it returns."""
    is_collective = getattr(target, "namespace", "") == "c10d"
    return is_collective and any("c10d.Work" in str(one.type) for one in target._schema.returns)


def communicates(target: Any) -> bool:
    """Whether an operator of a graph talks to other processes, which have to call it as often."""
    return any(word in getattr(target, "namespace", "") for word in ("c10d_functional", "dtensor"))


def unread(graph: fx.Graph) -> list[fx.Node]:
    """The waits for collectives whose results nothing reads. The other processes wait for these too."""
    if not torch.distributed.is_available():
        return []
    waits = graph.find_nodes(op="call_function", target=torch.ops._c10d_functional.wait_tensor.default)
    return [node for node in waits if not node.users]


def word(target: Any) -> str:
    """The name of the operator, as in "broadcast"."""
    return str(target._schema.name).removeprefix("c10d::").strip("_")


def written(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[Any, Any]] | None:
    """Run the functional form of a collective and wait for it. Return what is to be written, and the values; None if it
    has no functional form."""
    form = _FORMS.get(word(target))
    names = [argument.name for argument in target._schema.arguments]
    given = _Given(**{**dict(zip(names, args, strict=False)), **kwargs})
    group = torch.distributed.ProcessGroup.unbox(given.process_group)
    if hasattr(given, "reduce_op"):
        kind = given.reduce_op.op()
        if kind >= len(_REDUCTIONS) or getattr(given, "sparse_indices", None) is not None:  # others have a factor
            return None
        given.kind = _REDUCTIONS[kind]
    return None if form is None else list(form(given, group))


def answer(target: Any, args: Sequence[Any]) -> Any:
    """What the operator returns: work that is done, alone or behind the written tensors."""
    done = torch._C._distributed_c10d.FakeWork().boxed()
    return (args[0], done) if len(target._schema.returns) > 1 else done


def _run(name: str, *args: Any) -> torch.Tensor:
    functional = torch.ops._c10d_functional
    return functional.wait_tensor.default(getattr(functional, name).default(*args))


def _all_reduce(tensor: torch.Tensor, kind: str, group: ProcessGroup) -> torch.Tensor:
    return _run("all_reduce", tensor, kind, group.group_name)


def _gather(tensor: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    """The tensors of all processes, one behind the other."""
    return _run("all_gather_into_tensor", tensor.reshape(-1), group.size(), group.group_name)


def _reduce_scatter(tensor: torch.Tensor, kind: str, group: ProcessGroup) -> torch.Tensor:
    return _run("reduce_scatter_tensor", tensor.reshape(-1), kind, group.size(), group.group_name)


def _exchange(tensor: torch.Tensor, received: Sequence[Any], sent: Sequence[Any], group: ProcessGroup) -> torch.Tensor:
    """Send so many rows to each process, and receive so many."""
    return _run("all_to_all_single", tensor, list(received), list(sent), group.group_name)


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([one.reshape(-1) for one in tensors])


def _pieces(flat: torch.Tensor, shapes: Sequence[torch.Tensor]) -> Pairs:
    parts = torch.split(flat, [one.numel() for one in shapes])
    return [(one, part.reshape(one.shape)) for one, part in zip(shapes, parts, strict=True)]


def _to_one(rank: int, count: Any, group: ProcessGroup) -> list[Any]:
    return [count if k == rank else 0 for k in range(group.size())]


def _of_all_reduce(given: _Given, group: ProcessGroup) -> Pairs:
    return [(one, _all_reduce(one, given.kind, group)) for one in given.tensors]


def _of_reduce(given: _Given, group: ProcessGroup) -> Pairs:
    reduced = _of_all_reduce(given, group)
    return reduced if group.rank() == given.root_rank else ()


def _of_gather(given: _Given, group: ProcessGroup) -> Pairs:
    (one,) = given.input_tensors
    sizes = [one.numel()] * group.size() if group.rank() == given.root_rank else [0] * group.size()
    flat = _exchange(one.reshape(-1), sizes, _to_one(given.root_rank, one.numel(), group), group)
    return _pieces(flat, given.output_tensors[0]) if group.rank() == given.root_rank else ()


def _of_scatter(given: _Given, group: ProcessGroup) -> Pairs:
    (out,) = given.output_tensors
    if group.rank() == given.root_rank:
        flat, sizes = _flat(given.input_tensors[0]), [out.numel()] * group.size()
    else:
        flat, sizes = out.new_empty(0), [0] * group.size()
    return [(out, _exchange(flat, _to_one(given.root_rank, out.numel(), group), sizes, group).reshape(out.shape))]


def _of_all_to_all(given: _Given, group: ProcessGroup) -> Pairs:
    outs, tensors = given.output_tensors, given.input_tensors
    received, sent = [one.numel() for one in outs], [one.numel() for one in tensors]
    return _pieces(_exchange(_flat(tensors), received, sent, group), outs)


def _of_all_to_all_single(given: _Given, group: ProcessGroup) -> Pairs:
    even = [[one.shape[0] // group.size()] * group.size() for one in (given.output, given.input)]
    received, sent = given.output_split_sizes or even[0], given.input_split_sizes or even[1]
    return [(given.output, _exchange(given.input, received, sent, group))]


def _of_barrier(given: _Given, group: ProcessGroup) -> Pairs:
    _all_reduce(given.tensor, "sum", group)
    return ()


_FORMS: dict[str, Callable[[_Given, ProcessGroup], Pairs]] = {
    "broadcast": lambda a, group: [(t, _run("broadcast", t, a.root_rank, group.group_name)) for t in a.tensors],
    "allreduce": _of_all_reduce,
    "allreduce_coalesced": _of_all_reduce,
    "reduce": _of_reduce,
    "allgather": lambda a, group: [
        pair
        for outs, one in zip(a.output_tensors, a.input_tensors, strict=True)
        for pair in _pieces(_gather(one, group), outs)
    ],
    "allgather_base": lambda a, group: _pieces(_gather(a.input_tensor, group), [a.output_tensor]),
    "allgather_into_tensor_coalesced": lambda a, group: [
        (out, _gather(one, group).reshape(out.shape)) for out, one in zip(a.outputs, a.inputs, strict=True)
    ],
    "gather": _of_gather,
    "scatter": _of_scatter,
    "reduce_scatter": lambda a, group: [
        (out, _reduce_scatter(_flat(tensors), a.kind, group).reshape(out.shape))
        for out, tensors in zip(a.output_tensors, a.input_tensors, strict=True)
    ],
    "reduce_scatter_base": lambda a, group: _pieces(_reduce_scatter(a.input_tensor, a.kind, group), [a.output_tensor]),
    "reduce_scatter_tensor_coalesced": lambda a, group: [
        (out, _reduce_scatter(one, a.kind, group).reshape(out.shape))
        for out, one in zip(a.outputs, a.inputs, strict=True)
    ],
    "alltoall": _of_all_to_all,
    "alltoall_base": _of_all_to_all_single,
    "barrier": _of_barrier,
}
