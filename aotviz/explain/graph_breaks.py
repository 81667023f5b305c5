"""Graph breaks, one for each place: how often, on which line of the user's program, why, and what to do.

A log repeats a break: Dynamo reaches it in each attempt and in each compilation of a function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from aotviz.explain import advice, error_texts, explained_tables
from aotviz.explain.cures import break_cures, export_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice, Cure
from aotviz.explain.explanation import Explanation, Point, counted, listed, sentence
from aotviz.explain.misses import LIBRARY, own_line, shortened
from aotviz.explain.rows import Facts
from aotviz.recording.schema import GraphBreak
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames

if TYPE_CHECKING:
    from aotviz.explain.marked_frame import ExplainedTable

ENTERED = "it enters a context manager that torch cannot compile"
KINDS: tuple[tuple[str, str, Cure | None], ...] = (  # what torch says, what it means, its cure; the first that matches
    (
        r"Data-dependent branching|data-dependent (?:branch|jump)|generic_jump TensorVariable",
        "the program branches on a tensor's value, which is not known while compiling",
        break_cures.BRANCH,
    ),
    (
        r"Tensor\.backward\(\)",
        "`backward()` cannot be part of a graph",
        break_cures.BACKWARD,
    ),
    (
        r"trace_autograd_ops",
        "`torch.autograd.grad` is not part of a graph unless a setting allows it",
        break_cures.AUTOGRAD_OPS,
    ),
    (
        r"`requires_grad` through calling",
        "`requires_grad_()` changes whether a tensor requires grad, which cannot be part of a graph",
        break_cures.REQUIRES_GRAD,
    ),
    (
        r"tolist\(\)",
        "`tolist()` needs the tensor's values, which are not known while compiling",
        break_cures.TOLIST,
    ),
    (
        r"Tensor\.item\(\)|capture_scalar_outputs|\.item\(\)|`aten\._local_scalar_dense",
        "the program asks for a tensor's value as a Python number, which is not known while compiling",
        break_cures.ITEM,
    ),
    (
        r"does not support strided NestedTensor",
        "a nested tensor of the strided layout cannot be part of a graph",
        break_cures.NESTED,
    ),
    (
        r"how to iterate over `UserDefinedObjectVariable\(generator\)`",
        "it iterates over a generator that it is passed, which torch cannot compile",
        break_cures.ITERATED,
    ),
    (
        r"Operator `aten\.(?P<operator>equal|allclose)\.default` has a non-Tensor output",
        "`torch.{operator}` returns a Python bool that depends on the tensors' values, which are not known while "
        "compiling",
        break_cures.COMPARED,
    ),
    (
        r"Module-level backwards hooks require compiled autograd",
        "a module has a backward hook (`register_full_backward_hook`), which cannot be part of a graph",
        break_cures.MODULE_BACKWARD_HOOK,
    ),
    (
        r"Attempted to use `torch\.nn\.Parameter\(\)` constructor",
        "a parameter is made here, which cannot be part of a graph",
        break_cures.MADE_INSIDE,
    ),
    (
        r"that the function `(?P<what>\w+\.step)` in file `[^`\s]*torch/optim/lr_scheduler\.py`",
        "a learning-rate scheduler has put a wrapper around `{what}`, which torch does not trace",
        break_cures.SCHEDULED,
    ),
    (
        r"Operator `aten\.nonzero\.default`'s output shape",
        "`nonzero`, which indexing with a boolean mask calls too, has an output size that depends on data",
        break_cures.OUTPUT_SIZE,
    ),
    (
        r"Operator `(?:aten\.)?(?P<operator>[\w.]+?)(?:\.default)?`'s output shape",
        "the output size of `{operator}` depends on data",
        break_cures.OUTPUT_SIZE,
    ),
    (
        r"unsupported operator: (?P<space>\w{1,200})\.(?P<op>\w{1,200})\.\w{1,200}",
        "the operator `{name}` has no fake kernel, which torch runs in place of it while it compiles",
        export_cures.NO_FAKE,
    ),
    (
        r"capture_dynamic_output_shape_ops|[Dd]ynamic shape operator",
        "an operator's output size depends on data",
        break_cures.OUTPUT_SIZE,
    ),
    (
        r"Higher Order Operator: autograd\.Function\s[^$]*?Mutating a variable from outside",
        "an `autograd.Function` writes to something outside of it, a side effect that cannot be part of a graph",
        break_cures.WRITES_OUTSIDE,
    ),
    (
        r"HOP: Non-nullified side effect[^$]{0,300}?Explanation: Attribute '(?P<what>\w{1,99})'",
        "a region such as `torch.utils.checkpoint` runs here, and what it calls sets `{what}`, which is outside of it",
        break_cures.SIDE_EFFECT,
    ),
    (
        r"HOP: Unsafe side effect\s+(?:Higher Order Operator: torch\.utils\.checkpoint\S*\s+)?Explanation: Mutating",
        "a region such as `torch.utils.checkpoint` runs here, and what it calls changes something outside of it",
        break_cures.SIDE_EFFECT,
    ),
    (
        r"Calling (?P<what>torch\.func\.\w{1,20})\(compiled_fn\)",
        "`{what}` calls the compiled function from outside, where torch compiles none",
        break_cures.TRANSFORM,
    ),
    (
        r"does not support sparse Tensors",
        "sparse tensors cannot be part of a graph",
        break_cures.SPARSE,
    ),
    (
        r"call_function args: .{0,300}?UserDefinedObjectVariable\(Generator\)"
        r"|Opaque object type: <class 'torch\._C\.Generator'>|torch\.Generator method",
        "a `torch.Generator` cannot be part of a graph",
        break_cures.GENERATOR,
    ),
    (
        r"call_function args: .{0,300}?UserDefinedObjectVariable\((?P<what>\w{1,99}+)\)",
        "an argument of class `{what}` cannot be part of a graph",
        break_cures.SUBCLASS,
    ),
    (
        r"can only reorder functions where the arguments are",
        "this prints something else than tensors, numbers and strings, which cannot be put off to the end of the graph",
        break_cures.BUILTIN,
    ),
    (
        r"can only reorder functions that are called without keyword arguments",
        "this has a keyword argument, or prints something else than tensors, numbers and strings, which cannot be put "
        "off to the end of the graph",
        break_cures.BUILTIN,
    ),
    (
        r"Dynamo does not support RNN, GRU, or LSTM",
        "Dynamo leaves `nn.RNN`, `nn.GRU` and `nn.LSTM` out of graphs",
        break_cures.RECURRENT,
    ),
    (
        r"Backend compiler `(?P<what>[^`]+)` failed with (?P<error>.+?)\. Adding a graph break",
        "the backend `{what}` raised {error}",
        break_cures.OF_BACKEND,
    ),
    (
        r"builtin operator `print`",
        "`print` cannot be part of a graph",
        break_cures.PRINT,
    ),
    (
        r"<Logger [^>\n]{1,200}>\.(?P<method>isEnabledFor|getEffectiveLevel|hasHandlers)\b",
        "`{method}` of a logger cannot be part of a graph",
        break_cures.LOGGER_ASKED,
    ),
    (
        r"logging\.Logger|logging function",
        "a log message cannot be part of a graph",
        break_cures.LOGGING,
    ),
    (
        r"torch\.compiler\.disable",
        "it calls a function that is excluded from compilation by `torch.compiler.disable`",
        break_cures.DISABLED,
    ),
    (
        r"graph_break\(\)",
        "the program calls `torch._dynamo.graph_break()` here",
        break_cures.CALLED,
    ),
    (
        r"[Uu]nsupported context manager|context manager|"
        r"that the function `(?:[\w.]{1,200}\.__enter__|save_on_cpu\.__init__)`",
        ENTERED,
        break_cures.CONTEXT,
    ),
    (
        r"builtin operator `(?P<what>[\w.]+)`",
        "`{what}` is a built-in function that torch cannot compile",
        break_cures.BUILTIN,
    ),
    (
        r"Attempted to call (?P<what>[\w.]{1,99})\(\) with non-constant arg",
        "`{what}` is a built-in function that torch compiles for constants alone",
        break_cures.BUILTIN,
    ),
    (
        r"Observed exception[^$]*?raised exception (?P<what>\w{1,99})",
        "the program raises {what} while it is traced",
        break_cures.RAISES,
    ),
    (
        r"^step_unsupported$",
        "it calls something that torch cannot compile, where it cannot resume",
        None,
    ),
    (
        r"Dynamo recompile limit exceeded",
        "the function was compiled too many times; `recording.recompiles()` has the reasons",
        None,
    ),
    (
        r"that the function `(?P<what>manual_seed|seed|set_rng_state)` in file",
        "`{what}` changes the state of the random numbers, which cannot be part of a graph",
        break_cures.SEEDED,
    ),
    (
        r"how to trace the function `<class '(?P<what>[\w.]+)'>`",
        "torch cannot compile what `{what}` does",
        break_cures.BUILTIN,
    ),
    (
        r"builtin `_warnings\.warn",
        "`warnings.warn` cannot be part of a graph",
        break_cures.WARNING,
    ),
    (
        r"how to trace the (?:Python )?builtin `(?:<unknown module>\.)?(?P<what>[\w.]+?)\.?`",
        "`{what}` is a built-in function that torch cannot compile",
        break_cures.BUILTIN,
    ),
    (
        r"marked as skipped|skip(?:ped|files)|Attempted to inline function",
        "it calls a function of a library that torch does not compile",
        break_cures.SKIPPED,
    ),
)
# Torch's sentence in the text of a break. It may quote a value of several lines.
EXPLAINED = re.compile(r"Explanation: (.*?)(?=\n\s*(?:Hint: |Developer debug|\n)|\Z)", re.S)
FAKED = re.compile(  # torch's sentence on an operator that raised while its results' shapes were derived
    r"\bcall_\w++ (?:<(?:built-in )?(?:function|method) )?(?P<name>[\w.]{1,200}+)(?>.{0,2000}?"
    r": got (?P<error>\w{1,99})\(['\"])(?P<message>.{0,500}?)['\"]\)",
    re.S,
)
LOGGED = re.compile(r"method: <(?:Root)?Logger (?P<name>[\w.]{1,200}+) \(\w{1,20}+\)>\.(?P<method>\w{1,99}+)")
OF_CALLS = frozenset((break_cures.LOGGING, break_cures.PRINT, break_cures.WARNING))
SETTING, THREAD = "`torch._dynamo.config.", re.compile(r"/lib/python3\.\d+/threading\.py$")
CONSTRUCTED, ENTERS = re.compile(r"the function `\w+\.__init__` should not be traced"), re.compile(r"(?:async )?with\b")
SETTING_READ = re.compile(r"[<>]=? *(?P<name>self\.[a-z][\w.]*)\b(?!\()")  # an attribute that a condition compares with
ASSERTION = re.compile(  # with a value in its message
    r"assert\b.{1,300}?, ?(?:[fF][\"']|[\"'][^\"']{0,200}[\"'](?:\.format\(| % ))"
)
EXPERTS = re.compile(r"/transformers/\S+ expert_hit = ")
FORMATS = re.compile(r"""["'] ?%|\b(?:str|repr|format)\(|\.format\(|\b[fF]["']""")
NUMPY_RANDOM = re.compile(r"\b(?:np|numpy)\.random\.")
LOOP = re.compile(r"for\b.*?\bin range\(")
NO_HINT = re.compile(  # what torch adds to many kinds of breaks, or says of a name that the program does not have
    r"This graph break|It may be possible|Dynamo has detected|Please report|Your code may result in an error|"
    r"This is likely to be a Dynamo bug|Avoid calling `[\w.]+` in your code|If you believe"
)
SKIPPED = re.compile(r"[Ss]kipping the (?:function|frame)|frame skipped")


@dataclass(frozen=True)
class Break:
    """One place where graphs break for one reason."""

    place: str  # "model.py:18"
    code: str
    function: str
    caller: SourceLine  # the innermost line that is not a library's; UNKNOWN if the log has none
    words: str  # why, as the end of a sentence that begins with "because"
    fix: Advice
    skipped: bool  # the whole function runs in eager, not only this line
    compilations: tuple[str, ...]  # ids of those that reached it
    count: int  # how often the log reports it
    in_standard: bool  # it lies in a line of Python's own library, which `place` calls
    skipped_at: str = ""  # the place of a whole function that runs in eager, where others have its name
    called_apart: bool = False  # that function calls the one of this line, which is compiled by itself
    is_meant: bool = False  # nothing is to be mended: compiled autograd captures what `backward()` runs

    @property
    def of_library(self) -> bool:
        return bool(LIBRARY.search(self.place))

    @property
    def leaves_graph(self) -> bool:
        """Whether the call is one that Dynamo knows and leaves out of graphs: of a logger, `print`, a warning."""
        return bool(OF_CALLS & {*self.fix.cures})

    @property
    def mendable(self) -> bool:
        """Whether the user can do something about it: a library's line is not to be edited."""
        return (self.fix.of_caller or not self.of_library) and not self.is_meant


def find(facts: Facts) -> list[Break]:
    """Distinct breaks, the most frequent first."""
    groups: dict[tuple[str, str], list[GraphBreak]] = {}
    for record in facts.data.graph_breaks:
        key = (facts.text(record.place), meaning(facts.text(text_of(record)))[0])
        groups.setdefault(key, []).append(record)
    found = _once([_break(facts, place, records) for (place, _), records in groups.items()])
    return sorted(found, key=lambda one: (not one.skipped, -one.count, one.place))


def _once(breaks: Sequence[Break]) -> list[Break]:
    """The breaks, where those that one call into Python's own library meets inside of it are one.

    A call that cannot be part of a graph is left out of it; Dynamo then compiles what it calls, such as the functions
    of `logging`, and meets more. They end with the call.
    """
    found: dict[tuple[str, str], Break] = {}
    inside = {one.place for one in breaks if one.in_standard}
    for one in sorted(breaks, key=lambda one: one.in_standard):
        is_of_call = one.place in inside and (one.in_standard or one.leaves_graph)
        key = one.place, "" if is_of_call else one.words
        first = found.setdefault(key, one)
        if first is not one:
            ids = tuple(dict.fromkeys((*first.compilations, *one.compilations)))
            found[key] = replace(first, compilations=ids, count=first.count + one.count)
    return list(found.values())


# Python's own modules, and what torch has in place of some; their callers can be edited.
STANDARD = re.compile(r"/lib/python3\.\d+/(?!site-packages/)|/torch/_dynamo/polyfills/|^<frozen (?!runpy)")

COLUMNS: explained_tables.Columns = {
    "place": ("str", lambda one: one.place),
    "code": ("str", lambda one: one.code),
    "function": ("str", lambda one: one.function),
    "why": ("str", lambda one: one.words),
    "fix": ("str", lambda one: one.fix),
    "whole_function_in_eager": ("bool", lambda one: one.skipped),
    "count": ("int64", lambda one: one.count),
    "compilations": ("object", lambda one: one.compilations),
}


def frame(facts: Facts) -> ExplainedTable:
    """One row for each distinct break."""
    return explained_tables.table(COLUMNS, find(facts), marked=("code",))


def explain_one(facts: Facts, place: int) -> list[Point]:
    """The breaks that a compilation reached."""
    id = facts.id(place)
    return [_point(one) for one in find(facts) if id in one.compilations]


def explain_all(facts: Facts) -> Explanation:
    found = find(facts)
    if not found:
        return Explanation("There were no graph breaks.", ())
    total = sum(one.count for one in found)
    title = f"{counted(len(found), 'graph break')} in the program, reached {counted(total, 'time')}"
    own = [one for one in found if one.mendable or one.is_meant]
    theirs = [one for one in found if one not in own]
    return Explanation(title, (*map(_point, own), *([_of_libraries(theirs)] if theirs else ())))


def _of_libraries(breaks: Sequence[Break]) -> Point:
    """One point for all breaks that are no line of the user's."""
    modules = dict.fromkeys(map(_module, (one.place for one in breaks)))
    words = dict.fromkeys(one.words for one in breaks)
    lie = "lies" if len(breaks) == 1 else "lie"
    told = f"{counted(len(breaks), 'graph break')} {lie} inside {listed([f'`{name}`' for name in modules])}"
    times = f"Reached {counted(sum(one.count for one in breaks), 'time')}"
    text = sentence(f"{told}, because {'; and because '.join(words)}", times)
    caller = breaks[0].caller
    place = str(caller) if caller.line else breaks[0].place
    fix = break_cures.NOT_YOURS.said()
    return Point(text, caller.code, place, fix, kind="graph break", title=told, ids=_ids(breaks))


def _module(place: str) -> str:
    """The name of a library's module.

    >>> _module("/usr/lib/python3/site-packages/torch/optim/optimizer.py:79"), _module("torch/_dynamo/utils.py:3")
    ('torch.optim.optimizer', 'torch._dynamo.utils')
    """
    file = shortened(place).rpartition(":")[0]
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _point(one: Break) -> Point:
    if one.is_meant:
        text = sentence(f"The graph of `{one.function}` ends at `backward()`, as is meant: {one.words}")
        return Point(text, one.code, one.place)
    theirs = one.of_library and one.caller.line
    line = f"in a library's line ({shortened(one.place)}), which this line reaches," if theirs else "here"
    named = f"`{one.function}`" + (f" ({one.skipped_at})" if one.skipped_at else "")
    what = f"{named} runs entirely in eager" if one.skipped else f"The graph of `{one.function}` ends {line}"
    effect = f"`{one.function}` runs in eager" if one.skipped else f"the graph of `{one.function}` breaks"
    times = f"Reached {one.count} times" if one.count > 1 else ""
    apart = "This line is of a function that it calls, which is compiled by itself" if one.called_apart else ""
    text = sentence(f"{what} because {one.words}", apart, times)
    title, ids = f"{effect}: {one.words}", one.compilations
    code, place = (one.caller.code, str(one.caller)) if theirs else (one.code, one.place)
    return Point(text, code, place, one.fix, one.skipped, kind="graph break", title=title, ids=ids)


def _ids(breaks: Sequence[Break]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(id for one in breaks for id in one.compilations))


def _break(facts: Facts, place: str, records: Sequence[GraphBreak]) -> Break:
    first = records[0]
    text = facts.text(text_of(first))
    words, fix = meaning(text)
    last = _statement(facts.text(first.stack))
    own = _own_line(facts, first) if STANDARD.search(str(last)) else None
    if own is not None:
        last = own
        fix = fix if OF_CALLS & {*fix.cures} else break_cures.BUILTIN.said()
    if break_cures.ITEM in fix.cures and LOOP.match(last.code):
        fix = break_cures.STEPS.said()
    elif break_cures.BRANCH in fix.cures and last.code.startswith("while "):
        fix = break_cures.WHILE.said()
    elif break_cures.BRANCH in fix.cures and ASSERTION.match(last.code):
        words = "this assertion has a value in its message, and so branches on a tensor's value, which is not known"
        fix = break_cures.ASSERTION.said()
    elif break_cures.ITEM in fix.cures and NUMPY_RANDOM.search(last.code):
        words, fix = "NumPy draws a number here, which cannot be part of a graph", break_cures.NUMPY_RANDOM.said()
    elif break_cures.ITEM in fix.cures and FORMATS.search(last.code):
        fix = break_cures.FORMATTED.said()
    elif break_cures.BRANCH in fix.cures and (name := _of_numpy(facts, first.origin.compilation, last.code)):
        words, fix = f"it branches on `{name}`, a value of NumPy", break_cures.NUMPY_FLAG.said(name=name)
    elif EXPERTS.search(f"{last} {last.code}"):
        fix = break_cures.EXPERTS.said()
    elif break_cures.BRANCH in fix.cures and LIBRARY.search(str(last)) and (read := SETTING_READ.search(last.code)):
        fix = break_cures.LIBRARYS_BRANCH.said(name=read["name"])
    if SETTING in fix and any(THREAD.search(frame.file) for frame in user_frames(facts.text(first.stack))):
        fix = fix.together_with(break_cures.OF_THREAD.said())
    is_meant = break_cures.BACKWARD in fix.cures and facts.is_captured_whole(first.origin.compilation)
    if is_meant:
        words, fix = "compiled autograd captures a backward that is called in a compiled function", NO_ADVICE
    ids = dict.fromkeys(facts.id(record.origin.compilation) for record in records if record.origin.compilation >= 0)
    if CONSTRUCTED.search(text) and ENTERS.match(last.code):
        words, fix = ENTERED, break_cures.CONTEXT.said()
    is_whole = bool(SKIPPED.search(text.partition("User code traceback")[0]))
    compiled = first.origin.compilation
    skipped = is_whole and (own is None or own.function == facts.function(compiled))
    others = _others_of_its_name(facts, compiled) if skipped else set()
    return Break(
        place=str(last) or place,
        code=last.code,
        function=last.function if last.function and not skipped else facts.users_function(compiled),
        caller=own_line(user_frames(facts.text(first.stack))),
        words=words,
        fix=fix.where(full=False, of_library=bool(LIBRARY.search(str(last) or place))),
        skipped=skipped,
        compilations=tuple(ids),
        count=len(records),
        in_standard=own is not None,
        skipped_at=facts.frame_place(compiled) if others else "",
        called_apart=bool(others) and last.function == facts.function(compiled) and _is_called(facts, first),
        is_meant=is_meant,
    )


def _of_numpy(facts: Facts, place: int, code: str) -> str:
    """A value of NumPy that a compilation guards and a line has by name; "" if there is none."""
    guards = facts.guarded(place).items() if place >= 0 else ()
    of_numpy = (name for name, those in guards if facts.text(those[0].source).startswith(advice.OF_NUMPY))
    return next((name for name in of_numpy if re.search(rf"\b{re.escape(name)}\b", code)), "")


def _others_of_its_name(facts: Facts, place: int) -> set[str]:
    """The places of other functions with the name of a compiled one, as of the `forward`s of two classes."""
    if place < 0:
        return set()
    alike = (one for one in range(len(facts.data.compilations)) if facts.function(one) == facts.function(place))
    return {facts.frame_place(one) for one in alike} - {facts.frame_place(place), ""}


def _is_called(facts: Facts, record: GraphBreak) -> bool:
    """Whether a break lies in a function that the compiled one calls."""
    own = [frame for frame in user_frames(facts.text(record.stack)) if not LIBRARY.search(frame.file)]
    return len(own) > 1


def _statement(stack: str) -> SourceLine:
    """The innermost line; the one that assigns, if that is in a method that Python calls for an assignment."""
    frames = user_frames(stack)
    return next((frame for frame in reversed(frames) if frame.function not in ("__setattr__", "__delattr__")), UNKNOWN)


def _own_line(facts: Facts, record: GraphBreak) -> SourceLine | None:
    """The line that calls into Python's own library, in which a break lies, if it is the user's."""
    frames = user_frames(facts.text(record.stack))
    caller = next((frame for frame in reversed(frames) if not STANDARD.search(str(frame))), None)
    return None if caller is None or LIBRARY.search(str(caller)) else caller


def text_of(record: GraphBreak) -> int:
    """The number of the text that says most about a break; -1 if there is none."""
    return record.text if record.text >= 0 else record.reason


def in_words(text: str) -> str:
    """Why a graph broke, as a sentence.

    >>> in_words("Failed to trace builtin operator\\n  Explanation: Dynamo cannot trace builtin operator `print` here.")
    '`print` cannot be part of a graph.'
    """
    return sentence(meaning(text)[0])


def meaning(text: str) -> tuple[str, Advice]:
    """(why, what to do). For a kind of break that is not in KINDS, torch's explanation and hint."""
    said = text.partition("User code traceback")[0]
    told = re.sub(r"^ *Hint: .*$", "", said, flags=re.M)  # hints name other kinds of breaks
    for pattern, words, cure in KINDS:
        match = re.search(pattern, told)
        if match and not (cure is break_cures.RAISES and FAKED.search(told)):
            named = match.groupdict() | ({"method": _logged_by(told)} if cure is break_cures.LOGGING else {})
            if "op" in named:
                named["name"] = f"{named['space']}::{named['op']}"
            return words.format(**named), cure.said(**named) if cure else NO_ADVICE
    explained = explanation(said)
    reason = explained or said.strip().partition("\n")[0]
    if FAKED.search(told) and not FAKED.search(reason):  # since torch 2.14, the program's exception quotes it
        reason = error_texts.plain(told)
    raised = of_operator(reason)
    fix = hinted(said, reason) or (break_cures.RAISES if raised else break_cures.OUTSIDE).said()
    first = error_texts.sentences(reason)[:1] or [reason]
    return raised or f"torch says: {first[0].strip().rstrip('.')}", fix


def explanation(text: str) -> str:
    """Torch's sentence in a message, in one line; "" for a message without one.

    >>> explanation("Error\\n  Explanation: It got Fake(\\n    2\\n  ).\\n  Hint: None.")
    'It got Fake( 2 ).'
    """
    found = EXPLAINED.search(text)
    return " ".join(found[1].split()) if found else ""


def _logged_by(text: str) -> str:
    """The method that logs, as an expression.

    >>> _logged_by("Developer debug context: method: <Logger job.steps (WARNING)>.info, args: []")
    "logging.getLogger('job.steps').info"
    """
    found = LOGGED.search(text)
    return f"logging.getLogger({found['name']!r}).{found['method']}" if found else "logger.warning"


def of_operator(explained: str) -> str:
    """What an operator raised while Dynamo ran it on fake tensors, in the words of that error; "" if none did."""
    found = FAKED.search(explained)
    if found is None:
        return ""
    first = error_texts.sentences(found["message"])[:1] or [""]
    return f"`{found['name']}` raised {found['error']}: {first[0]}".rstrip(". :")


def hinted(text: str, explained: str = "") -> Advice:
    """The cure of an error that torch explains, or what its message advises; else the first of torch's hints that says
    what to do."""
    found = FAKED.search(explained)
    if found is not None and (fix := error_texts.cure_of(found["message"])):
        return fix
    hints = (hint.strip() for hint in re.findall(r"Hint: (.*)", text))
    useful = next((hint for hint in hints if hint and not NO_HINT.match(hint)), "")
    return break_cures.TORCHS_HINT.said(hint=useful) if useful else NO_ADVICE
