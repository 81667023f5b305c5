"""Why a compiled function may compute something else than eager does, though nothing failed while it was compiled.

A log tells what was compiled and not what it computed, so it cannot say that results differ. It does have three things
that make them differ:

- A custom operator that is declared to write nothing is left out where no operator reads its result. If it writes one
  of its arguments, or does anything else than to return a result, that is lost.
- Inductor draws random numbers of its own, which are not eager's, also with the same seed.
- Inductor computes a chain of operators on bfloat16 or float16 in float32, where eager rounds after each of them.

The first is a point. The other two are as they should be, and matter only where results are compared with eager's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotviz.explain.cures import result_cures
from aotviz.explain.cures.registry import Advice
from aotviz.explain.explanation import Point, counted, sentence
from aotviz.explain.misses import LIBRARY
from aotviz.explain.rows import GRAPH_LINE, Facts
from aotviz.recording.sources import UNKNOWN, SourceLine

CAPTURED, TRACED = "dynamo_output_graph", ("aot_joint_graph", "aot_forward_graph", "aot_inference_graph")
LOWERED, RUNNABLE = "inductor_post_grad_graph", "fx_graph_runnable"
TORCHS = (
    r"aten|prims?|higher_order|inductor|profiler|rng_prims|streams|symm_mem|mkldnn|onednn|quantized\w*|c10d\w*|_\w+"
)
CUSTOM = re.compile(rf"^\s+(?P<result>\w+)(?:: [^=]*)? = torch\.ops\.(?P<name>(?!(?:{TORCHS})\.)\w+\.\w+)[.(]")
GENERATED = "inductor_output_code"
CALLED, NARROW_TYPES = "torch.ops.", ("bf16[", "f16[")
RANDOM, PRECISE = "fallback_random", "emulate_precision_casts"
SET = re.compile(  # in the text that runs the graph again, and in a key of Inductor's cache
    rf"^\s*torch\._inductor\.config\.({RANDOM}|{PRECISE}) = True$|^inductor_config\[({RANDOM}|{PRECISE})\]: True$", re.M
)
CALLS = re.compile(r"\b(?:prims\.inductor_random|rand\w*\(|\w*dropout\w*\(|bernoulli\w*\(|normal_?\(|uniform_\()")
DRAWS = re.compile(r"\binductor_seeds?\b|\b(?:normalized_)?rand(?:n|int64)?_cpu\(|\btl\.rand")  # in generated code
NARROW = re.compile(r'^\s+(?P<name>\w+): "(?:bf16|f16)\[')  # a value of bfloat16 or float16 in a printed graph
OF_INPUT = re.compile(r"convert_element_type\.default\((?:arg\d|primals_)")  # eager rounds it too
FUSED = re.compile(  # operators that Inductor puts into one kernel with those that read them
    r"= torch\.ops\.(?:aten\.(?:add|sub|rsub|mul|div|neg|exp|log|log1p|expm1|sigmoid|tanh|relu|sin|cos|sqrt|rsqrt|pow"
    r"|abs|clamp\w*|where|maximum|minimum|erf|reciprocal|square|mean|sum|amax|amin)\.|prims\.convert_element_type\.)"
    # the same as Dynamo captured them
    r"|= \w+ (?:[-+*/]|\*\*) |= \w+\.(?:sigmoid|exp|log|tanh|relu|sin|cos|sqrt|rsqrt|pow|abs|clamp|mean|sum|square)\("
)


@dataclass(frozen=True)
class Reason:
    """Why results may differ from eager's, although nothing is wrong."""

    text: str  # the end of a sentence on the results
    fix: Advice
    line: SourceLine  # UNKNOWN if it is a library's


def left_out(facts: Facts) -> Iterator[Point]:
    """One point for each custom operator whose call AOTAutograd left out, and each line that calls it."""
    found: dict[tuple[str, str], tuple[SourceLine, list[int]]] = {}
    for place in range(len(facts.data.compilations)):
        captured = facts.text(facts.text_of(place, CAPTURED))
        if CALLED not in captured:
            continue
        traced = next((text for kind in TRACED if (text := facts.text(facts.text_of(place, kind)))), "")
        for name, line in _unread_calls(captured) if traced else ():
            if f"{CALLED}{name}" not in traced:
                found.setdefault((name, str(line)), (line, []))[1].append(place)
    for (name, _), (line, places) in found.items():
        operator = name.replace(".", "::")
        function = facts.users_function(places[0])
        title = f"the call of `{operator}` is left out of `{function}`: it is declared to write nothing"
        why = "Nobody reads its result, so a program without it is the same if the declaration is right"
        lost = "What else it does, such as a write to an argument, happens in eager and not in the compiled function"
        fix = result_cures.UNDECLARED.said(name=operator)
        ids = tuple(dict.fromkeys(map(facts.id, places)))
        yield Point(sentence(title, why, lost), line.code, str(line), fix, True, kind="failed", title=title, ids=ids)


def _unread_calls(graph: str) -> Iterator[tuple[str, SourceLine]]:
    """The custom operators that a captured graph calls without reading what they return.

    >>> list(_unread_calls('''    a = torch.ops.my.log(x);  a = None
    ...     b = torch.ops.my.twice(x)
    ...     return (b,)'''))[0][0]
    'my.log'
    """
    statements, line = graph.splitlines(), UNKNOWN
    for number, statement in enumerate(statements):
        if match := GRAPH_LINE.search(statement):
            line = SourceLine(match["file"], int(match["line"]), match["function"], match["code"].strip())
        elif match := CUSTOM.match(statement):
            read = rf"\b{match['result']}\b(?! = )"
            if not any(re.search(read, later.partition(";  ")[0]) for later in statements[number + 1 :]):
                yield match["name"], line


def reasons(facts: Facts) -> list[Reason]:
    """Why the results of some function may differ from eager's: each reason once, at its first line."""
    found: dict[str, Reason] = {}
    for place in range(len(facts.data.compilations)):
        texts: dict[str, list[str]] = defaultdict(list)  # of the forward and of the backward
        for one in facts.about(place, facts.data.artifacts):
            texts[facts.text(one.name) if facts.text(one.type) == "artifact" else facts.text(one.type)].append(
                facts.text(one.text)
            )
        if not texts[GENERATED]:
            continue
        graphs = texts[LOWERED] or texts[CAPTURED]  # a program that came from a cache has no graph but Dynamo's
        draws = RANDOM not in found and any(map(DRAWS.search, texts[GENERATED]))
        chained = [line for graph in graphs for line in _chained(graph)] if PRECISE not in found else []
        if not draws and not chained:
            continue
        settings, name = set(_set(facts, place, texts[RUNNABLE])), facts.called(place)
        if draws and RANDOM not in settings:
            told = f"{name} draws random numbers, and Inductor's are not eager's, also with the same seed"
            line = next((line for graph in graphs if (line := _first(graph, CALLS)).line), UNKNOWN)
            found[RANDOM] = Reason(told, result_cures.RANDOM.said(), line)
        if chained and PRECISE not in settings:
            kept = counted(len(chained), "value") + " of bfloat16 or float16"
            told = f"{name} computes with {kept} that Inductor keeps in float32 and eager rounds"
            found[PRECISE] = Reason(told, result_cures.PRECISION.said(), chained[0])
    return list(found.values())


def _set(facts: Facts, place: int, runnable: Sequence[str]) -> Iterator[str]:
    """The settings that make results equal to eager's and that are on."""
    keys = (facts.text(part) for lookup in facts.about(place, facts.data.cache_lookups) for part in lookup.components)
    for text in (*runnable, *keys):
        for names in SET.findall(text):
            yield from filter(None, names)


def _first(graph: str, operator: re.Pattern[str]) -> SourceLine:
    line = UNKNOWN
    for statement in graph.splitlines():
        if match := GRAPH_LINE.search(statement):
            line = SourceLine(match["file"], int(match["line"]), match["function"], match["code"].strip())
        elif operator.search(statement):
            return UNKNOWN if LIBRARY.search(line.file) else line
    return UNKNOWN


def _chained(graph: str) -> list[SourceLine]:
    """The lines of the narrow values that a fused operator makes and another one reads.

    >>> len(_chained('''    a: "bf16[2]" = torch.ops.aten.mul.Tensor(x, y)
    ...     b: "bf16[2]" = torch.ops.aten.add.Tensor(a, x)
    ...     return (b,)'''))
    1
    """
    if not any(name in graph for name in NARROW_TYPES):
        return []
    made: dict[str, SourceLine] = {}
    found: dict[str, SourceLine] = {}
    line = UNKNOWN
    for statement in graph.splitlines():
        if match := GRAPH_LINE.search(statement):
            line = SourceLine(match["file"], int(match["line"]), match["function"], match["code"].strip())
            continue
        if not FUSED.search(statement):
            continue
        read = statement.partition(" = ")[2].partition(";  ")[0]
        found |= {name: made[name] for name in re.findall(r"\w+", read) if name in made}
        narrow = NARROW.match(statement)
        if narrow and not OF_INPUT.search(read):
            made[narrow["name"]] = UNKNOWN if LIBRARY.search(line.file) else line
    return list(found.values())
