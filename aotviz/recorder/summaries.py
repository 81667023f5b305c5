"""What a stage changed, in one sentence, derived from its argument and its result.

Stages do not describe themselves, so the sentence always agrees with the forms, and a new stage has one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from aotviz.ir.forms import FlatCall, Form, JointCall, LoweredBackward, Request, Split, TracedCall
from aotviz.ir.view_and_mutation import OutputType
from aotviz.recorder.records import nbytes, storage
from aotviz.recording.sizes import counted, kept
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit, Program
from aotviz.torch_private.inductor_results import generated_code, kernel_nodes, replayed_ns
from aotviz.whole_backward.captured import BackwardCall, ReplayedBackward, WholeBackward

Counts = Mapping[str, int]  # role -> nodes
MOST_CODE = 2_000_000  # characters of Inductor's code that are kept of one graph


def changed(argument: Form, result: Form) -> bool:
    """Whether the result differs from the argument, apart from reasons."""
    if type(argument) is not type(result):
        return True
    names = (field.name for field in fields(result) if field.name not in ("evidence", "options"))
    return any(getattr(argument, name) is not getattr(result, name) for name in names)


def summary(argument: Form, result: Form, before: Counts, after: Counts, same_graphs: bool) -> str:
    """One sentence; the graph's sizes come last."""
    if not changed(argument, result):
        return "nothing to do"
    parts = [part for part in (_facts(argument, result), _graphs(before, after, same_graphs)) if part]
    return "; ".join(parts) or f"the {'graph' if after else 'call'} is unchanged"


def because(argument: Form) -> tuple[str, ...]:
    """Why each program that existed before does not do, the newest first, as the first form of a compilation says."""
    if isinstance(argument, Request):
        return tuple(reason.text for reason in argument.evidence)
    return argument.because if isinstance(argument, BackwardCall) else ()


def _facts(argument: Form, result: Form) -> str:
    if isinstance(result, (Program, ReplayedBackward)):
        return f"a wrapper of {counted(len(result.source.splitlines()), 'line')}"
    if isinstance(argument, BackwardCall) and isinstance(result, WholeBackward):
        return f"{counted(len(result.visits) - 1, 'autograd node')} captured"
    if isinstance(result, (LoweredSplit, LoweredGraph)):
        later = "; the backward is compiled when it is first needed" if isinstance(result, LoweredSplit) else ""
        return f"compiled by {result.options.backend}{later}"
    if isinstance(result, LoweredBackward):
        return f"compiled by {result.options.backend}: {result.request.reason}"
    if isinstance(result, Split):
        return _saved(argument, result)
    if isinstance(result, JointCall) and not isinstance(argument, JointCall):
        return f"gradients traced for {counted(len(result.tangents), 'tangent')}"
    if isinstance(result, TracedCall):
        return _calls(argument, result)
    if isinstance(result, FlatCall):
        kinds = Counter(
            type(d).__name__.removesuffix("Input").replace("Plain", "argument").lower() for d in result.descriptors
        )
        return f"{counted(len(result.args), 'flat input')}: " + ", ".join(counted(n, kind) for kind, n in kinds.items())
    return ""


def _calls(argument: Form, result: TracedCall) -> str:
    """What was learned about a call, or how its calling convention changed."""
    if not isinstance(argument, TracedCall):
        mutated = sum(info.mutated for info in result.meta.input_info)
        aliases = sum(info.output_type is not OutputType.non_alias for info in result.meta.output_info)
        return (
            f"{counted(mutated, 'mutated input')}, {counted(len(result.outputs), 'output')}"
            f"{f' ({aliases} aliased)' if aliases else ''}"
        )
    if len(result.graph_inputs) != len(argument.graph_inputs) or len(result.rewrites) != len(argument.rewrites):
        return f"{len(argument.graph_inputs)} to {counted(len(result.graph_inputs), 'graph input')}"
    return ""


def _saved(argument: Form, result: Split) -> str:
    if isinstance(argument, Split):
        packed = sum(saved.hook != "" for saved in result.saved)
        if packed > sum(saved.hook != "" for saved in argument.saved):
            return f"{packed} of {counted(len(result.saved), 'saved value')} packed by a saved tensor hook"
        donated = sum(saved.donated for saved in result.saved)
        return f"{donated} of {counted(len(result.saved), 'saved value')} donated to the backward"
    inputs = [node for node in result.forward_module.graph.nodes if node.op == "placeholder"]
    names, memory = {node.name for node in inputs}, {storage(node.meta.get("val")) for node in inputs} - {None}
    found: list[int | None] = []
    seen: set[int] = set()  # storages: values in one count once
    for saved in result.saved:
        key = storage(saved.value)
        if saved.name in names or key in memory:
            continue
        if saved.is_symbol or key in seen:
            found.append(0)
        else:
            found.append(nbytes(saved.value))
            seen |= set() if key is None else {key}
    return kept(found, len(result.saved) - len(found))


def _graphs(before: Counts, after: Counts, same: bool) -> str:
    """E.g. "joint: 442 to 430 nodes", "joint of 442 nodes cut into forward 254, backward 265"."""
    if not after or same:
        return ""
    if before.keys() == after.keys():
        return ", ".join(f"{role}: {before[role]:,} to {counted(after[role], 'node')}" for role in after)
    now = ", ".join(f"{role} {count:,}" for role, count in after.items())
    if not before:
        return f"graph: {now} {_nodes(after)}"
    return f"{', '.join(f'{role} {count:,}' for role, count in before.items())} {_nodes(before)} to {now}"


def _nodes(counts: Counts) -> str:
    return "node" if [*counts.values()][-1] == 1 else "nodes"


def texts(form: Form) -> dict[str, str]:
    """The form's other texts by name, e.g. the wrapper's source, or what Inductor wrote for a graph.

    Inductor's code is cut off at MOST_CODE characters.
    """
    named = {str(name): str(text) for name, text in _mapping(form, "texts").items()}
    for role, compiled in _compiled(form).items():
        code = generated_code(compiled)
        if len(code) > MOST_CODE:
            code = f"{code[:MOST_CODE]}\n# ... {len(code) - MOST_CODE:,} more characters are not recorded"
        if code:
            named[_inductor(role)] = code
    return named


def kernels(form: Form) -> dict[str, dict[str, list[str]]]:
    """The nodes that each kernel call computes, by the name of the calling text (StageRecord.kernels)."""
    named = {_inductor(role): kernel_nodes(compiled) for role, compiled in _compiled(form).items()}
    return {name: nodes for name, nodes in named.items() if nodes}


def replays(form: Form) -> dict[str, int]:
    """The graphs that Inductor found in its cache, by role (StageRecord.replays)."""
    took = {role: replayed_ns(compiled) for role, compiled in _compiled(form).items()}
    return {role: ns for role, ns in took.items() if ns is not None}


def _inductor(role: str) -> str:
    return f"inductor {role}"


def _compiled(form: Form) -> dict[str, Any]:
    """The compiler's result for each graph, by role."""
    if isinstance(form, LoweredSplit):
        return {"forward": form.compiled_forward}
    if isinstance(form, LoweredGraph):
        return {"inference": form.compiled_forward}
    return {"backward": form.compiled} if isinstance(form, LoweredBackward) else {}


def graphs(form: Form) -> dict[str, Any]:
    return dict(_mapping(form, "graphs"))


def _mapping(form: Form, name: str) -> Mapping[str, Any]:
    found = getattr(form, name, {})
    return found if isinstance(found, Mapping) else {}
