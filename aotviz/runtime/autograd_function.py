"""The lines of the generated `autograd.Function` (docs/design/system.md E3).

Its forward runs the compiled forward and keeps what the backward needs. Its backward brings the incoming gradients into
the layout that the backward was compiled for, and runs it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Sequence
from itertools import groupby

import torch

from aotviz.ir import graphs
from aotviz.ir.absent import is_tangent, runs, tangent_number
from aotviz.ir.forms import Slot
from aotviz.ir.spelling import literal
from aotviz.ir.view_and_mutation import TensorAlias
from aotviz.runtime import (
    call_differs,
    cuts,
    double_backward,
    edges,
    gradient_hooks,
    partial_backward,
    returned,
    tangents,
    unreached_inputs,
)
from aotviz.runtime.captured_backward import capturable
from aotviz.runtime.codegen import Source
from aotviz.runtime.insides import Insides
from aotviz.runtime.lowered import LoweredSplit
from aotviz.torch_private import runtime
from aotviz.torch_private.tensors import write_count
from aotviz.tracing.kept_by_name import stands_for
from aotviz.tracing.saved_values import saved_results

# The reasons for lines that every such class has. They are notes only, not comments in the source.
_SEEN = "autograd sees the whole call as this one function with one backward"
_BOXED = "`gradients` is a list that may be emptied"
_FORWARD = "autograd runs this at the call, and keeps `ctx` for the backward"
_RUNS = "the compiled forward graph returns its outputs, followed by what the backward needs"
_NO_ZEROS = "the gradient of a non-differentiable output is None, not zeros"
_BACKWARD = "autograd runs this with one gradient per output, or None"
_UNPACKED = "unpacking checks that these were not written since the forward"
_ORDER = "the inputs of the backward graph, in its order"
_FREED = "only the list may keep these alive, so that the graph can free them"
_LAZY = "the backward is compiled when it is first needed"
_GRADIENTS = "the compiled backward graph"
_RETURNED = "one gradient per input of the forward, or None"
_APPLY = "how the wrapper calls it"

# The reasons why a saved tensor is not saved as the graph returns it.
_NO_VIEWS = "saving a view would keep its base alive, and with it a reference cycle"
_NO_INFERENCE = "autograd saves no inference tensors, and nothing would notice a write to one"
_AS_RETURNED = "this is also an output; a second derivative needs that output's grad_fn"
_WRITES = "the backward writes these"
_OF_INPUTS = "the call writes this value to the input, whose later writes the backward sees"
_VARYING = "a captured backward, or a compiled hook, has these sizes symbolic from the first time"
_AS_IT_IS = "a custom autograd.Function stores these as attributes of ctx; its backward sees later writes to them"


def _positions(numbers: Sequence[int]) -> str:
    """Ascending numbers as an expression to loop over; runs of consecutive numbers become ranges.

    >>> _positions([0, 1]), _positions([0, 1, 2, 3]), _positions([0, 4, 5, 6, 7, 9])
    ('(0, 1)', 'range(4)', '(0, *range(4, 8), 9)')
    """
    parts: list[str] = []
    for run in runs(numbers):
        start = f"{run[0]}, " if run[0] else ""
        parts += [f"range({start}{run[-1] + 1})"] if len(run) > 3 else map(str, run)
    if len(parts) == 1:
        return f"({parts[0]},)" if parts[0].isdigit() else parts[0]
    return f"({', '.join(part if part.isdigit() else f'*{part}' for part in parts)})"


class Writer:
    """Writes the class of one program."""

    def __init__(self, source: Source, lowered: LoweredSplit, label: str) -> None:
        call = lowered.call
        self.source, self.lowered, self.call, self.label = source, lowered, call, label
        self.insides = None if call.wrapping is None else Insides(source, call, call.wrapping, label)
        self.outer = call.outer
        self.count = len(call.slots)
        self.tensors = call.saved_tensor_count
        self.symbols = len(call.saved) - self.tensors

    def write(self) -> str:
        """Returns the name of the class's `apply`."""
        source = self.source
        name = source.fresh(f"{self.label}_autograd")
        function = source.bind("Function", capturable(self.lowered))
        with source.block(f"class {name}({function}):", _SEEN, comment=False):
            if runtime.HAS_BOXED_GRADIENTS:
                text = "boxed_grads_call = True  # `gradients` is a list that may be emptied"
                source.line(text, _BOXED, comment=False)
                source.blank()
            source.line("@staticmethod")
            with source.block("def forward(ctx, *inputs):", _FORWARD, comment=False):
                self._forward()
            source.blank()
            source.line("@staticmethod")
            arguments = "gradients" if runtime.HAS_BOXED_GRADIENTS else "*gradients"
            with source.block(f"def backward(ctx, {arguments}):", _BACKWARD, comment=False):
                self._backward()
        source.blank()
        source.blank()
        apply = source.fresh("apply")
        source.line(f"{apply} = {source.use(runtime.raw_apply)}({name})", _APPLY, comment=False)
        source.blank()
        source.blank()
        return apply

    def _forward(self) -> None:
        source, call = self.source, self.call
        compiled = source.bind("compiled_forward", self.lowered.compiled_forward)
        arguments = "*inputs" if self.insides is None else self.insides.arguments()
        if self.lowered.generators is not None:
            generators = source.bind("generators", self.lowered.generators)
            fact = "the backward recomputes random nodes from the same generator states"
            source.line(f"ctx.random, random = {generators}.forward()", fact)
            arguments += ", *random"
        source.line(f"out = {compiled}([{arguments}])", _RUNS, comment=False)
        returned.versions(source, call)
        whole = [f"out[{i}]" for i in range(self.count)] if self.insides is None else self.insides.results()
        self._save([] if self.insides is None else self.insides.kept_with_parts())
        slots = list(zip(self.outer.slots, whole, strict=True))
        values = [self._value(slot, value) for slot, value in slots]
        constant = [v for v, (slot, _) in zip(values, slots, strict=True) if self._non_differentiable(slot)]
        if constant:
            source.line(f"ctx.mark_non_differentiable({', '.join(constant)})", "these outputs do not require grad")
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("ctx._materialize_non_diff_grads = False", _NO_ZEROS, comment=False)
        source.line("ctx.set_materialize_grads(False)", "the gradient of an unused output is None, not zeros")
        alias = source.bind("TensorAlias", TensorAlias) if any(slot.hidden for slot, _ in slots) else ""
        listed = [f"{alias}({v})" if slot.hidden else v for v, (slot, _) in zip(values, slots, strict=True)]
        text = f"return ({', '.join(listed)},)" if listed else "return ()"
        source.line(text, "only the graph's own outputs; saved values are not returned", comment=False)

    def _save(self, wholes: list[str]) -> None:
        source = self.source
        first, last = self.count, self.count + self.tensors
        tensors, as_returned = self.call.saved[: self.tensors], saved_results(self.call)
        returned = {i: slot for i, slot in as_returned.items() if tensors[i].is_view}
        views = [i for i, saved in enumerate(tensors) if saved.is_view and i not in returned]
        written = self._written_unchecked()
        unchecked = [i for i, saved in enumerate(tensors) if not saved.checked and i not in written]
        of_inputs = {i: k for i in unchecked if (k := self._input_with(tensors[i].name)) is not None}
        inference = [i for i, saved in enumerate(tensors) if saved.inference]
        changes = []
        if inference:
            changes.append((_NO_INFERENCE, [f"for i in {_positions(inference)}: saved[i] = saved[i].clone()"]))
        if views:
            each = "    if saved[i] is not None and saved[i]._is_view(): saved[i] = saved[i].detach()"
            changes.append((_NO_VIEWS, [f"for i in {_positions(views)}:", each]))
        if returned:
            changes.append((_AS_RETURNED, [f"saved[{i}] = out[{slot}]" for i, slot in returned.items()]))
        if of_inputs:
            parts = self._graph_inputs(of_inputs.values())
            changes.append((_OF_INPUTS, [f"saved[{i}] = {parts[k]}" for i, k in of_inputs.items()]))
        if unchecked:
            changes.append((_AS_IT_IS, [f"for i in {_positions(unchecked)}: saved[i] = saved[i].data"]))
        if written:
            changes.append((_WRITES, [f"for i in {_positions(list(written))}: saved[i] = None"]))
        kept = f"*out[{first}:{last}]"
        if changes:
            source.line(f"saved = [{kept}]", changes[0][0])
            kept = "*saved"
        for fact, lines in changes:
            for line in lines:
                source.line(line, fact)
        varying = [(i, dims) for i, saved in enumerate(tensors) if (dims := saved.varying_dims)]
        if varying:
            where, start = ("saved", 0) if changes else ("out", first)
            marks = tuple((start + i, dims) for i, dims in varying)
            source.line(f"{source.use(runtime.mark_saved)}({where}, {literal(marks)})", _VARYING)
        if self.tensors:
            source.line(f"ctx.save_for_backward({', '.join([kept, *wholes])})", "the backward needs these")
        if self.symbols:
            source.line(f"ctx.symbols = out[{last}:]", "the backward needs these sizes")
        dynamic = filter(partial_backward.is_dynamic, self.call.tangents)
        if shapes := "".join(f"out[{tangent.slot}].shape, " for tangent in dynamic):
            source.line(f"ctx.shapes = ({shapes})", "a missing gradient is zeros of this shape")
        self._hold()

    def _written_unchecked(self) -> dict[int, int]:
        """Saved tensors that the backward writes and that have no version check -> their places in `ctx.written`. Each
        backward writes them again, so autograd must not compare their versions."""
        names = [node.name for node in graphs.placeholders(self.call.forward_module.graph)]
        inside = self.call.input_parts
        places = {names[inside[i][0]]: place for place, (i, _) in enumerate(self.call.late_writes)}
        tensors = enumerate(self.call.saved[: self.tensors])
        return {i: places[one.name] for i, one in tensors if not one.checked and one.name in places}

    def _graph_inputs(self, positions: Iterable[int]) -> dict[int, str]:
        """The expressions of some inputs of the graph, which are parts where the call has subclasses."""
        return {i: f"inputs[{i}]" if self.insides is None else self.insides.parts[i] for i in positions}

    def _input_with(self, name: str) -> int | None:
        """The input that has the saved value `name` after the call."""
        graph = self.call.forward_module.graph
        inputs, returned = graphs.placeholders(graph), zip(self.call.slots, graphs.outputs(graph), strict=False)
        written = [(slot.index, node) for slot, node in returned if slot.kind == "mutation"]
        inside = filter(graphs.is_input_mutation, graph.nodes)
        written += [(inputs.index(graphs.argument(node)), node.args[1]) for node in inside]
        found = ((i, node) for i, node in written if getattr(graphs.owner(node), "name", None) == name)
        return next((i for i, node in found if stands_for(node, inputs[i].meta["val"])), None)

    def _hold(self) -> None:
        """Keep what only a second differentiation needs; none of it costs memory that eager would not use."""
        source, call = self.source, self.call
        if edged := self.lowered.with_history.edged:
            fact = "with create_graph=True, gradients flow on to these; only the gradient edge is kept, not the memory"
            source.line(f"ctx.edges = ({', '.join(map(self._edge, edged))},)", fact)
        partly = unreached_inputs.partly_reached(call)  # leaves too: a later call may pass a tensor that is not a leaf
        if partly:
            fact = "hooks on these are not called if they receive no gradient"
            source.line(f"ctx.partly = ({''.join(f'{source.use(weakref.ref)}(inputs[{i}]), ' for i in partly)})", fact)
            fact = "hooks registered before the call belong to the grad_fn of that time, and outlive the tensors"
            listed = ", ".join(f"inputs[{i}]" for i in partly)
            source.line(f"ctx.hooks = {source.use(gradient_hooks.hooks_on)}({listed})", fact)
        if call.late_writes:
            fact = _WRITES
            source.line(f"ctx.written = ({''.join(f'inputs[{i}], ' for i, _ in call.late_writes)})", fact)
        if call.kept:
            fact = "a second derivative needs these"
            keep = source.bind("Kept", double_backward.Kept)
            parts = self._graph_inputs(call.kept)
            kept = [*(parts[i] for i in call.kept), *(f"inputs[{i}]" for i in self.lowered.with_history.owners)]
            source.line(f"ctx.kept = {keep}({', '.join(kept)})", fact)

    def _edge(self, index: int) -> str:
        """The gradient edge of an input. Autograd knows that of a leaf, but a later call may pass another tensor."""
        edge = f"{self.source.use(edges.edge_of)}(inputs[{index}])"
        is_leaf = self.outer.meta.input_info[index].is_leaf
        return f"{edge} if inputs[{index}].grad_fn is not None else None" if is_leaf else edge

    def _non_differentiable(self, slot: Slot) -> bool:
        if slot.hidden or slot.differentiable:
            return False
        if slot.kind == "output":
            return self.outer.meta.output_info[slot.index].layout is not None
        return True

    def _value(self, slot: Slot, value: str) -> str:
        if returned.is_returned_view(self.call, slot, value):
            why = "the graph returns a view here; without detach(), autograd would treat the output as a view and "
            why += "forbid writes to it"
        elif returned.is_returned_before(self.call, self.outer, slot, value):
            why = "the compiler removed a view that changes nothing; autograd needs a tensor for each output"
        else:
            return value
        variable = self.source.fresh("own")
        self.source.line(f"{variable} = {value}.detach()", why)
        return variable

    def _backward(self) -> None:
        source, call = self.source, self.call
        heard = [(i, one, cuts.why_whole(call, one)) for i, one in enumerate(call.hooked_results) if one.slots]
        passed = tuple((i, call.called(one.ref), one.slots, why) for i, one, why in heard if why)
        if passed:
            fact = "raise if one of these has a hook: it would miss gradients that flow inside the graph"
            source.line(
                f"{source.use(call_differs.refuse_hooks)}(ctx.hooked_results, {literal(passed)}, gradients)", fact
            )
        if call.kept_and_written and self.insides is None:
            refuse = source.use(call_differs.refuse_written)
            fact = "raise if one of these was written since: the backward has a copy from before"
            source.line(f"{refuse}(getattr(ctx, 'watched', ()), {literal(call.name)})", fact)
        if call.reshaped and self.insides is None:
            tensors = [i for i, info in enumerate(call.meta.input_info) if info.is_tensor]
            leaves = tuple((tensors.index(i), str(call.graph_inputs[i])) for i in call.reshaped)
            why = "its gradient would have the shape from before the call"
            fact = f"raise if torch.autograd.grad asks for this leaf: {why}"
            source.line(f"{source.use(call_differs.refuse_reshaped)}(ctx, {literal(leaves)})", fact)
        names = whole = self._tangents()
        if self.insides is not None:
            self.insides.wrapping.expect_tangents(source, names)
        else:
            for name, tangent in zip(names, call.tangents, strict=True):
                tangents.expect_plain(source, name, str(call.slots[tangent.slot].descriptor))
        if call.late_writes:
            refuse = source.use(call_differs.refuse_late_writes)
            named = ", ".join(str(call.graph_inputs[i]) for i, _ in call.late_writes)
            source.line(
                f"{refuse}(ctx, {literal(named)})", f"this backward writes {named}, as in eager if it runs whole"
            )
        self._differentiable(names)
        if self.insides is not None:
            names = self.insides.tangents(names)
        if not call.meta.deterministic and call.options.backend != "eager":  # eager's operators check it themselves
            deterministic = source.bind("deterministic", torch.are_deterministic_algorithms_enabled)
            refuse = source.use(call_differs.refuse_deterministic)
            fact = "compiled without deterministic algorithms, so it may contain nondeterministic ones"
            source.line(f"if {deterministic}(): {refuse}({self.outer.name!r})", fact)
        self._partial(names, whole)
        if self.tensors:
            explained = source.bind("written_since", call_differs.WrittenSince.of(call))
            wholes = self.insides is not None and self.insides.kept_with_parts()
            some = f"[:{self.tensors}]" if wholes else ""
            source.line(f"try: saved = ctx.saved_tensors{some}", _UNPACKED, comment=False)
            source.line(f"except RuntimeError as error: raise {explained}(ctx, error)", _UNPACKED, comment=False)
            written_unchecked = self._written_unchecked()
            if written_unchecked:
                source.line("saved = [*saved]", _WRITES)
            for i, place in written_unchecked.items():
                source.line(f"saved[{i}] = ctx.written[{place}]", _WRITES)
        if runtime.HAS_BOXED_GRADIENTS:
            source.line("gradients.clear()", "free each gradient as soon as the backward has used it")
        written = self._written(names)
        for given, name in written.items():
            source.line(f"{given} = {name}", "a custom backward writes to this gradient, which may be the caller's own")
        self._lay_out(names)
        arguments = self._arguments(names)
        if self.lowered.generators is not None:
            generators = source.bind("generators", self.lowered.generators)
            keeps = source.bind("keeps_graph", runtime.keeps_graph)
            source.line(f"random = {generators}.backward(ctx.random, {keeps}())", "the generator states of the forward")
            arguments.append("*random")
        source.line(f"args = [{', '.join(arguments)}]", _ORDER, comment=False)
        held = [*dict.fromkeys(name for name in (*whole, *names) if name not in written.values())]
        held += ["saved"] if self.tensors else []
        if held:
            source.line(f"del {', '.join(held)}", _FREED, comment=False)
        source.line("ctx.maybe_clear_saved_tensors()", "the list now holds the last references")
        if call.kept:
            keeps = source.bind("keeps_graph", runtime.keeps_graph)
            fact = "with retain_graph=True, a second derivative may follow"
            source.line(f"if not {keeps}(): ctx.kept.free()", fact)
        backward = source.bind("backward_of", self.lowered.backward)
        if self.lowered.backward.donates:
            keeps = source.bind("keeps_graph", runtime.keeps_graph)
            fact = "with retain_graph=True, the saved tensors must survive this backward"
            source.line(f"if {keeps}(): run = {backward}.keeping or {backward}(True)", fact)
            source.line(f"else: run = {backward}.discarding or {backward}(False)", fact)
        else:
            source.line(f"run = {backward}.keeping or {backward}(True)", _LAZY, comment=False)
        fact = "under vmap (is_grads_batched=True), the backward graph runs operator by operator"
        source.line(f"if {source.bind('batched', runtime.batched)}(): run = {backward}.plain", fact)
        self._run(written)

    def _partial(self, names: list[str], whole: list[str]) -> None:
        """The path of a backward with missing gradients. `whole` are the names of the gradients before unwrapping."""
        if not names:
            return
        source = self.source
        partial = source.bind("partial_backward", self.lowered.partial)
        fact = "skip what depends on a missing gradient, as eager does, instead of computing with zeros"
        with source.block(f"if {' or '.join(f'{name} is None' for name in names)}:", fact):
            came = f"[{', '.join(names)}]"
            if len(names) > 1:  # if there is only one, it is None
                source.line(f"came = {came}", fact)
                source.line(f"del {', '.join(dict.fromkeys((*whole, *names)))}", fact)
                if runtime.HAS_BOXED_GRADIENTS:
                    source.line("gradients.clear()", fact)
                came = "came"
            source.line(f"result = {partial}(ctx, {came})", fact)
            self._return()

    def _differentiable(self, names: list[str]) -> None:
        """The path of a backward under create_graph=True."""
        source = self.source
        grad = source.bind("is_grad_enabled", torch.is_grad_enabled)
        gradients = source.bind("gradients_of", self.lowered.with_history)
        arguments = f"(ctx, {'ctx.symbols' if self.symbols else '()'}, ({''.join(f'{name}, ' for name in names)}))"
        if self.lowered.cut is not None:
            fact = "a hook on an output changed a gradient inside the graph: continue from the hook's gradient"
            cut = source.bind("cut", self.lowered.cut)
            source.line(f"if ctx.cutting is not None and ctx.cutting.given: return {cut}{arguments}", fact)
        fact = "with create_graph=True, the gradients need a grad_fn"
        source.line(f"if {grad}(): return {gradients}{arguments}", fact)
        fact = "these come from one custom autograd.Function, whose backward handles a missing gradient itself"
        for group in self.call.outer.together:
            missing = f"sum(one is None for one in ({', '.join(names[i] for i in group)}))"
            source.line(f"if 0 < {missing} < {len(group)}: return {gradients}.without_history{arguments}", fact)

    def _written(self, names: list[str]) -> dict[str, str]:
        """Variables for the original gradients that the backward graph writes to, before they get another layout."""
        nodes = self.call.backward_module.graph.nodes
        targets = [graphs.argument(node) for node in nodes if graphs.is_input_mutation(node)]
        numbers = [tangent_number(node) for node in targets if is_tangent(node)]
        return {self.source.fresh(f"given_{names[i]}"): names[i] for i in dict.fromkeys(numbers)}

    def _run(self, written: dict[str, str]) -> None:
        source = self.source
        inside: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        late, fact = self.call.late_writes, "bump the version counters of what was written as often as eager does"
        if late:
            version = source.bind("version_of", write_count)
            source.line(f"versions = [{version}(one) for one in ctx.written]", fact)
        if self.call.meta.autocast:
            fact = "autocast was on at compile time; its casts are in the graph"
            inside = source.block(f"with {source.bind('AutocastDisabled', runtime.AutocastDisabled)}():", fact)
        with inside:
            source.line("result = [*run(args)]", _GRADIENTS, comment=False)
        for given, name in written.items():
            source.line(f"if {given} is not {name}: {given}.copy_({name})")
        if late:
            counts = tuple(count for _, count in late)
            source.line(f"{source.use(call_differs.count_writes)}(ctx.written, versions, {literal(counts)})", fact)
        self._return()

    def _return(self) -> None:
        text = "tuple(result)" if self.insides is None else f"{self.insides.gradients()},"
        self.source.line(f"return {text}", _RETURNED, comment=False)

    def _tangents(self) -> list[str]:
        names = []
        for tangent in self.outer.tangents:
            subject = str(self.outer.slots[tangent.slot].descriptor)
            name = self.source.fresh(f"grad_{subject}".replace("output", "out"))
            fact = f"the incoming gradient of {subject}"
            self.source.line(f"{name} = gradients[{tangent.slot}]", fact, subject, comment=False)
            names.append(name)
        return names

    def _lay_out(self, names: list[str]) -> None:
        source = self.source
        fact = "the backward was compiled for gradients with these strides"
        for name, tangent in zip(names, self.call.tangents, strict=True):
            subject = str(self.call.slots[tangent.slot].descriptor)
            if partial_backward.is_dynamic(tangent):
                laid_out = f"{name}.contiguous()"
                if tangent.order != tuple(range(len(tangent.order))):
                    laid_out = f"{source.use(tangents.dense)}({name}, {tangent.order})"
                source.line(f"{name} = {laid_out}", fact, subject)
            elif tangent.size:
                again = f"{name} = {source.use(tangents.restrided)}({name}, {tangent.size}, {tangent.stride})"
                source.line(f"if {name}.stride() != {tangent.stride}: {again}", fact, subject)

    def _arguments(self, names: list[str]) -> list[str]:
        """The backward's inputs in its order, found by name. Consecutive saved tensors become one slice."""
        arguments: list[str] = []
        found = [(kind, i) for kind, i in partial_backward.sources(self.call) if kind != "generator"]
        # The place in a run of saved tensors, or of saved symbols, minus that in the list is the same in each run.
        grouped = groupby(enumerate(found), lambda one: (one[1][0], one[1][1] - one[0], one[1][1] < self.tensors))
        for (kind, _, is_tensor), run in grouped:
            numbers = [i for _, (_, i) in run]
            if kind == "tangent":
                arguments += (names[i] for i in numbers)
                continue
            where, first, count = "saved", 0, self.tensors
            if not is_tensor:
                where, first, count = "ctx.symbols", self.tensors, self.symbols
            low, high = numbers[0] - first, numbers[-1] - first + 1
            arguments.append(f"*{where}" if (low, high) == (0, count) else f"*{where}[{low}:{high}]")
        return arguments
