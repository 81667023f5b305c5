"""Recordings for tests: one small and readable, and a Hypothesis strategy for all that the format allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from aotviz.recording import schema
from aotviz.recording.schema import FORMAT, NONE, VERSION

MARKUP = '<img src=x onerror="alert(1)">'


def small(name: str = "f", placeholder: str = "x") -> schema.RecordingData:
    """`def f(x): return x.cos().cos()` as joint, then as forward and backward; the placeholder's name is free."""
    strings = [placeholder, "cos", "aten.cos.default", "output", "torch.float32", "cpu", "sin", "aten.sin.default"]
    strings += [
        '  File "model.py", line 3, in f\n    return x.cos()',
        "layers.0|Linear",
        "the user's x",
        "result",
        "torch.int64",
    ]
    tensor = schema.ValueRecord("tensor", 4, ["s0", 3], [3, 1], 0, 5, 0, True, [], NONE)
    other = schema.ValueRecord("tensor", 4, ["s0", 3], [3, 1], 0, 5, 1, False, [], NONE)
    third = schema.ValueRecord("tensor", 4, ["s0", 3], [3, 1], 0, 5, 2, False, [], NONE)
    stages = [
        schema.StageRecord("trace", "JointGraph", "traced", True, False, 0, 1_500_000, {"joint": 0}, [], {}),
        schema.StageRecord(
            "partition",
            "Split",
            "cut",
            True,
            False,
            1_500_000,
            500_000,
            {"forward": 1, "backward": 1},
            [schema.Evidence("x", "it is an input")],
            {"wrapper": "def f(): ..."},
        ),
    ]
    compilation = schema.CompilationData(
        id="0",
        name=name,
        kind="training",
        started_unix_ns=1,
        options={"backend": "eager"},
        stages=stages,
        graphs=[_joint(), _forward()],
        values=[tensor, other, third],
        inputs=[
            schema.InputRecord(
                placeholder,
                "input",
                "torch.float32",
                ["s0", 3],
                "cpu",
                True,
                True,
                True,
                False,
                "MUTATED_OUT_GRAPH",
                False,
                False,
                False,
                False,
                False,
                0,
                "",
                "",
                "its data is written",
            )
        ],
        outputs=[
            schema.OutputRecord(
                "output",
                "alias_of_input",
                "torch.float32",
                ["s0", 3],
                "cpu",
                True,
                placeholder,
                ["view([3])"],
                True,
                "",
            )
        ],
        saved_tensors=[
            schema.SavedTensorRecord(
                "cos",
                "tensor",
                "torch.float32",
                [2, 3],
                24,
                "aten.cos.default",
                "model.py:3",
                "",
                "cheap",
                True,
                False,
                "",
            )
        ],
        wrapper=schema.WrapperRecord("<aotviz f>", "def f(): ...", [schema.WrapperNote(1, 1, "a fact", "x")]),
        error=None,
    )
    return schema.RecordingData(FORMAT, VERSION, {"aotviz": "0"}, strings, [compilation], 0)


def _joint() -> schema.GraphSnapshot:
    return schema.GraphSnapshot(
        op="pffo",
        name=[0, 1, 6, 3],
        target=[0, 2, 7, 3],
        args=[[], [[1]], [[2], {"r": 12}], [["L", [2], [1], None]]],
        kwargs={2: {"out": None, "where": {"d": {"at": {"s": [0, None, 2]}}}, "more": ["L", 1, 2.5, "text", [1]]}},
        value=[0, 1, 2, NONE],
        stack=[NONE, 8, NONE, NONE],
        module=[NONE, 9, NONE, NONE],
        sequence=[NONE, 7, 7, NONE],
        backward="0010",
        descriptor={0: 10},
        output_descriptors=[11, NONE, NONE],
    )


def _forward() -> schema.GraphSnapshot:
    return schema.GraphSnapshot(
        op="pfo",
        name=[0, 1, 3],
        target=[0, 2, 3],
        args=[[], [[1]], [["L", [1]]]],
        kwargs={},
        value=[0, 1, NONE],
        stack=[NONE, 8, NONE],
        module=[NONE, 9, NONE],
        sequence=[NONE, 7, NONE],
        backward="000",
        descriptor={0: 10},
        output_descriptors=[11],
    )


texts = st.text(max_size=8)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), texts)


@st.composite
def argument(draw: st.DrawFn, index: int, strings: int, depth: int = 0) -> Any:
    kinds = ["scalar", "text"] + (["node"] if index else []) + (["list", "dict", "slice"] if depth < 2 else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "scalar":
        return draw(scalars)
    if kind == "text":
        return {"r": draw(st.integers(0, strings - 1))}
    if kind == "node":
        return [draw(st.integers(1, index))]
    inner = argument(index, strings, depth + 1)
    if kind == "list":
        return ["L", *draw(st.lists(inner, max_size=2))]
    if kind == "dict":
        return {"d": draw(st.dictionaries(texts, inner, max_size=2))}
    return {"s": [draw(inner) for _ in range(3)]}


@st.composite
def graph(draw: st.DrawFn, strings: int, values: int) -> schema.GraphSnapshot:
    nodes = draw(st.integers(0, 4))
    number, maybe = st.integers(0, strings - 1), st.integers(NONE, strings - 1)

    def column(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(each, min_size=nodes, max_size=nodes))

    which = st.integers(0, max(0, nodes - 1))
    most = 2 if nodes else 0
    kwargs = {
        index: draw(st.dictionaries(texts, argument(index, strings), max_size=2))
        for index in draw(st.sets(which, max_size=most))
    }
    return schema.GraphSnapshot(
        op="".join(column(st.sampled_from("pfmcao"))),
        name=column(number),
        target=column(number),
        args=[draw(st.lists(argument(index, strings), max_size=2)) for index in range(nodes)],
        kwargs=kwargs,
        value=column(st.integers(NONE, values - 1)),
        stack=column(maybe),
        module=column(maybe),
        sequence=column(st.integers(NONE, 1000)),
        backward="".join(column(st.sampled_from("01"))),
        descriptor=draw(st.dictionaries(which, maybe, max_size=most)),
        output_descriptors=draw(st.lists(maybe, max_size=2)),
    )


@st.composite
def value(draw: st.DrawFn, index: int, strings: int) -> schema.ValueRecord:
    maybe = st.integers(NONE, strings - 1)
    size = st.one_of(st.integers(0, 2**40), texts)
    return schema.ValueRecord(
        kind=draw(st.sampled_from(["tensor", "symint", "symfloat", "symbool", "tuple", "other"])),
        dtype=draw(maybe),
        shape=draw(st.lists(size, max_size=3)),
        stride=draw(st.lists(size, max_size=3)),
        offset=draw(size),
        device=draw(maybe),
        storage=draw(st.integers(NONE, 9)),
        requires_grad=draw(st.booleans()),
        parts=draw(st.lists(st.integers(NONE, index - 1), max_size=2)),
        text=draw(maybe),
    )


def of(kind: type[Any], strings: int = 0, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Any value of a record, its fields by their types but for those `given`."""
    number = st.integers(NONE, strings - 1)
    by_type: dict[str, st.SearchStrategy[Any]] = {
        "str": texts,
        "bool": st.booleans(),
        "int": st.integers(0, 2**50),
        "float": st.floats(allow_nan=False),
        "Text": number,
        "list[Text]": st.lists(number, max_size=2),
        "list[int]": st.lists(st.integers(0, 2**40), max_size=2),
        "int | str": st.integers(0, 99) | texts,
        "dict[str, int]": st.dictionaries(texts, st.integers(0, 99), max_size=2),
        "dict[str, int | float]": st.dictionaries(texts, st.integers(0, 99) | st.floats(allow_nan=False), max_size=2),
        "dict[str, Text]": st.dictionaries(texts, number, max_size=2),
        "int | None": st.none() | st.integers(0, 2**50),
        "list[str]": st.lists(texts, max_size=2),
        "list[int | str]": st.lists(st.integers(0, 99) | texts, max_size=3),
        "dict[str, str]": st.dictionaries(texts, texts, max_size=2),
        "dict[str, dict[str, list[str]]]": st.dictionaries(
            texts, st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2), max_size=1
        ),
    }

    def field(annotation: str) -> st.SearchStrategy[Any]:
        record = annotation.removeprefix("list[").removesuffix("]")
        if annotation not in by_type and hasattr(schema, record):
            return st.lists(of(getattr(schema, record), strings), max_size=2)
        return by_type[annotation]

    fields = {
        name: given[name] if name in given else field(kind.__annotations__[name]) for name in kind.__struct_fields__
    }
    return st.builds(kind, **fields)


@st.composite
def storage(draw: st.DrawFn) -> schema.StorageRecord:
    count = draw(st.integers(0, 3))
    tensors = [draw(of(schema.AliasTensor, view_of=st.integers(NONE, index - 1))) for index in range(count)]
    write = of(schema.StorageWrite, tensor=st.integers(0, count - 1)) if count else st.nothing()
    return draw(of(schema.StorageRecord, tensors=st.just(tensors), writes=st.lists(write, max_size=2 if count else 0)))


@st.composite
def run(draw: st.DrawFn, strings: int) -> schema.RunLog:
    count = draw(st.integers(0, 3))
    facts = st.lists(of(schema.RunFact, strings), max_size=2)
    tensor = st.integers(NONE, count - 1)
    event = of(schema.RunEvent, strings, tensor=tensor, of=tensor, made=facts)
    names = draw(st.lists(st.integers(NONE, strings - 1), min_size=count, max_size=count))
    return schema.RunLog(names, draw(st.lists(event, max_size=3)))


@st.composite
def visits(draw: st.DrawFn) -> list[schema.VisitRecord]:
    count = draw(st.integers(0, 3))
    which = st.lists(st.integers(0, count - 1), max_size=2) if count else st.just([])
    return [draw(of(schema.VisitRecord, waits_for=which)) for _ in range(count)]


@st.composite
def compilation(draw: st.DrawFn, number: int, strings: int) -> schema.CompilationData:
    values = [draw(value(index, strings)) for index in range(draw(st.integers(0, 3)))]
    graphs = draw(st.lists(graph(strings, len(values)), max_size=3))
    held = st.dictionaries(texts, st.integers(0, len(graphs) - 1), max_size=2) if graphs else st.just({})
    evidence = st.lists(of(schema.Evidence), max_size=2)
    notes = st.lists(st.builds(schema.WrapperNote, st.just(1), st.integers(1, 9), texts, texts), max_size=2)
    return draw(
        of(
            schema.CompilationData,
            strings,
            log=st.just(NONE),
            id=st.just(str(number)),
            stages=st.lists(of(schema.StageRecord, graphs=held, evidence=evidence), max_size=3),
            graphs=st.just(graphs),
            values=st.just(values),
            inputs=st.lists(of(schema.InputRecord, storage=st.integers(NONE, 9)), max_size=2),
            outputs=st.lists(of(schema.OutputRecord), max_size=2),
            saved_tensors=st.lists(of(schema.SavedTensorRecord), max_size=2),
            recomputed=st.lists(of(schema.RecomputedRecord), max_size=2),
            storages=st.lists(storage(), max_size=2),
            visits=visits(),
            run=st.none() | run(strings),
            wrapper=st.none() | of(schema.WrapperRecord, notes=notes),
            error=st.none() | of(schema.ErrorRecord),
            cache=st.none() | of(schema.CacheAnswer, saved_at_unix_s=st.floats(0, 2e9)),
            replayed=st.none() | of(schema.ReplayRecord, saved_at_unix_s=st.floats(0, 2e9)),
        )
    )


@st.composite
def timeline(draw: st.DrawFn, strings: int, logs: int, compilations: int) -> schema.EventTable:
    rows = draw(st.integers(0, 3))

    def column(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(each, min_size=rows, max_size=rows))

    text, time = st.integers(NONE, strings - 1), st.floats(-1, 1e16)
    return schema.EventTable(
        name=column(text),
        start_us=column(time),
        duration_us=column(time),
        parent=column(st.integers(NONE, rows - 1)),
        compilation=column(st.integers(NONE, compilations - 1)),
        log=column(st.integers(0, logs - 1)) if logs else column(st.just(NONE)),
        line=column(st.integers(1, 99)),
        thread=column(st.integers(0, 99)),
        args=column(text),
    )


@st.composite
def recordings(draw: st.DrawFn) -> schema.RecordingData:
    """Any valid recording, small."""
    strings = draw(st.lists(texts, min_size=1, max_size=5, unique=True))
    compilations = [draw(compilation(number, len(strings))) for number in range(draw(st.integers(0, 2)))]
    logs = draw(st.lists(of(schema.LogRecord, bad=st.lists(of(schema.BadLine), max_size=1)), max_size=2))
    origin = of(
        schema.Origin,
        log=st.integers(NONE, len(logs) - 1),
        compilation=st.integers(NONE, len(compilations) - 1),
    )

    def rows(kind: type[Any], **given: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of(kind, len(strings), origin=origin, **given), max_size=1))

    return schema.RecordingData(
        FORMAT,
        VERSION,
        draw(st.dictionaries(texts, texts, max_size=2)),
        strings,
        compilations,
        draw(st.integers(0, 9)),
        notes=draw(st.lists(texts, max_size=1)),
        logs=logs,
        guards=rows(schema.GuardRecord),
        recompiles=rows(schema.RecompileRecord, reasons=st.lists(of(schema.RecompileReason, len(strings)), max_size=2)),
        cache_lookups=rows(schema.CacheLookup),
        graph_breaks=rows(schema.GraphBreak),
        metrics=rows(schema.MetricsRecord),
        events=draw(timeline(len(strings), len(logs), len(compilations))),
        shapes=rows(schema.ShapeRecord),
        storages=rows(schema.StorageDescription),
        tensors=rows(schema.TensorDescription),
        collectives=rows(schema.CollectiveSchedule),
        artifacts=rows(schema.ArtifactRecord),
    )
