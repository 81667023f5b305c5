"""The lines that treat aliases as eager does: inputs are written back, and outputs that are views are recreated.

Everything known at compile time is decided here, so the generated lines have no branches for it.

Note [Counted before it is saved]
Views of one tensor share a version counter, even without a common element, like the halves of a packed tensor. Eager
writes one half and then saves the other, at the version after the write. Here the call saves first, and the inputs are
written after the graph. So the version counter is bumped for these writes before the call saves, and set back before
they are made: at the end the version is eager's, and it is the version at which the tensors were saved. This is done
only if nothing that is saved overlaps what is written.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from aotviz.ir import graphs, storages
from aotviz.ir.descriptors import PlainInput, RootInput, SyntheticBaseInput
from aotviz.ir.forms import GraphCall, Split
from aotviz.ir.refusals import Refused
from aotviz.ir.spelling import keywords, literal
from aotviz.ir.view_and_mutation import (
    Count,
    Data,
    Hook,
    InputAliasInfo,
    Layout,
    Leave,
    Look,
    Mark,
    Marking,
    Move,
    MutationType,
    OutputAliasInfo,
    OutputType,
    Ref,
    ReplayStep,
    View,
    Write,
    count_writes,
)
from aotviz.runtime import call_differs, edges, gradient_hooks, storage_sizes
from aotviz.runtime.codegen import Source
from aotviz.runtime.cuts import Cut
from aotviz.runtime.early_views import come_first
from aotviz.torch_private import runtime, tensors
from aotviz.tracing import functional
from aotviz.tracing.overlap import overlap

# What a step that only counts writes is for, by the kind of tensor.
_COUNTED = {
    "member": "{} was written through its storage",
    "input": "eager increments the version of {} for a write that does not change its value",
    "view": "eager increments the version of {} separately",
}
_COUNTED_RESULT = "{} was written after these views of it were taken; autograd refuses to use some of them"

# Views whose operator is also a method of the same name and arguments.
_METHODS = frozenset(
    "view select t transpose permute expand unsqueeze squeeze diagonal unbind split split_with_sizes detach "
    "as_strided unfold resize".split()
)


class Epilogue:
    """Writes the lines after the compiled graph. `inputs` are the variables of the graph inputs, `results` of the
    slots."""

    def __init__(self, source: Source, call: GraphCall, cut: Cut | None) -> None:
        self.source, self.call, self.cut, self.infos = source, call, cut, call.meta.input_info
        self.inputs: list[str] = []
        self.results: dict[tuple[str, int], str] = {}
        self.passed: list[str] = []  # the variables of the user's arguments, if they differ from `inputs`
        self._heard, self._kept = (call.hooked_results, call.kept_and_written) if isinstance(call, Split) else ((), ())
        self._variables: dict[Ref, str] = {}
        self._names = {fact.made: str(call.outputs[i]) for i, fact in enumerate(call.meta.output_info) if fact.made}
        self._serves = self._served()
        self._made: dict[int, str] = {}
        self._counts: dict[int, str] = {}  # graph input -> variable with its version before the increments
        self._hooks: dict[int, str] = {}  # graph input -> variable with its hooks from before its metadata ops

    def _served(self) -> dict[Ref, str]:
        """For each tensor that views are taken from, the first output that is made from it."""
        served: dict[Ref, str] = {}
        for step in reversed(self.call.meta.replay):
            names = (self._names.get(target) or served.get(target) for target in step.made)
            if name := next(filter(None, names), ""):
                served[step.source] = name
        return served

    def inputs_needed(self) -> set[int]:
        """Positions of the graph inputs that the lines below use."""
        infos = enumerate(self.infos)
        needed = {i for i, info in infos if info.mutated or info.version_bumps or info.written_parts or info.turned_on}
        refs = [step.source for step in self.call.meta.replay] + [fact.made for fact in self.call.meta.output_info]
        refs += [ref for step in self.call.meta.replay if isinstance(step, Hook) for ref in step.others]
        needed |= {ref.index for ref in refs if ref is not None and ref.kind == "input"}
        needed |= {i for fact in self.call.meta.output_info if (i := self._taken_again_from(fact)) is not None}
        return needed.union(self._counted_and_saved(), self._kept)

    def _of_input(self, i: int, text: str, fact: str) -> None:
        """Write a line about an input: `fact`, with the user's name of it for {}."""
        name = str(self.call.graph_inputs[i])
        self.source.line(text, fact.format(name), name)

    def turn_on(self) -> None:
        """An input that the function turns into a leaf must be one before autograd sees the graph's inputs."""
        for i, info in enumerate(self.infos):
            if info.turned_on:
                self._of_input(i, f"{self.inputs[i]}.requires_grad_()", "the function makes {} require grad")

    def make_room(self) -> None:
        """The graph computes with values, so all of them, and what is written back, need memory as long as it runs."""
        for i, info in enumerate(self.infos):
            if info.storage_bytes is not None:
                text = f"{self.source.use(storage_sizes.make_room)}({self.inputs[i]}, {info.storage_bytes[0]})"
                self._of_input(i, text, "the function resizes the storage of {}")

    def resize_storages(self) -> None:
        """After the writes, which need the memory."""
        for i, info in enumerate(self.infos):
            if info.storage_bytes is not None:
                text = f"{self.inputs[i]}.untyped_storage().resize_({info.storage_bytes[1]})"
                self._of_input(i, text, f"the function leaves the storage of {{}} at {info.storage_bytes[1]} bytes")

    def listen(self) -> None:
        """Remember the hooks on inputs before metadata ops change these. An input that is also written and retains its
        gradient is refused: `copy_` would look for it on the new `grad_fn`."""
        for i, info in enumerate(self.infos if isinstance(self.call, Split) else ()):
            if info.mutates_data and info.mutates_metadata and not (info.is_leaf or info.keeps_hooks):
                refuse = self.source.use(call_differs.refuse_hooked_alias)
                text = f"if {self.inputs[i]}.retains_grad: {refuse}({literal(str(self.call.graph_inputs[i]))})"
                self._of_input(i, text, "{} is changed by a metadata op and written while grad mode is on")
        for i, info in enumerate(self.infos):
            if info.used_before_moving and self.call.meta.grad_enabled:
                edge = self.source.bind("gradient_edge", edges.gradient_edge)
                fact = "{} is used before its shape changes, so its gradient has this shape"
                self._of_input(i, f"{self.source.fresh('used')} = {edge}({self.inputs[i]})", fact)
        for i in (one.ref.index for one in self._heard if one.ref.kind == "input"):
            if self.infos[i].keeps_hooks:
                self._hooks[i] = self.source.fresh("listened")
                listening = self.source.bind("listening_before", gradient_hooks.listening_before)
                fact = "a metadata op changes {}: hooks registered before stay on the grad_fn that it has now"
                self._of_input(i, f"{self._hooks[i]} = {listening}({self.inputs[i]})", fact)

    def announce(self) -> None:
        """Take the views that come first, and bump versions of inputs that are not written after the graph, before the
        graph saves tensors with these counters."""
        for step in self._first:
            self._repeat(step)
        self._count_idle(ending=False)
        for i in self.call.meta.in_graph_mutated_indices:
            counted = int(self.call.options.graph_counts_writes) + self.call.meta.replayed_writes[Ref("input", i)]
            missing = self.infos[i].version_bumps - counted
            fact = "the graph writes {}: autograd has to see the write in its version counter"
            self._bump(Ref("input", i), missing, fact)
        for i, count in self._counted_and_saved().items():
            self._counts[i], ask = self.source.fresh("count"), self.source.bind("write_count", tensors.write_count)
            how = "the writes below also increment the version of {}; in eager they came before it was saved"
            self._of_input(i, f"{self._counts[i]} = {ask}({self.inputs[i]})", how)
            self._bump(Ref("input", i), count, how)

    def _count_idle(self, ending: bool) -> None:
        """Writes that leave an input's value unchanged. `ending`: those that end an autograd graph which needs a
        gradient here."""
        fact = "eager increments the version of {} for writes that do not change its value"
        for i, info in enumerate(self.infos):
            if info.mutation_type is MutationType.NOT_MUTATED and info.version_bumps:
                idle = info.version_bumps - self.call.meta.replayed_writes[Ref("input", i)] - self._counted_in_graph(i)
                if ending == (self._view_of_no_grad_base(self._counter(i)) is not None):
                    self._bump(Ref("input", i), idle, fact)
            elif info.mutation_type is MutationType.NOT_MUTATED and not ending:
                for part, count in self._written_parts(i):
                    self._bump(part, count, fact)

    def _counted_in_graph(self, i: int) -> int:
        """How often an operator that writes a graph input in the graph (`torch.ops.fsdp.copy_`) bumps its version."""
        if not self.call.options.graph_counts_writes or self.call.wrapping is not None:
            return 0
        graph = (self.call.forward_module if isinstance(self.call, Split) else self.call.graph_module).graph
        return len(graphs.fills(graph, graphs.placeholders(graph)[i]))

    def _counted_and_saved(self) -> dict[int, int]:
        """See Note [Counted before it is saved]: maps one input of each such counter to the writes after the graph."""
        later = self._counted_later() if isinstance(self.call, Split) else {}
        if not later:
            return {}
        saved = self._saved_inputs()
        written = [i for i, info in enumerate(self.infos) if info.mutates_data and i in self._written]
        found: dict[int, int] = {}
        for counter, count in later.items():
            held = [i for i in saved if self._counter(i) == counter]
            if held and not any(self._meet(i, other) for i in held for other in written):
                lost = self._view_of_no_grad_base(counter)
                if lost is not None:
                    raise Refused("view whose base does not require grad", repr(str(self.call.graph_inputs[lost])))
                found[held[0]] = count
        return found

    @functools.cached_property
    def _first(self) -> list[ReplayStep]:
        return come_first(self.call, self._counter, self._passed) if isinstance(self.call, Split) else []

    @functools.cached_property
    def _first_writes(self) -> Counter[Ref]:
        return count_writes(self._first)

    def _view_of_no_grad_base(self, counter: int) -> int | None:
        """An input of this counter that gets a gradient and loses its `grad_fn` by a write; see
        tracing/views_of_no_grad_bases.py."""
        if not isinstance(self.call, Split):
            return None
        for i, (gradient, info) in enumerate(zip(self.call.gradients, self.infos, strict=True)):
            if gradient.value is None or info.history_ends or self._counter(i) != counter:
                continue
            value = self.call.args[self._passed(i)[0]]
            if not value.is_leaf and storages.has_no_root(value):
                return i
        return None

    def _counted_later(self) -> Counter[int]:
        """For each version counter, the number of increments after the graph ran."""
        meta = self.call.meta
        later: Counter[int] = Counter()
        for i, info in enumerate(meta.input_info):
            replayed = meta.replayed_writes[Ref("input", i)] - self._first_writes[Ref("input", i)]
            if i in self._written and info.mutation_type is MutationType.MUTATED_OUT_GRAPH:
                bumps = info.version_bumps - self._counted_in_graph(i)
                replayed = max(replayed - 1, bumps)  # the write is one of the steps
            if replayed:
                later[self._counter(i)] += replayed
        for ref, count in meta.replayed_writes.items():
            if ref.kind == "member":
                later[self.call.counter_of[ref.index]] += count
        return later

    @functools.cached_property
    def _written(self) -> set[int]:
        """The graph inputs that are written after the graph."""
        steps = self.call.meta.replay
        return {step.source.index for step in steps if isinstance(step, Write) and step.source.kind == "input"}

    def _saved_inputs(self) -> list[int]:
        """The graph inputs whose memory the backward reads. A part of a subclass has a version counter of its own."""
        assert isinstance(self.call, Split)
        graph, names = self.call.forward_module.graph, {s.name for s in self.call.saved}
        owners = {graphs.owner(node) for node in graph.nodes if node.name in names}
        found = {*self.call.kept, *(k for k, node in enumerate(graphs.placeholders(graph)) if node in owners)}
        return [i for i, parts in enumerate(self.call.input_parts) if len(parts) == 1 and parts[0] in found]

    def _meet(self, one: int, other: int) -> bool:
        """Whether two graph inputs may share an element."""
        pairs = [(self.call.args[i], self.call.args[j]) for i in self._passed(one) for j in self._passed(other)]
        return any(a is b or (functional.storage(a) == functional.storage(b) and overlap(a, b)) for a, b in pairs)

    def _passed(self, i: int) -> list[int]:
        """The flat inputs that a graph input consists of."""
        one = self.call.graph_inputs[i]
        members = one.members if isinstance(one, SyntheticBaseInput | RootInput) else (one,)
        return [member.index for member in members if isinstance(member, PlainInput)]

    def _counter(self, i: int) -> int:
        """The number of a graph input's version counter."""
        passed = self._passed(i)
        return self.call.counter_of[passed[0]] if passed else -1 - i

    def only_writes(self) -> bool:
        """Whether the replay consists only of writes to inputs that autograd does not track."""
        steps, infos = self.call.meta.replay, self.infos
        written = [infos[step.source.index] for step in steps if isinstance(step, Write)]
        others = [step for step in steps if not isinstance(step, Write | Count)]
        return not others and not any(i.requires_grad or i.requires_grad_after for i in written)

    def replay(self) -> None:
        """The user's statements about aliases, in the user's order. Each input is written at the place of its last
        write."""
        self._count_idle(ending=True)
        turned_on = {self._counter(i) for i, info in enumerate(self.infos) if info.turned_on}
        for i, count in self._counts.items():
            counter = self._counter(i)
            text = f"{self.source.use(runtime.set_versions)}(({self.inputs[i]},), ({count},))"
            self._of_input(i, text, "undo the increments above for {}: the writes below make them again")
            for j, info in enumerate(self.infos):
                if (
                    self._counter(j) == counter
                    and info.mutates_metadata
                    and (info.requires_grad or counter in turned_on)
                ):
                    fact = "let autograd read {} at this version, so that it regenerates grad_fn at the next"
                    self._of_input(j, f"{self.inputs[j]}.grad_fn", fact)
        for step in self.call.meta.replay:
            if step not in self._first:
                self._repeat(step)

    def _repeat(self, step: ReplayStep) -> None:
        source, variable, name = self.source, self._variable(step.source), self._name(step.source)
        match step:
            case View() | Data():
                self._view(step)
            case Move():
                self._line(self._applied(variable, step), step, f"{name} changes its shape or strides", name)
            case Mark(how=how):
                on = how is Marking.ON
                fact = "the function makes {} a leaf that requires grad" if on else "{} no longer requires grad"
                source.line(f"{variable}.{how.value}", fact.format(name), name)
            case Hook():
                self._hook(step)
            case Look():
                source.line(f"{variable}.grad_fn", f"reading grad_fn makes autograd regenerate it for {name}", name)
            case Count():
                self._bump(step.source, step.count, _COUNTED.get(step.source.kind, _COUNTED_RESULT))
            case Leave():
                left = self.results[("left", step.source.index)]
                fact = f"{name} is written before it is given another storage"
                source.line(f"{variable}.data.copy_({left})", fact, name)
            case Write(source=Ref(kind="input", index=index)):
                self._write_back(index, self.infos[index], step.shape)
            case Write(value=value):
                fact = f"{name} is a detached alias that was written with gradients"
                source.line(f"{variable}.copy_({self.results[(value.kind, value.index)]})", fact, name)

    def _hook(self, step: Hook) -> None:
        source, refs = self.source, (step.source, *step.others)
        fact = f"the function registers this hook on {' and '.join(map(self._name, refs))}"
        variables = list(map(self._variable, refs))
        for variable in variables:
            # This regenerates the grad_fn of a view. Registering a hook without that crashes the process.
            source.line(f"{variable}.grad_fn", fact)
        waiting = self._waiting()
        for variable, ref in zip(variables, refs, strict=True):
            if ref in waiting:
                source.line(f"{source.bind('hooks_on', gradient_hooks.HooksOfAResult.on)}({variable}, True)", fact)
        if step.method == "register_multi_grad_hook":
            register, mode = source.use(torch.autograd.graph.register_multi_grad_hook), literal(step.args[1])
            hook = source.bind(getattr(step.args[0], "__name__", "hook"), step.args[0])
            source.line(f"{register}([{', '.join(variables)}], {hook}, mode={mode})", fact)
            return
        hook = ", ".join(source.bind(getattr(one, "__name__", "hook"), one) for one in step.args)
        if step.method == "register_hook" and step.source.kind != "input":
            # Several results share the node of the call, and the engine calls this hook even for gradients of others.
            hook = f"{source.use(gradient_hooks.OnlyGradients)}({hook})"
        source.line(f"{variables[0]}.{step.method}({hook})", fact)

    def _variable(self, ref: Ref) -> str:
        if ref.kind == "input":
            return self.inputs[ref.index] + ref.path
        if ref.kind == "member":
            return self.source.members[ref.index]
        if ref.kind == "output":
            return self._output(ref.index)
        return self.results[(ref.kind, ref.index)] if ref.kind == "base" else self._variables[ref]

    def _name(self, ref: Ref) -> str:
        """The user's name of a tensor."""
        if ref.kind == "input":
            return str(self.call.graph_inputs[ref.index]) + ref.path
        if ref.kind == "member":
            return self._variable(ref)
        return self._names.get(ref) or f"a view, {self._variable(ref)},"

    def _view(self, step: View | Data) -> None:
        made, several = step.made, isinstance(step, View) and step.several
        named = [self._names[target] for target in made if target in self._names]
        fact = "a view that the views below are taken from"
        subject = next((self._serves[target] for target in made if target in self._serves), "")
        if named:
            first = next(i for i, fact in enumerate(self.call.meta.output_info) if fact.made in made)
            fact, subject = f"{named[0]} is {self.call.meta.output_info[first].output_type.value}", named[0]
        text = self._applied(self._variable(step.source), step)
        hint = named[0].replace("output", "out") if len(named) == 1 else ("pieces" if several else "view")
        variable = self.source.fresh(hint)
        if step.value is None:
            self._line(f"{variable} = {text}", step, fact, subject)
        else:
            apply = self.source.bind("view_with_history", edges.ViewWithHistory.apply)
            text = f"{apply}({self._variable(step.value)}, lambda: {self._applied(self._variable(step.source), step)})"
            self.source.line(f"{variable} = {text}", f"{subject} comes from a custom autograd.Function", subject)
        for position, target in enumerate(made):
            self._variables[target] = f"{variable}[{position}]" if several else variable

    def _line(self, text: str, step: View | Data | Move, fact: str, subject: str) -> None:
        """A statement, in the modes of the user's statement."""
        mode: Any = None
        if step.inference_mode and not torch.is_inference_mode_enabled():
            mode = torch.inference_mode
        elif step.grad_mode != self.call.meta.grad_enabled:
            mode = torch.enable_grad if step.grad_mode else torch.no_grad
        self.source.line(text if mode is None else f"with {self.source.use(mode)}(): {text}", fact, subject)

    def _applied(self, base: str, step: View | Data | Move) -> str:
        if isinstance(step, Data):
            return f"{base}.data"
        name = step.operator.overloadpacket.__name__
        arguments = [self._argument(value) for value in step.args]
        arguments += keywords((key, self._argument(value)) for key, value in step.kwargs)
        turned_on = step.source.kind == "input" and self.infos[step.source.index].turned_on
        if name == "resize_" and turned_on:  # in eager it did not yet require grad
            return f"{base}.requires_grad_(False).resize_({', '.join(arguments)}).requires_grad_()"
        if name.removesuffix("_") in _METHODS:
            return f"{base}.{name}({', '.join(arguments)})"
        operator = self.source.bind(name + "_op", step.operator)
        return f"{operator}({', '.join([base, *arguments])})"

    def _argument(self, value: Any) -> str:
        if isinstance(value, torch.dtype):
            return self.source.bind(str(value).removeprefix("torch."), value)
        if type(value) is int and value == sys.maxsize:  # of a slice up to the end
            return self.source.bind("end", sys.maxsize)
        try:
            return literal(list(value) if isinstance(value, tuple) else value)
        except TypeError:
            return self.source.bind("value", value)

    def _write_back(self, i: int, info: InputAliasInfo, shape: tuple[int, ...] | None = None) -> None:
        """Metadata first, since the new data has the new shape, unless `shape` is the shape that the input has here."""
        variable, ref = self.inputs[i], Ref("input", i)
        new = self.results.get(("mutation", i), "") + ("" if shape is None else f".view({shape})")
        moved = {step.source for step in self.call.meta.replay if isinstance(step, Move)}
        bumps = self.call.meta.replayed_writes[ref] - 1 + self._counted_in_graph(i)  # it includes this step
        if info.mutates_storage_metadata:
            leaf = isinstance(self.call, Split) and info.requires_grad and info.is_leaf  # `set_` ends its gradients
            if info.assigns_data and info.requires_grad and not leaf:
                looked = "if {} is a view, autograd must regenerate its grad_fn before its storage changes"
                self._of_input(i, f"{variable}.grad_fn", looked)
            assigns = info.assigns_data or leaf
            text = f"{variable}.data = {new}"
            if not assigns:
                text = f"with {self.source.use(torch.no_grad)}(): {variable}.set_({new})"
            self._of_input(i, text, "{} is given another storage")
            bumps += not assigns
        elif info.mutates_metadata and ref not in moved:
            text = f"{variable}.as_strided_({self._layout(info.layout_after, new)})"
            if info.mutations_hidden_from_autograd and info.requires_grad:
                text = f"with {self.source.bind('no_grad', torch.no_grad)}(): {text}"
            self._of_input(i, text, "{} changes its shape or strides")
            bumps += 1
        if info.written_back:
            bumps += self._copy(i, new, counted=info.version_bumps > bumps)
        self._bump(ref, info.version_bumps - bumps, f"eager writes {{}} {info.version_bumps} times")
        for part, count in self._written_parts(i):
            self._bump(part, count - info.written_by_parts, f"eager increments the version of {{}} {count} times")

    def _gives_history(self) -> bool:
        """Whether a write makes an input require grad, and with it perhaps other views of the same tensor."""
        return any(info.mutates_data and info.requires_grad_after and not info.requires_grad for info in self.infos)

    def _written_parts(self, i: int) -> Iterator[tuple[Ref, int]]:
        """(Part, version bumps) of each part of a subclass that is written, without those that a replay makes."""
        for path, count in self.infos[i].written_parts:
            part = Ref("input", i, path)
            yield part, count - self.call.meta.replayed_writes[part]

    def _copy(self, i: int, new: str, counted: bool) -> int:
        """`counted`: whether eager counts this write. Returns the number of version increments made here."""
        variable, info = self.inputs[i], self.infos[i]
        if info.written_by_parts:
            for part, count in self._written_parts(i):
                data = ".detach()" if count else ".data"  # a write to the whole does not bump those of the parts
                text = f"{self._variable(part)}{data}.copy_({new}{part.path})"
                self._of_input(i, text, f"{{}}{part.path} is written")
            return 0
        tracked = info.requires_grad or info.requires_grad_after
        bumps, text, how = 1, f"{variable}.copy_({new})", "{} is written"
        if info.inference:
            bumps, how = 0, "{} is an inference tensor, which is written in inference mode only"
            text = f"with {self.source.use(torch.inference_mode)}(): {text}"
        elif not counted and (info.unseen or not info.requires_grad_after):
            bumps, text, how = 0, f"{variable}.data.copy_({new})", "{} is written through .data"
        elif info.unseen and (tracked or self._gives_history()):
            text = f"{variable}.detach().copy_({new})"
            how += " through a detached alias" if info.mutations_hidden_from_autograd else " under no_grad"
        elif info.requires_grad_after and not self.call.meta.grad_enabled:
            text = f"with {self.source.use(torch.enable_grad)}(): {text}"
            how += " where the function turns grad mode on"
        self._of_input(i, text, how)
        return bumps

    def _bump(self, ref: Ref, count: int, fact: str) -> None:
        """Emit `count` increments, if any, of the version of a tensor. `fact` has {} for its name."""
        if count > 0:
            bump, name = self.source.bind("increment_version", functional.increment_version), self._name(ref)
            self.source.line(f"{bump}(({', '.join([self._variable(ref)] * count)},))", fact.format(name), name)

    def node(self) -> None:
        """Write the line, right after the call, that keeps the autograd node of the call."""
        slots, cut = self._tracked(), self.cut
        if cut is None and len(slots) > 1:
            fact = "if only one of these receives a gradient, hooks on the others are not called"
            self.source.line(f"{self.source.use(gradient_hooks.hear_only_gradients)}({', '.join(slots)})", fact)
        if self._heard:
            text = f"{slots[0]}.grad_fn" if cut is None else f"{self.source.bind('cut', cut)}.node(out)"
            self.source.line(f"node = {text}", "the backward checks these tensors for hooks")

    def _tracked(self) -> list[str]:
        """The results that have the autograd node of the call."""
        slots = enumerate(self.call.slots if isinstance(self.call, Split) else ())
        return [f"out[{k}]" for k, slot in slots if slot.differentiable]

    def hear(self) -> None:
        """Give the backward access to the tensors on which the caller can register hooks."""
        if self._heard:
            wait, listening = self._waiting(), self.source.use(gradient_hooks.Listening)
            given = (f"{self._variable(one.ref)}{self._before(one.ref, wait)}" for one in self._heard)
            listed = "".join(f"{listening}({one}), " for one in given)
            fact = "the backward checks these tensors for hooks"
            self.source.line(f"if node is not None: node.hooked_results = ({listed})", fact)

    def _before(self, ref: Ref, wait: set[Ref]) -> str:
        known = self._hooks.get(ref.index) if ref.kind == "input" else None
        return f", before={known}" if known is not None else ", True" * (ref in wait)

    def watch(self) -> None:
        """Let the backward check whether inputs were written after the call, if it keeps copies of their values."""
        if self._kept and self.call.wrapping is None and self._tracked():
            pairs = [pair for i in self._kept for pair in self._counting(i)]
            listed = "".join(f"({variable}, {literal(name)}), " for variable, name in pairs)
            fact = "in eager, the backward would see later writes to these; here it would not, so it raises"
            self.source.line(f"{self.source.use(call_differs.watch)}({self._tracked()[0]}.grad_fn, ({listed}))", fact)

    def _counting(self, i: int) -> list[tuple[str, str]]:
        """The variables and names of the tensors whose version counters show writes to a graph input. A base
        has none."""
        descriptor = self.call.graph_inputs[i]
        if not isinstance(descriptor, SyntheticBaseInput):
            return [(self.inputs[i], str(descriptor))]
        return [(self.passed[j], str(self.call.descriptors[j])) for j in self._passed(i)]

    def _waiting(self) -> set[Ref]:
        """The results that are views, whose hooks wait for the backward of the call; see Note [A view of a result]."""
        found = {place.ref for place in self.cut.places if place.is_view} if self.cut is not None else set()
        made = (self.call.meta.output_info[ref.index].made for ref in found)
        return found | {ref for ref in made if ref is not None}

    def outputs(self) -> list[str]:
        """One expression per user output."""
        return [self._output(index) for index in range(len(self.call.meta.output_info))]

    def _output(self, index: int) -> str:
        """An output may be made from a later one, so each is created when it is first needed."""
        if index not in self._made:
            self._made[index] = self._make(index, self.call.meta.output_info[index])
        return self._made[index]

    def _make(self, index: int, fact: OutputAliasInfo) -> str:
        name = str(self.call.outputs[index])
        if fact.is_constant:
            return self._constant(fact.constant)
        if fact.same_object_as is not None:
            return self._output(fact.same_object_as)
        if fact.made is not None:
            return self._variable(fact.made)
        own = self.results.get(("output", index))
        assert own is not None, f"{name} is {fact.output_type.name}, so the graph does not return it"
        if (base := self._taken_again_from(fact)) is not None:
            return self._again(base, fact, name, own)
        if fact.new_leaf:
            self.source.line(f"{own}.requires_grad_()", f"the function makes {name} a leaf that requires grad", name)
        if fact.dynamic_dims:
            mark = self.source.use(runtime.mark_dynamic)
            self.source.line(f"{mark}({own}, {sorted(fact.dynamic_dims)})", f"{name} has dynamic sizes", name)
        return own

    def _again(self, i: int, fact: OutputAliasInfo, name: str, own: str) -> str:
        """A view of an input with a symbolic size: it gets the layout of the graph's result."""
        variable = self.source.fresh(name.replace("output", "out"))
        text = f"{self.inputs[i]}.as_strided({self._layout(fact.layout, own)})"
        if not fact.requires_grad and self.infos[i].requires_grad_after:
            text += ".detach()"
        self.source.line(f"{variable} = {text}", f"{name} is {fact.output_type.value}", name)
        return variable

    @staticmethod
    def _taken_again_from(fact: OutputAliasInfo) -> int | None:
        """The input that an output is a view of, if no step of the replay creates this view."""
        again = fact.output_type is OutputType.alias_of_input and fact.made is None and fact.same_object_as is None
        return fact.base_index if again else None

    def _constant(self, value: Any) -> str:
        if value is None or type(value) in (bool, int, str):  # not an IntEnum, whose `repr` is not Python
            return repr(value)
        return self.source.bind("constant", value)

    def _layout(self, where: Layout | None, own: str) -> str:
        if where is not None and where.concrete:
            return f"{where.size}, {where.stride}, {where.offset}"
        return f"{own}.size(), {own}.stride(), {own}.storage_offset()"
