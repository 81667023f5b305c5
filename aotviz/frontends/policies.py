"""`aotviz.policy`: a partitioner that follows a table: which values are saved, recomputed, or kept on the CPU.

A rule's pattern names values by their module, their operator or their size; the first rule that matches decides, and
another partitioner decides about the rest. The decisions become the tags of torch's selective checkpointing, so torch's
partitioners carry them out. What passes from one matching module to the next one is saved, as with one
`torch.utils.checkpoint` per module. A view follows the value that it is a view of.

What draws random numbers draws the same ones again, because its random state is saved; where that is not possible (a
generator of the user's), and where running twice would have an effect twice, the value is saved.
"""

from __future__ import annotations

import fnmatch
import itertools
import operator
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, overload

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from aotviz.frontends.scheduled import Scheduled
from aotviz.ir import graphs
from aotviz.ir.partition_functions import Halves, draws, has_state, is_backwards, must_save, named
from aotviz.recording.peak_changes import Change
from aotviz.recording.sources import module_path
from aotviz.torch_private import operators
from aotviz.torch_private.partitioners import is_offloaded, offloading, saving_what_must_be
from aotviz.torch_private.pytree import tree_leaves

ACTIONS = ("save", "recompute", "offload")
_SIZE = re.compile(r"(?P<sign>[<>]=?) *(?P<number>\d{1,12}(?:\.\d{1,6})?) *(?P<unit>[KMGT]?)i?B?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OPERATOR = re.compile(r"(?:aten|prims|higher_order)\.|.+::")
ON_THE_CPU = ", but it is on the CPU already"  # the end of a reason
_MOST_NAMED = 6  # module paths in a message


@overload
def policy(rules: Mapping[str, str], otherwise: str | None = None) -> Policy: ...


@overload
def policy(rules: Change, otherwise: str | Callable[..., Any] | None = None) -> Scheduled: ...


def policy(rules: Mapping[str, str] | Change, otherwise: Any = None) -> Policy | Scheduled:
    """A partitioner that follows a table of rules, for `partition_fn=` of `aotviz.compile` and the others.

    Args:
        rules: pattern -> "save", "recompute" or "offload"; the first that matches a value decides. A pattern is a
            module's path ("*.attn.*", "h.0", "layers.*"), an operator ("aten.gelu", "mylib::op"), or a size in bytes
            (">= 1 MiB"). `*` stands for any text, dots included. For a module, what is inside of it counts too.
            Or a change of `peak_changes()` that is a schedule: "recompute", "checkpoint" or "reorder".
        otherwise: the partitioner for all other values: "default" (save what the backward reads; this if None) or
            "min-cut". For a change, the one of the program that it was computed for, if None.

    "recompute" recomputes each matching module by itself, and saves what goes into it. "offload" moves a saved value to
    the CPU after its last use in the forward, and back before its first in the backward; a value that is on the CPU
    already is saved there, and a warning says so if nothing moves. A value that a
    `torch.utils.checkpoint` decides about is left to that. If no rule matches any value of a graph, a warning says so.

    Raises:
        ValueError: there is no such action, or no such partitioner; the change is no schedule. When it partitions: the
            change is of another program.

    >>> import torch
    >>> import aotviz
    >>> rules = aotviz.policy({"aten.tanh": "recompute"})
    >>> f = aotviz.compile(lambda x: x.sin().tanh().sum(), backend="eager", partition_fn=rules)
    >>> f(torch.ones(3, requires_grad=True)).backward()
    >>> f.recording[0].recomputed.name.tolist(), f.recording[0].saved_tensors.name.tolist()
    (['tanh', 'detach'], ['primals_1', 'sin'])
    """
    if isinstance(rules, Change):
        if rules.schedule is None:
            raise ValueError(
                f"{rules.name!r} is a change of the calling code, which no partitioner can make: {rules.what}"
            )
        return Scheduled(rules.name, rules.schedule, named(otherwise or rules.partitioner))
    for pattern, action in rules.items():
        if action not in ACTIONS:
            raise ValueError(f"the policy for {pattern!r} is {action!r}; it can be {', '.join(map(repr, ACTIONS))}")
    named(otherwise or "default")
    return Policy(tuple(rules.items()), otherwise or "default")


@dataclass(frozen=True)
class Policy:
    """What `policy` returns. Its content is part of the key of the cache."""

    rules: tuple[tuple[str, str], ...]  # (pattern, action)
    otherwise: str

    @property
    def __name__(self) -> str:
        rules = ", ".join(f"{pattern}: {action}" for pattern, action in self.rules)
        return f"policy {rules}" + (f"; otherwise {self.otherwise}" if self.otherwise != "default" else "")

    def __repr__(self) -> str:
        return f"<aotviz {self.__name__}>"

    def __call__(self, joint: fx.GraphModule, joint_inputs: Any, **others: Any) -> Halves:
        """Partition a joint graph, as torch's partitioners do."""
        decided = dict(self._decisions(joint.graph))
        if not decided:
            self._warn(joint.graph)
        regions = itertools.count(1 + max((n.meta.get("ac_graph_id", 0) for n in joint.graph.nodes), default=0))
        numbers = defaultdict[str, int](regions.__next__)  # of modules that are recomputed, in order of their beginning
        for node, decision in decided.items():
            _tag(joint, node, decision)
            if node.meta["recompute"] == CheckpointPolicy.MUST_RECOMPUTE and decision.module is not None:
                node.meta["ac_graph_id"] = numbers[decision.module]
        partition = named(self.otherwise)
        offloads = any(one.action == "offload" for one in decided.values())
        with offloading(offloads), saving_what_must_be(joint.graph):
            halves: Halves = partition(joint, joint_inputs, **others)
        if offloads:
            self._tell_what_moves(halves[0].graph, others["num_fwd_outputs"])
        return halves

    def _tell_what_moves(self, forward: fx.Graph, results: int) -> None:
        """Say in the reasons of saved values which are moved, and which stay and why. Torch decides; it only logs."""
        returned = graphs.outputs(forward)
        moved = stays = 0
        for node in returned[results:]:
            if is_offloaded(node):
                node.meta["policy"], moved = node.args[0].meta["policy"], moved + 1
            elif node.meta.get("should_offload"):
                node.meta["policy"] += f", but torch leaves it on its device: {_why_it_stays(node, returned[:results])}"
            elif str(node.meta.get("policy")).endswith(ON_THE_CPU):
                stays += 1
        if stays and not moved:
            warnings.warn(
                f"aotviz.policy: 'offload' moves nothing here, because the values are on the CPU already "
                f"({stays} of them, which are saved there). It moves values from an accelerator.",
                stacklevel=3,
            )

    def _decisions(self, graph: fx.Graph) -> Iterator[tuple[fx.Node, _Decision]]:
        """What is decided about each value of the forward that a rule matches."""
        for node in graph.nodes:
            if node.op != "call_function" or "recompute" in node.meta or is_backwards(node):
                continue
            if not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)):
                continue
            source = _source(node)
            if source.op != "call_function":
                continue
            made = (_Decision.of(pattern, action, source) for pattern, action in self.rules)
            found = next((one for one in made if one is not None), None)
            if found is not None:
                yield node, found

    def _warn(self, graph: fx.Graph) -> None:
        paths = dict.fromkeys(path for node in graph.nodes if not is_backwards(node) if (path := _module(node)))
        some = ", ".join(itertools.islice(paths, _MOST_NAMED))
        modules = f" Modules in it: {some}." if some else " It has no modules."
        patterns = ", ".join(repr(pattern) for pattern, _ in self.rules)
        warnings.warn(f"aotviz.policy: no value of this graph matches {patterns}.{modules}", stacklevel=3)


@dataclass(frozen=True)
class _Decision:
    action: str
    pattern: str
    module: str | None  # the module that matched, if the pattern is one

    @classmethod
    def of(cls, pattern: str, action: str, node: fx.Node) -> _Decision | None:
        """What a rule decides about a node; None if its pattern does not match."""
        size = _SIZE.fullmatch(pattern.strip())
        if size is not None:
            known = [nbytes for one in tree_leaves(node.meta["val"]) if (nbytes := graphs.nbytes(one)) is not None]
            return cls(action, pattern, None) if known and _compares(max(known), size) else None
        if _OPERATOR.match(pattern):
            name, dotted = str(node.target), pattern.replace("::", ".")
            matched = any(fnmatch.fnmatchcase(one, dotted) for one in (name, name.rpartition(".")[0]))
            return cls(action, pattern, None) if matched else None
        parts = _module(node).split(".")
        for i in range(len(parts)):
            prefix = ".".join(parts[: i + 1])
            if any(fnmatch.fnmatchcase(one, pattern) for one in (prefix, f"{prefix}.", f".{prefix}.")):
                each = pattern.endswith(".*") and parts[i + 1 : i + 2]  # of the modules in a list
                return cls(action, pattern, ".".join([prefix, *each]) if each and each[0].isdigit() else prefix)
        return None


def _compares(nbytes: int, size: re.Match[str]) -> bool:
    limit = float(size["number"]) * _UNITS[size["unit"]]
    less, equal = size["sign"].startswith("<"), size["sign"].endswith("=")
    return (nbytes < limit if less else nbytes > limit) or (equal and nbytes == limit)


def _tag(joint: fx.GraphModule, node: fx.Node, decision: _Decision) -> None:
    """Put a decision on a node, in torch's words."""
    source = _source(node)
    has_effects = source.is_impure() and not operators.is_random(source.target)
    runs_once = has_effects or (draws(joint, source) and not has_state(source))
    node.meta["policy"] = f"your policy: {decision.pattern!r}: {decision.action!r}"
    if decision.action == "recompute" and not runs_once:
        node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
        return
    if decision.action == "recompute":
        node.meta["policy"] += ", but it cannot run twice with the same result"
    must_save(node)
    if decision.action == "offload":
        if all(one.device.type == "cpu" for one in tree_leaves(node.meta["val"]) if isinstance(one, torch.Tensor)):
            node.meta["policy"] += ON_THE_CPU
        else:
            node.meta["should_offload"] = True


def _why_it_stays(node: fx.Node, results: Any) -> str:
    """Why torch does not move a saved value to the CPU (`can_offload` of its activation offloading)."""
    if node in results:
        return "the function returns it"
    if node.target is operator.getitem:
        return "it is one of several results of an operator"
    if not node.meta["val"].is_contiguous():
        return "it is not contiguous"
    return "it is a view, or a static input"


def _source(node: fx.Node) -> fx.Node:
    """The node that computes a value: not a view of it, nor the item of a tuple."""
    source = graphs.owner(node)
    while source.target is operator.getitem:
        source = source.args[0]
    return source


def _module(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    return module_path(str(entries[-1][0])) if entries else ""
