"""Where CUDA graphs were asked for and skipped, and why.

With CUDA graphs a program is launched as one; without, each kernel is launched by Python, which a small model feels. A
skip raises nothing: torch prints a warning and counts it among the metrics of the compilation. Of a program whose
tensors are all on the CPU it says nothing at all; that CUDA graphs were asked for is in the key of Inductor's cache,
and, where no key was made, in the text with which torch can run the graph again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from aotviz.explain.cures import cuda_graph_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.explanation import Point, counted, sentence
from aotviz.explain.misses import own_line
from aotviz.explain.rows import Facts
from aotviz.recording.sources import user_frames

REASON = "cudagraph_skip_reason"  # the last of a compilation, in its metrics
ON = "fx_kwargs[cudagraphs]: BoxedBool(value=True)"  # a part of the key of Inductor's cache
CPU_INPUT = re.compile(r"example_inputs\[\d+\]: TensorMetadata\(.*device=device\(type='cpu'")
INPUT = "example_inputs["
RUNNABLE, SET = "fx_graph_runnable", re.compile(r"^\s*torch\._inductor\.config\.triton\.cudagraphs = True$", re.M)
GRAPHS = frozenset({"aot_inference_graph", "aot_forward_graph", "aot_joint_graph"})
DEVICE = re.compile(r'\w: "\w+\[[^"\n]*\](?P<device>[a-z]+)(?::\d+)?"')  # of a value in a printed graph
ASKED_FOR = re.compile(r"override_cudagraphs annotation")
PREFIX = re.compile(r"^(?:(?:skipping|disabling) cudagraphs? due to )+")
SENTENCES: tuple[tuple[str, str, Advice], ...] = (  # what torch says, in words, what to do; the first that matches
    (
        r"^mutated inputs \((?P<count>\d+) ",
        "it writes {count} of its inputs, and a replayed graph would write the memory of the first call",
        cuda_graph_cures.WRITTEN_INPUT.said(),
    ),
    (r"^input storage mutation", "it changes the storage of an input (`set_` or `resize_`)", NO_ADVICE),
    (
        r"^cpu device \((?P<node>[^)]*)\)",
        "`{node}` is a tensor on the CPU, and a graph can contain only what runs on the GPU",
        cuda_graph_cures.CPU_TENSOR.said(),
    ),
    (r"^multiple devices: (?P<devices>.*)", "it uses several devices: {devices}", NO_ADVICE),
    (
        r"symbolic shapes inputs",
        "its sizes are symbolic, and `torch._inductor.config.triton.cudagraph_skip_dynamic_graphs` is True",
        NO_ADVICE,
    ),
    (r"^incompatible op (?P<op>\S+)", "`{op}` cannot be part of a CUDA graph", NO_ADVICE),
    (r"non-Tensor inputs", "one of its inputs is not a tensor", NO_ADVICE),
    (r"re-recording limit", "it was recorded again too often: the addresses of its inputs change", NO_ADVICE),
)
ALL_ON_THE_CPU = (
    "its inputs are all on the CPU, and a graph can contain only what runs on the GPU",
    cuda_graph_cures.CPU_ONLY.said(),
    "",
    "",
)


def points(facts: Facts) -> list[Point]:
    """One point for each reason and line."""
    met: dict[tuple[str, Advice, str, str], list[int]] = defaultdict(list)
    for record in facts.data.metrics:
        said = facts.text(record.texts.get(REASON, -1))
        if said and record.origin.compilation >= 0 and not ASKED_FOR.search(said):
            met[read(said)].append(record.origin.compilation)
    skipped = {place for places in met.values() for place in places}
    if silent := sorted({*_on_the_cpu(facts)} - skipped):
        met[ALL_ON_THE_CPU].extend(silent)
    found = []
    for (words, fix, code, place), places in met.items():
        ids = tuple(dict.fromkeys(map(facts.id, places)))
        names = [f"`{name}`" for name in dict.fromkeys(map(facts.function, places))]
        more = f" and {counted(len(names) - 1, 'other function')}" if len(names) > 1 else ""
        told = f"No CUDA graph was made of {names[0]}{more} because {words}"
        alone = "Each of its kernels is launched by itself in every call"
        effect = "It runs as it does without CUDA graphs" if fix == ALL_ON_THE_CPU[1] else alone
        point = Point(sentence(told, effect), code, place, fix, kind="CUDA graph", title=told, ids=ids)
        found.append(point)
    return found


def _on_the_cpu(facts: Facts) -> Iterator[int]:
    """The compilations for which CUDA graphs were asked for, though all their inputs are on the CPU."""
    known: dict[int, str] = {}  # text -> what it tells: "on", "cpu", "other" or ""
    for lookup in facts.data.cache_lookups:
        if lookup.origin.compilation < 0:
            continue
        for component in lookup.components:
            if component not in known:
                known[component] = _part(facts.text(component))
        found = {known[component] for component in lookup.components}
        if {"on", "cpu"} <= found and "other" not in found:
            yield lookup.origin.compilation
    runnable = (one for one in facts.data.artifacts if facts.text(one.name) == RUNNABLE)
    for place in {one.origin.compilation for one in runnable if SET.search(facts.text(one.text))}:
        graphs = (facts.text_of(place, kind) for kind in GRAPHS)
        devices = {device for graph in graphs if graph >= 0 for device in DEVICE.findall(facts.text(graph))}
        if place >= 0 and devices == {"cpu"}:
            yield place


def _part(text: str) -> str:
    """
    >>> _part("fx_kwargs[cudagraphs]: BoxedBool(value=True)"), _part("fx_kwargs[cudagraphs]: BoxedBool(value=False)")
    ('on', '')
    >>> _part("example_inputs[0]: TensorMetadata(dtype=torch.float32, device=device(type='cuda', index=0))")
    'other'
    """
    if text.startswith(INPUT) and "TensorMetadata(" in text:
        return "cpu" if CPU_INPUT.match(text) else "other"
    return "on" if text.strip() == ON else ""


def read(said: str) -> tuple[str, Advice, str, str]:
    """(why, what to do, the user's line, where it is)."""
    reason, _, stack = PREFIX.sub("", said).partition("Found from")
    reason = reason.strip(" .\n")
    line = own_line(user_frames(stack))
    code, place = (line.code, str(line)) if line.line else ("", "")
    for pattern, words, fix in SENTENCES:
        if match := re.search(pattern, reason):
            return words.format(**match.groupdict()), fix, code, place
    return f"torch says: {reason.splitlines()[0] if reason else 'nothing'}", NO_ADVICE, code, place
