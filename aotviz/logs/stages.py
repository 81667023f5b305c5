"""The graphs and generated code of one of torch's compilations, as the stages of a pipeline, like our own recordings.

Torch logs each text when it has been made, with the compile id, but without a stage. The order and the record types
tell which stage a text belongs to. If a stage has several graphs (a backward after a forward; a model that DDP split),
they are distinguished by their content and then by number: "forward", "forward 2".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from aotviz.logs import known
from aotviz.recording.schema import ArtifactRecord, GraphSnapshot, StageRecord, WrapperRecord
from aotviz.recording.spoken import HASH

# Events of the timeline -> the stage whose time they count for.
EVENTS = {
    "bytecode_tracing": "dynamo",
    "_recursive_pre_grad_passes": "pre-grad passes",
    "aot_trace_joint_graph": "joint",
    "min_cut_rematerialization_partition": "partition",
    "_recursive_joint_graph_passes": "joint passes",
    "_recursive_post_grad_passes": "post-grad passes",
    "GraphLowering.run": "lower",
    "GraphLowering.compile_to_fn": "lower",
}
WHAT = {  # stage -> what it is, for the summary
    "dynamo": "what Dynamo captured of the Python function",
    "compiled autograd": "the backward as compiled autograd captured it from the engine",
    "before reordering": "compiled autograd's graph before its passes",
    "DDP split": "split at the buckets of DistributedDataParallel",
    "before pre-grad passes": "as Inductor received it",
    "pre-grad passes": "after Inductor's passes on what Dynamo captured",
    "joint": "forward and backward in one graph",
    "before joint passes": "the joint graph as Inductor received it",
    "joint passes": "after Inductor's passes on the joint graph",
    "partition": "partitioned into forward and backward",
    "inference": "the graph of operators; no gradient is needed",
    "before post-grad passes": "as Inductor received it from AOTAutograd",
    "post-grad passes": "after Inductor's last passes, before lowering",
    "lower": "the code that Inductor generated",
    "runnable": "a script that runs the graph on its own",
    "wrapper": "what AOTAutograd generated around the graphs",
    "export": "the exported program",
    "traced until it failed": "what was traced before the error",
}


WRAPPER_CODE = "inductor_aot_wrapper_code"  # AOTInductor's text that calls the kernels, which are in a second text


class KernelNodes(msgspec.Struct):
    """The part of Inductor's provenance record that is read."""

    cppCodeToPost: dict[str, list[str]] = {}


SAME = "its nodes are those of the stage before"

OWN_WRAPPER, OURS = "runtime_wrapper_orchestration", "aotviz"  # the artifact, and the field that only aotviz writes
AOT_ID = re.compile(r"AOT ID: \['[^'\n]{0,60}?(?P<role>forward|backward|inference)")
TANGENT = re.compile(r"\btangents_\d+\b")
PRIMAL = re.compile(r"\bprimals_\d+\b")
HEAD = 100_000  # a graph's placeholders are in the first so many characters of its text


def assemble(
    artifacts: Sequence[ArtifactRecord], strings: Sequence[str], attempts: int, started_unix_ns: int
) -> tuple[list[StageRecord], list[int]]:
    """(stages, the text number of each graph). A stage of an abandoned attempt has the attempt in its name."""
    made: dict[str, StageRecord] = {}
    texts: list[int] = []
    for artifact in artifacts:
        label = label_of(artifact, strings)
        stage, role = known.GRAPHS.get(label, (known.CODE.get(label, ""), ""))
        if not stage or artifact.text < 0:
            continue
        origin = artifact.origin
        name = stage if origin.attempt >= attempts - 1 else f"{stage} (attempt {origin.attempt})"
        if name not in made:
            started = max(0, origin.unix_ns - started_unix_ns) if origin.unix_ns and started_unix_ns else 0
            made[name] = StageRecord(name, "", "", True, False, started, 0, {}, [], {}, {})
        if role:
            role = role_of(strings[artifact.text]) if role == "?" else role
            made[name].graphs[free(role, made[name].graphs)] = len(texts)
            texts.append(artifact.text)
        elif label == known.KERNEL_NODES:
            if code := made[name].code:  # it belongs to the code that was logged just before
                calling = WRAPPER_CODE if WRAPPER_CODE in code else list(code)[-1]
                made[name].kernels[calling] = kernel_nodes(strings[artifact.text])
        else:
            called = strings[artifact.name].rpartition("/")[2] if artifact.name >= 0 else ""
            text, code = strings[artifact.text], made[name].code
            if HASH.match(called):  # Inductor names its file after what is in it
                called = kernels_of(text)
            code[free(called or label.removeprefix("artifact/"), code)] = text
    return list(made.values()), texts


def kernels_of(text: str) -> str:
    """The name of Inductor's code for a graph, which says the graph's role at its beginning.

    >>> kernels_of("# AOT ID: ['0_backward']"), kernels_of("import torch")
    ('inductor backward', 'inductor')
    """
    role = AOT_ID.search(text[:200])
    return f"inductor {role['role']}" if role else "inductor"


def kernel_nodes(text: str) -> dict[str, list[str]]:
    """Which nodes each call of a kernel computes, from Inductor's provenance record; {} if it cannot be read.

    >>> kernel_nodes('{"cppCodeToPost": {"extern_kernels.mm:1": ["mm"]}}')
    {'extern_kernels.mm:1': ['mm']}
    """
    try:
        return msgspec.json.decode(text, type=KernelNodes).cppCodeToPost
    except msgspec.DecodeError:
        return {}


def own_wrapper(artifacts: Iterable[ArtifactRecord], strings: Sequence[str]) -> WrapperRecord | None:
    """The wrapper of a function that aotviz compiled in this job, with the reasons for its lines; else None."""
    for artifact in artifacts:
        if artifact.name >= 0 and artifact.text >= 0 and artifact.fields >= 0 and strings[artifact.name] == OWN_WRAPPER:
            try:
                told = msgspec.json.decode(strings[artifact.fields], type=dict[str, WrapperRecord]).get(OURS)
            except msgspec.DecodeError:
                return None
            return replace(told, source=strings[artifact.text]) if told is not None else None
    return None


def elapsed_ns(events: Iterable[tuple[str, float]]) -> dict[str, int]:
    """The time of each stage, from (name, duration in microseconds) of each event. Unfinished events do not count.

    >>> elapsed_ns([("GraphLowering.run", 2.0), ("GraphLowering.compile_to_fn", 5.0), ("gc", 9.0)])
    {'lower': 7000}
    """
    total: dict[str, int] = {}
    for name, duration_us in events:
        stage = EVENTS.get(name)
        if stage is not None and 0 < duration_us < 1e12:
            total[stage] = total.get(stage, 0) + int(duration_us * 1000)
    return total


def described(stage: StageRecord, before: Mapping[str, GraphSnapshot], now: Mapping[str, GraphSnapshot]) -> StageRecord:
    """The stage with a summary of what it changed. `before` and `now` are the graphs by role."""
    what = WHAT.get(stage.name.partition(" (attempt")[0], stage.name)
    if not stage.graphs:
        texts = f"{len(stage.code)} text{'' if len(stage.code) == 1 else 's'} of code"
        return replace(stage, summary=f"{what}; {texts}")
    parts = []
    for role, graph in now.items():
        nodes = f"{len(graph.op):,} nodes"
        if role not in before:
            parts.append(f"{role}: {nodes}")
        elif not same(before[role], graph):
            parts.append(f"{role}: {len(before[role].op):,} to {nodes}")
    return replace(stage, summary="; ".join([what, *(parts or [SAME])]), changed=bool(parts))


def same(one: GraphSnapshot, other: GraphSnapshot) -> bool:
    """Whether two graphs have the same nodes in the same order; names and comments may differ."""
    return (one.op, one.target, one.args, one.kwargs) == (other.op, other.target, other.args, other.kwargs)


def label_of(artifact: ArtifactRecord, strings: Sequence[str]) -> str:
    """The record's type, as in known.py."""
    kind = strings[artifact.type]
    return f"{kind}/{strings[artifact.name]}" if kind == "artifact" and artifact.name >= 0 else kind


def role_of(text: str) -> str:
    """The role of one of Inductor's graphs, by its placeholders.

    >>> role_of("def forward(self, primals_1): ..."), role_of("def forward(self, primals_1, tangents_1): ...")
    ('forward', 'backward')
    """
    head = text[:HEAD]
    if TANGENT.search(head):
        return "backward"
    return "forward" if PRIMAL.search(head) else "inference"


def free(name: str, taken: Mapping[str, object]) -> str:
    """
    >>> free("forward", {"forward": 0, "forward 2": 1})
    'forward 3'
    """
    if name not in taken:
        return name
    number = 2
    while f"{name} {number}" in taken:
        number += 1
    return f"{name} {number}"
