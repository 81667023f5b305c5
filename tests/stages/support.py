"""Run the pipeline up to the stage before, then one stage alone, and see that it leaves its argument as it was."""

from __future__ import annotations

from typing import Any

import torch.fx as fx

import aotviz
from aotviz import pipeline
from aotviz.ir import verify


def fingerprint(form: Any) -> Any:
    """What a stage could change in its argument: the fields (by identity) and the text and metadata of its graphs."""
    fields = {name: id(value) for name, value in vars(form).items()}
    modules = [value for value in vars(form).values() if isinstance(value, fx.GraphModule)]
    graphs = [
        [(node.name, str(node.target), str(node.args), sorted(node.meta)) for node in m.graph.nodes] for m in modules
    ]
    return fields, graphs


def stage_alone(name: str, fn: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """(argument, result) of the stage `name` for the call `fn(*args)`.

    Fails where the stage changed its argument, or where its result is malformed.
    """
    chain = chain_of(fn, *args, **options)
    before = chain[[stage.name for stage in chain].index(name) - 1].name
    stopped = aotviz.trace_stages(fn, *args, until=before, **options)
    stage = next(stage for stage in chain if stage.name == name)
    was = fingerprint(stopped.form)
    with stopped.lowering.around():
        result = pipeline.run((stage,), stopped.form, pipeline.Observer())
    # A joint stage goes on in the open trace, which shows the forward's part of it only.
    assert fingerprint(stopped.form) == was
    assert result is not stopped.form
    verify.verify(result, name)
    return stopped.form, result


def chain_of(fn: Any, *args: Any, **options: Any) -> tuple[pipeline.Stage, ...]:
    call = aotviz.trace_stages(fn, *args, until=pipeline.prepare()[-1].name, **options).form
    return (*pipeline.prepare(), *pipeline.tail_for(call))


def evidence(form: Any) -> dict[str, str]:
    return {reason.subject: reason.text for reason in form.evidence}


def targets(graph: fx.Graph) -> list[str]:
    """Operators in order, without the overload."""
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]
