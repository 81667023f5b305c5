"""Compose everything into the one Python function that runs (docs/design/system.md E2).

Reads top to bottom like the generated function: arguments come in, rewrites turn them into graph inputs, the compiled
graph runs, mutations are written back, views are recreated, the result goes out.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from aotviz.ir import graphs
from aotviz.ir.forms import Reason, Split
from aotviz.ir.storages import has_no_root
from aotviz.runtime import autograd_function, call_differs, debug_checks, returned
from aotviz.runtime.aliases import Epilogue
from aotviz.runtime.codegen import Source
from aotviz.runtime.entry import Entry
from aotviz.runtime.lowered import LoweredGraph, LoweredSplit, Program
from aotviz.torch_private import runtime, saved_tensor_hooks


def run(lowered: LoweredSplit | LoweredGraph) -> Program:
    source, call = Source(), lowered.call
    label = source.fresh(call.name)
    apply = autograd_function.Writer(source, lowered, label).write() if isinstance(lowered, LoweredSplit) else ""
    _Wrapper(source, lowered, label, apply).write()
    function, filename = source.build(call.name, label)
    for made in source.functions(filename):
        runtime.skipped(made)
    return Program(
        options=call.options,
        evidence=(Reason("wrapper", f"{len(source.lines)} lines; {len(source.notes)} groups of them have a comment"),),
        name=call.name,
        function=function,
        filename=filename,
        source=source.text,
        notes=tuple(source.notes),
        lowered=lowered,
    )


class _Wrapper:
    def __init__(self, source: Source, lowered: LoweredSplit | LoweredGraph, label: str, apply: str) -> None:
        self.source, self.label, self.apply = source, label, apply
        self.variables: list[str] = []  # of the graph inputs
        self.written = False  # whether the inputs have been written back
        self.lowered, self.inner, self.wrapping = lowered, lowered.call, lowered.call.wrapping
        self.call = self.inner.outer
        self.entry = Entry(source, self.inner, label)

    def write(self) -> None:
        source, call = self.source, self.call
        variables = self.entry.signature(self.label)
        transformed, refuse = source.bind("transformed", runtime.transformed), call_differs.refuse_transforms
        refused = f"{source.bind('refuse_transforms', refuse)}({call.name!r})"
        source.line(f"if {transformed}(): {refused}", "vmap, grad and jvp cannot transform a compiled graph")
        compare = ""
        named = variables if variables is not None else [f"args[{i}]" for i in range(len(call.descriptors))]
        self._check_inputs(named)
        if call.options.debug:
            debug_checks.write_expectations(source, call, named)
            compare = debug_checks.write_comparison(source, call, named)
        epilogue = Epilogue(source, call, self.lowered.cut if isinstance(self.lowered, LoweredSplit) else None)
        needed = epilogue.inputs_needed()
        detached = self._detached()
        afters: list[Callable[[], None]] = []
        if variables is None and not call.rewrites and not detached:
            inputs = self._pick(needed)
            arguments = "args"
        else:
            epilogue.passed = variables = variables if variables is not None else self._unpack()
            for rewrite in call.rewrites:
                before, variables = variables, rewrite.inputs(source, variables)
                afters.append(functools.partial(rewrite.after, source, before, variables))
            inputs = self.variables = variables
            passed = [v + detached.get(i, "") for i, v in enumerate(inputs)]
            if self.wrapping is not None and not self.apply:
                passed = self.wrapping.unwrap(source, passed)
            arguments = f"[{', '.join(passed)}]"
        epilogue.inputs = inputs
        epilogue.make_room()
        epilogue.turn_on()
        epilogue.listen()
        epilogue.announce()
        epilogue.results = self._run(arguments, epilogue)
        epilogue.node()
        if not self.written:
            epilogue.replay()
        for after in reversed(afters):
            after()
        expressions = epilogue.outputs()
        epilogue.hear()
        epilogue.watch()
        epilogue.resize_storages()
        if compare:
            source.line(compare, "debug: compare the whole storage of each tensor that is written")
        if call.meta.grad_enabled_after is not None:
            setter = source.bind("set_grad_enabled", runtime.set_grad_enabled)
            source.line(f"{setter}({call.meta.grad_enabled_after})", "the function changes grad mode")
        fact = "what the user's function returns, in the same structure"
        source.line(f"return {self.entry.result(expressions)}", fact, comment=False)
        source.dedent()

    def _check_inputs(self, named: list[str]) -> None:
        """Write checks of what the trace took for granted about the inputs. For views, see Note [Leaves that are views]
        in tracing/views_of_no_grad_bases.py."""
        source, call = self.source, self.call
        for i, info in enumerate(call.user_input_info.input_info):
            name, variable = str(call.descriptors[i]), named[i]
            if info.asks_for_root:
                first = call.duplicate_of[i]
                example = call.args[i if first is None else first]
                was, now, wrong = ("was", "is not", "not ") if has_no_root(example) else ("was not", "is", "")
                kind = "a view of a tensor that does not require grad"
                message = f"{name!r} {was} {kind} when this was compiled; now it {now}."
                differs = f"{wrong}{source.bind('has_no_root', has_no_root)}({variable})"
                fact = f"which views of {name} require grad depends on whether its base requires grad"
                call_differs.check(source, differs, message, fact, name)
            if info.read_bytes is not None:
                differs = f"{variable}.untyped_storage().size() != {info.read_bytes}"
                message = f"the storage of {name!r} had {info.read_bytes} bytes when this was compiled; now it differs."
                fact = f"the function reads the storage size of {name}"
                call_differs.check(source, differs, message, fact, name)
            if info.only_in_inference_mode:
                inside = source.bind("is_inference_mode_enabled", torch.is_inference_mode_enabled)
                fact = f"{name} is an inference tensor, which is written in inference mode only"
                source.line(f"if not {inside}(): {source.use(call_differs.refuse_inference)}({name!r})", fact, name)
            if info.differentiated:
                check = source.bind("refuse_hooked", call_differs.refuse_hooked)
                fact = f"the function asks for the gradient of {name}, for which eager calls its hooks"
                source.line(f"{check}({variable}, {name!r})", fact, name)

    def _pick(self, needed: set[int]) -> list[str]:
        """Variables for the inputs that are used after the graph has emptied the list."""
        inputs = [""] * len(self.call.graph_inputs)
        for i in sorted(needed):
            inputs[i] = self.source.fresh(str(self.call.graph_inputs[i]))
            self.source.line(f"{inputs[i]} = args[{i}]", "used after the graph has run")
        return inputs

    def _unpack(self) -> list[str]:
        names = [self.source.fresh(d.name) for d in self.call.descriptors]
        if names:
            self.source.line(f"{', '.join(names)}, = args", "one variable per flat input", comment=False)
        if self.entry.boxed:
            self.source.line("args.clear()", "the caller's list must not keep the arguments alive")
        return names

    def _detached(self) -> dict[int, str]:
        """Detach inputs that require grad but get no gradient, so that autograd and hooks ignore them."""
        if not isinstance(self.call, Split):
            return {}
        gradients: list[Any] = graphs.outputs(self.call.backward_module.graph)
        if self.wrapping is not None:
            gradients = [gradient.value for gradient in self.call.gradients]
        pairs = enumerate(zip(gradients, self.call.meta.input_info, strict=True))
        found = {i: ".detach()" for i, (gradient, info) in pairs if gradient is None and info.requires_grad}
        if found and all(gradient is None for gradient in gradients):
            found[min(found)] += ".requires_grad_()"  # the outputs still require grad, as in eager
        return found

    def _run(self, arguments: str, epilogue: Epilogue) -> dict[tuple[str, int], str]:
        source, call = self.source, self.call
        grad = source.bind("is_grad_enabled", torch.is_grad_enabled)
        compiled = source.bind("compiled_forward", self.lowered.compiled_forward)
        if isinstance(call, Split):
            star = f"*{arguments}" if arguments == "args" else arguments[1:-1]
            applied = f"out = {self.apply}({star})"
            if not call.meta.grad_enabled:
                self._with_gradients(applied, grad)
            elif self.wrapping is not None:  # subclasses are unwrapped in the autograd.Function
                self._guarded(applied, "")
            else:
                if isinstance(self.lowered, LoweredSplit) and self.lowered.generators is not None:
                    generators = source.bind("generators", self.lowered.generators)
                    arguments = f"[*{arguments}, *{generators}.forward()[1]]"
                fact = "the graph was compiled for training; with grad mode off, no autograd node is needed"
                self._guarded(f"{applied} if {grad}() else {compiled}({arguments})", fact)
        else:
            self._inference(compiled, arguments, grad, epilogue)
            returned.versions(source, self.inner)
        return self._results()

    def _with_gradients(self, text: str, grad: str) -> None:
        """A call under no_grad of a function that turns grad mode on for a part of it."""
        setter = self.source.bind("set_grad_enabled", runtime.set_grad_enabled)
        fact = "compiled with grad mode off, for a function that turns it on inside"
        self.source.line(f"grad_mode = {grad}()", fact)
        inference = self.source.bind("is_inference_mode_enabled", torch.is_inference_mode_enabled)
        self.source.line(f"{setter}(not {inference}())", "in inference mode, autograd records nothing")
        with self.source.block("try:", fact):
            self._guarded(text, fact)
        self.source.line(f"finally: {setter}(grad_mode)", fact)

    def _guarded(self, text: str, fact: str) -> None:
        """Write a line, without the saved tensor hooks and the autocast that are in the graphs."""
        source = self.source
        with contextlib.ExitStack() as around:
            if isinstance(self.call, Split) and any(saved.hook for saved in self.call.saved):
                off = source.bind("HooksOff", saved_tensor_hooks.Off)
                why = "the saved tensor hooks are part of the graphs"
                around.enter_context(source.block(f"with {off}():", why))
            if self.call.meta.autocast:
                off = source.bind("AutocastDisabled", runtime.AutocastDisabled)
                why = "autocast was on at compile time; its casts are in the graph"
                around.enter_context(source.block(f"with {off}():", why))
            source.line(text, fact)

    def _inference(self, compiled: str, arguments: str, grad: str, epilogue: Epilogue) -> None:
        """Turn grad mode off, unless it makes no difference. In eager, autograd sees no parts of a subclass."""
        source = self.source
        tracked = self.wrapping is not None or any(info.requires_grad for info in self.inner.meta.input_info)
        if self.call.meta.grad_enabled and not tracked:
            self._guarded(f"out = {compiled}({arguments})", "")
            return
        setter = source.bind("set_grad_enabled", runtime.set_grad_enabled)
        fact = "nothing here requires grad, so autograd does not have to record"
        source.line(f"grad_mode = {grad}()", fact)
        source.line(f"if grad_mode: {setter}(False)", fact)
        with source.block("try:", fact):
            self._guarded(f"out = {compiled}({arguments})", fact)
            if self.wrapping is None and epilogue.only_writes():
                epilogue.results, self.written = self._results(), True
                epilogue.replay()
        source.line("finally:", "" if self.written else fact)
        source.line(f"    if grad_mode: {setter}(True)", "" if self.written else fact)

    def _results(self) -> dict[tuple[str, int], str]:
        """The expression of each slot. In training, a hidden one is unwrapped from its TensorAlias."""
        results = {}
        values = [f"out[{position}]" for position in range(len(self.call.slots))]
        if self.wrapping is not None and not self.apply:
            values = self.wrapping.wrap(self.source, "out", self.variables, recorded=False)

        def named(hint: str, expression: str, fact: str) -> str:
            name = self.source.fresh(hint)
            self.source.line(f"{name} = {expression}", fact)
            return name

        for text, slot in zip(values, self.call.slots, strict=True):
            if slot.inference:
                made = self.source.bind("as_inference_tensor", runtime.as_inference_tensor)
                text = named("inference", f"{made}({text})", "eager computes it in inference mode")
            elif not self.apply and returned.is_returned_view(self.inner, slot, text):
                text = named("own", f"{text}.detach()", "the graph returns a view where eager returns none")
            if slot.hidden and isinstance(self.call, Split):
                unwrap = self.source.use(unwrapped)
                text = named("alias", f"{unwrap}({text})", "unwrap what was hidden from autograd.Function")
            results[(slot.kind, slot.index)] = text
        return results


def unwrapped(value: object) -> object:
    """The tensor inside a TensorAlias; a plain tensor, as when grad mode is off, is returned unchanged."""
    return getattr(value, "alias", value)
