"""verify() finds a form that contradicts itself, and names the stage that made it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

import aotviz
from aotviz import pipeline
from aotviz.frontends import export
from aotviz.ir import graphs, verify
from aotviz.ir.forms import BackwardRequest, Exported, LoweredBackward, Note
from aotviz.ir.verify import PROMISES, MalformedForm, of_node
from aotviz.ir.view_and_mutation import IntermediateBase
from aotviz.pipeline import Role, Stage

torch.set_num_threads(1)
ALL = [stage.name for stage in pipeline.TRAINING if stage.needed is None]


def form_after(stage):
    def f(x, w):
        x.mul_(2)
        y = x * w
        return y.sin(), w.t()

    args = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    if stage in LATE:
        return late_form(LATE[stage], f, *args)
    return aotviz.trace_stages(f, *args, until=stage).form


LATE = {"backward request": BackwardRequest, "lower backward": LoweredBackward, "signature": Exported}


def late_form(kind, f, *args):
    """The last form of this kind that any stage is given or returns."""
    seen = []
    real = verify.verify
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verify, "verify", lambda form, stage: (seen.append(form), real(form, stage)))
        if kind is Exported:
            export.aot_export_module(torch.nn.Linear(2, 2), args[:1], trace_joint=False)
        else:
            aotviz.aot_function(f, lambda graph, inputs: graph)(*args)[0].sum().backward()
    found = [form.request if kind is BackwardRequest and isinstance(form, LoweredBackward) else form for form in seen]
    return next(form for form in reversed(found) if isinstance(form, kind))


def with_graph(form, edit, name="graph_module"):
    module = graphs.copy(getattr(form, name))
    edit(module.graph)
    return replace(form, **{name: module})


def operators(graph):
    return [node for node in graph.nodes if node.op == "call_function"]


def drop_an_output(graph):
    output = graphs.output_node(graph)
    output.args = (tuple(output.args[0][1:]),)


def add_a_placeholder(graph):
    with graph.inserting_before(next(iter(graph.nodes))):
        graph.placeholder("extra").meta["val"] = 3


def drop_a_saved_value(graph):
    saved = graphs.placeholders(graph)[0]
    saved.replace_all_uses_with(graphs.placeholders(graph)[-1])
    graph.erase_node(saved)


def write_an_intermediate(graph):
    node = operators(graph)[0]
    with graph.inserting_after(node):
        graph.call_function(torch.ops.aten.add_.Tensor, (node, 1))


def copy_to_an_intermediate(graph):
    node = operators(graph)[0]
    with graph.inserting_after(node):
        graph.call_function(torch.ops.aten.copy_.default, (node, node))


def forget_a_descriptor(graph):
    del graphs.placeholders(graph)[0].meta["desc"]


def forget_a_value(graph):
    del graphs.placeholders(graph)[0].meta["val"]


def use_before_definition(graph):
    first, *_, last = operators(graph)
    first.args = (last, *first.args[1:])


BROKEN = {
    "an output less": ("joint", lambda f: with_graph(f, drop_an_output), "graph outputs are the slots, then"),
    "a placeholder more": ("joint", lambda f: with_graph(f, add_a_placeholder), "graph inputs are the call's inputs"),
    "a write to an intermediate": (
        "trace",
        lambda f: with_graph(f, write_an_intermediate),
        "writes a tensor that is not an input",
    ),
    "a copy to an intermediate": (
        "trace",
        lambda f: with_graph(f, copy_to_an_intermediate),
        "writes a tensor that is not an input",
    ),
    "no descriptor": ("trace", lambda f: with_graph(f, forget_a_descriptor), "every input has a descriptor"),
    "no value": ("trace", lambda f: with_graph(f, forget_a_value), "an input without a value"),
    "a slot less": ("functionalize", lambda f: replace(f, slots=f.slots[1:]), "graph outputs are the slots"),
    "a tangent less": ("joint", lambda f: replace(f, tangents=f.tangents[1:]), "graph inputs are the call's inputs"),
    "tangents in another order": (
        "joint",
        lambda f: replace(f, tangents=tuple(replace(t, slot=t.slot + 1) for t in f.tangents)),
        "one tangent per differentiable slot, in order",
    ),
    "a flat descriptor less": ("flatten", lambda f: replace(f, descriptors=f.descriptors[1:]), "one descriptor per"),
    "a duplicate entry less": ("flatten", lambda f: replace(f, duplicate_of=()), "one duplicate_of entry per"),
    "a counter entry less": ("flatten", lambda f: replace(f, counter_of=()), "one counter_of entry per"),
    "an input fact less": (
        "metadata",
        lambda f: replace(f, meta=replace(f.meta, input_info=f.meta.input_info[1:])),
        "one InputAliasInfo per graph input",
    ),
    "an output fact less": (
        "metadata",
        lambda f: replace(f, meta=replace(f.meta, output_info=f.meta.output_info[1:])),
        "one OutputAliasInfo per flat output",
    ),
    "a chain without a base": (
        "metadata",
        lambda f: replace(
            f, meta=replace(f.meta, output_info=tuple(replace(i, base_index=None) for i in f.meta.output_info))
        ),
        "a view chain has a base",
    ),
    "an output that repeats itself": (
        "metadata",
        lambda f: replace(
            f, meta=replace(f.meta, output_info=tuple(replace(i, same_object_as=1) for i in f.meta.output_info))
        ),
        "an output repeats an earlier one",
    ),
    "a saved value more": (
        "partition",
        lambda f: replace(f, saved=(*f.saved, f.saved[0])),
        "forward outputs are the slots, then what is saved",
    ),
    "a gradient less": (
        "partition",
        lambda f: with_graph(f, drop_an_output, "backward_module"),
        "one gradient .or None. per graph input",
    ),
    "an unknown backward input": (
        "partition",
        lambda f: with_graph(f, add_a_placeholder, "backward_module"),
        "each input of the backward is a saved",
    ),
    "a note outside": (
        "link",
        lambda f: replace(f, notes=(*f.notes, Note(9000, 9001, "fact", "subject"))),
        "notes are about lines of the source",
    ),
    "a duplicate of a later input": (
        "flatten",
        lambda f: replace(f, duplicate_of=tuple(1 for _ in f.duplicate_of)),
        "a duplicate repeats an earlier input",
    ),
    "a saved value that the backward does not take": (
        "partition",
        lambda f: with_graph(f, drop_a_saved_value, "backward_module"),
        "the backward takes what is saved",
    ),
    "a symbol that is donated": (
        "donated buffers",
        lambda f: replace(f, saved=tuple(replace(one, donated=True, is_symbol=True) for one in f.saved)),
        "only saved tensors are donated",
    ),
    "an exported input that the signature does not have": (
        "signature",
        lambda f: replace(f, signature=replace(f.signature, user_inputs=())),
        "each graph input is a parameter",
    ),
    "a value less for the backward": (
        "backward request",
        lambda f: replace(f, values=f.values[1:]),
        "one value per input of the backward",
    ),
    "a donated value that is none": ("backward request", lambda f: replace(f, donated=(99,)), "what is donated is an"),
    "a backward that is none": ("lower backward", lambda f: replace(f, compiled=None), "the backward is callable"),
    "a version counter of a later input": (
        "flatten",
        lambda f: replace(f, counter_of=tuple(1 for _ in f.counter_of)),
        "a version counter is that of the first",
    ),
    "a static input beyond the inputs": (
        "flatten",
        lambda f: replace(f, static_inputs=(9,)),
        "static inputs are flat inputs",
    ),
    "a base for no output": (
        "metadata",
        lambda f: replace(f, meta=replace(f.meta, intermediate_bases=(IntermediateBase(9, True),))),
        "an intermediate base is returned for an output",
    ),
    "a slot for no output": (
        "joint",
        lambda f: replace(f, slots=tuple(replace(slot, index=9) for slot in f.slots)),
        "a slot is an input, an output or",
    ),
    "a reshaped input beyond the inputs": (
        "joint",
        lambda f: replace(f, reshaped=(9,)),
        "positions are those of slots, tangents and graph inputs",
    ),
    "a symbol before the tensors": (
        "partition",
        lambda f: replace(f, saved=(replace(f.saved[0], is_symbol=True), *f.saved[1:])),
        "saved tensors come before saved symbols",
    ),
    "a kept input beyond the inputs": ("partition", lambda f: replace(f, kept=(9,)), "what is kept are graph inputs"),
    "an unpacked value from nothing": (
        "partition",
        lambda f: replace(f, unpacked={"mul": (f.forward_module, ["nothing"])}),
        "what is unpacked is a node of the forward",
    ),
    "a function that is none": ("link", lambda f: replace(f, function=None), "the program is callable"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_form_is_found_and_the_stage_named(name):
    stage, damage, what = BROKEN[name]
    form = form_after(stage)
    verify.verify(form, stage)
    with pytest.raises(MalformedForm, match=f"stage '{stage}' returned a malformed {type(form).__name__}: .*{what}"):
        verify.verify(damage(form), stage)


def test_each_promise_is_broken_once_above():
    forms = [form_after(stage) for stage in {stage for stage, _, _ in BROKEN.values()}]
    assert [kind for kind in PROMISES if not any(isinstance(form, kind) for form in forms)] == []
    of_forms = (promises(form) for form in forms for kind, promises in PROMISES.items() if isinstance(form, kind))
    of_nodes = (of_node(node) for node in form_after("trace").graph_module.graph.nodes)
    texts = {text for promises in (*of_forms, *of_nodes) for text, _ in promises}
    assert [text for text in texts if not any(re.search(what, text) for _, _, what in BROKEN.values())] == []


def test_a_graph_out_of_order_is_found():
    form = form_after("trace")
    with pytest.raises(RuntimeError, match="used before it has been defined"):
        verify.verify(with_graph(form, use_before_definition), "trace")


@pytest.mark.parametrize("stage", ALL)
def test_every_stages_form_is_well_made(stage):
    verify.verify(form_after(stage), stage)


@pytest.mark.parametrize("debug", [False, True])
def test_debug_verifies_at_every_boundary_and_only_debug_does(monkeypatch, debug):
    seen = []
    monkeypatch.setattr(verify, "ALWAYS", False)
    monkeypatch.setattr(pipeline.verify, "verify", lambda form, stage: seen.append(stage))
    f = aotviz.compile(lambda x: x.sin().sum(), backend="eager", debug=debug)
    f(torch.ones(2, requires_grad=True)).backward()
    assert seen == ([*ALL, "lower backward"] if debug else [])


def test_with_debug_a_broken_stage_is_named_where_it_broke_something(monkeypatch):
    def broken(form):
        return replace(form, slots=())

    stages = list(pipeline.TRAINING)
    position = [stage.name for stage in stages].index("functionalize") + 1
    stages[position:position] = [Stage("forgetful", broken, Role.FINISH)]
    monkeypatch.setattr(pipeline, "TRAINING", tuple(stages))
    with pytest.raises(MalformedForm, match="stage 'forgetful' returned a malformed JointCall"):
        aotviz.compile(lambda x: x.sin(), backend="eager", debug=True)(torch.ones(2, requires_grad=True))
