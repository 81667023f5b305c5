"""A recording for strangers: graphs, shapes, times and sentences, without what tells whose program it is.

What may hold the user's text is left out: source lines, the texts of logs, generated code, error messages, keys' parts,
arguments of events, paintings. In every other text each word that aotviz and torch do not know becomes a neutral one,
the same everywhere: `name1`, `file1.py`, `'text1'`. So a guard is still a guard, and a sentence can be read. Nothing is
found by looking for secrets: a word is kept because it is known, not because it looks harmless.

Known are the words in aotviz's own sources, operators of torch's, single letters, symbols such as `s0`, and numbers.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from aotviz.recording import numbers
from aotviz.recording.schema import (
    NONE,
    CacheLookup,
    CallError,
    CompilationData,
    ErrorRecord,
    EventTable,
    FailedGuard,
    GraphSnapshot,
    GuardRecord,
    LogRecord,
    MetricsRecord,
    RecompileReason,
    RecordingData,
    ShapeRecord,
    StageRecord,
    StorageDescription,
    TensorDescription,
)

LEFT_OUT = (
    "This recording is redacted. Left out: source lines, paths, strings, error messages, generated code, the texts of "
    "logs, parts of cache keys, arguments of events, paintings. Names of the program's own became name1, name2, ...; "
    "files became file1.py, file2.py, ... Line numbers, shapes, numbers and torch's operators are as they were."
)
EMPTY: dict[type[msgspec.Struct], dict[str, Any]] = {  # fields that are left out, and what stands there instead
    RecordingData: {
        "artifacts": [], "paintings": [], "compared": None,
        "rank_differences": [], "why": [], "overview": None, "plain": [], "peaks": [], "step": None,
    },
    CompilationData: {"wrapper": None, "storages": [], "run": None},
    StageRecord: {"code": {}, "kernels": {}},
    ErrorRecord: {"message": "left out"},
    CallError: {"about": []},
    LogRecord: {"bad": []},
    GuardRecord: {"code": NONE},
    FailedGuard: {"code": NONE},
    RecompileReason: {"code": NONE, "raw": NONE},
    CacheLookup: {"components": [], "component_hashes": [], "fields": {}, "reason": NONE, "differs": []},
    MetricsRecord: {"texts": {}, "fail_reason": NONE},
    ShapeRecord: {"framework_stack": NONE, "fields": NONE},
    StorageDescription: {"fields": NONE},
    TensorDescription: {"fields": NONE},
}  # fmt: skip
AS_THEY_ARE = {
    (GraphSnapshot, "op"),
    (GraphSnapshot, "backward"),
    (RecordingData, "format"),
    (RecordingData, "producer"),
}
SOURCES = ("source",)  # text fields with a place and the line there: the place is kept
OF_TORCH = re.compile(
    r"(?:torch\.ops\.)?(?:aten|prims?|inductor|quantized|_?c10d_functional|higher_order|rng_prims)\.[\w.]+"
    r"|(?:_?operator|math|builtins)\.\w+|torch(?:\.\w+)+"
)
FRAME = re.compile(r'\s*File ".*", line \d+, in .*')
COMMENT = re.compile(r"(?<!\s)\s++# .*", re.S)
PART = re.compile(  # a quote that does not end lasts up to the end of the line
    r"""(?P<torch>\btorch(?:\.\w+)+)"""
    r"""|(?P<quoted>(?<![\w\[])(?P<mark>['"])(?:\\.|(?!(?P=mark))[^\\\n])*+\\?+(?:(?P=mark)|(?=\n)|\Z))"""
    r"""|(?P<path>(?<![^\s'"`(),\[\]|<>=:;])[^\s'"`(),\[\]|<>=:;\\/]*+(?:[\\/][^\s'"`(),\[\]|<>=:;\\/]*+)++"""
    r"""|(?<![\w.-])[\w.-]+\.py\b)"""
    r"""|(?P<word>\w+)"""
)
NUMBER = re.compile(r"\d{1,9}(?:st|nd|rd|th|x|e\d+|ms|s|[KMG]?i?B)?|[suzf]\d{1,4}|[A-Za-z]|_+")
TYPE = re.compile(r"(?:b?float|u?int|complex|bits)\d++(?:_e\d++m\d++\w*+)?|bool")
COUNTED = re.compile(r"_\d+$")  # at the end of the name of a node
LINE = re.compile(r"(?P<file>(?:\w:)?[^:]*\.py)(?P<rest>:\d+(?: in .*)?)")
OF_EVENTS = (  # names of torch's events, whose words are in no source of ours
    "build_guards compile_attempt gc codecache AsyncCompile PyCodeCache load_by_key_path Scheduler codegen "
    "compile_file GraphLowering compile_fx_inner fx_codegen_and_compile fx_graph_cache_get post_grad_passes "
    "joint_graph_passes min_cut_rematerialization_partition create_aot_dispatcher_function"
)
WORD = re.compile(r"[^\W\d]\w*")


@cache
def _vocabulary() -> frozenset[str]:
    """The words of aotviz's sources."""
    folder = Path(__file__).parent.parent
    return frozenset(
        word for file in sorted(folder.rglob("*.py")) for word in WORD.findall(file.read_text(encoding="utf-8"))
    )


def redacted(data: RecordingData) -> RecordingData:
    """The recording without what a stranger should not see, and with a note that says so. What was found in it is
    left out as well: it is found again, from what is left."""
    return _Redactor(data).data()


class _Redactor:
    def __init__(self, data: RecordingData) -> None:
        self._data = data
        self._known = {*_vocabulary(), *OF_EVENTS.split()}
        self._prose = {one.text for one in data.graph_breaks}
        self._names: dict[str, str] = {}
        self._files: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        for compilation in data.compilations:
            for graph in compilation.graphs:
                for target in {data.strings[number] for number in graph.target if number >= 0}:
                    if OF_TORCH.fullmatch(target):
                        self._known.update(WORD.findall(target))

    def data(self) -> RecordingData:
        found = self._record(self._data)
        used = sorted({number for number in numbers.of(found) if number >= 0})
        new = [NONE] * (len(found.strings) + 1)
        for place, number in enumerate(used):
            new[number] = place
        found = numbers.changed(found, new)
        texts = self._data.strings
        strings = [self._prose_of(texts[n]) if n in self._prose else self._lines(texts[n]) for n in used]
        return replace(found, strings=strings, notes=[*found.notes, LEFT_OUT])

    def _record(self, record: Any) -> Any:
        kind = type(record)
        empty = EMPTY.get(kind, {})
        fields = {}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if name in empty:
                fields[name] = empty[name]
            elif (kind, name) not in AS_THEY_ARE and (kind, name) != (RecordingData, "strings"):
                fields[name] = self._place(value) if name in SOURCES and type(value) is str else self._value(value)
        if kind is EventTable:
            fields["args"] = [NONE] * len(record.args)
        if kind is CompilationData:
            fields["graph_texts"] = [NONE] * len(record.graph_texts)
        return replace(record, **fields)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._lines(value)
        if isinstance(value, list):
            return [self._value(part) for part in value]
        if isinstance(value, dict):
            return {self._value(key): self._value(part) for key, part in value.items()}
        return self._record(value) if isinstance(value, msgspec.Struct) else value

    def _place(self, source: str) -> str:
        """Of a place and the line there, the place."""
        place = re.match(r"\S+:\d+", source)
        return self.text(place[0]) if place else ""

    def _lines(self, text: str) -> str:
        """Of several lines, the frames of a stack and the modules of a node; the others are somebody's text."""
        if "\n" not in text:
            return self.text(text)
        kept = (line for line in text.split("\n") if FRAME.fullmatch(line) or ("|" in line and " " not in line))
        return "\n".join(map(self.text, kept))

    def _prose_of(self, text: str) -> str:
        """What torch says, without the frames in it and the lines of code below them."""
        lines = text.split("\n")
        pairs = zip(["", *lines], lines, strict=False)
        return "\n".join(
            self.text(line) for above, line in pairs if not FRAME.fullmatch(above) and not FRAME.fullmatch(line)
        )

    def text(self, text: str) -> str:
        if line := LINE.fullmatch(text):
            return self._path(line["file"]) + self.text(line["rest"])
        return PART.sub(self._part, COMMENT.sub("", text))

    def _part(self, match: re.Match[str]) -> str:
        whole = match[0]
        if match["torch"]:
            return whole
        if match["quoted"]:
            inner = whole[1:].removesuffix(whole[0])
            if "/" in inner or "\\" in inner or inner.endswith(".py"):
                return f"{whole[0]}{self._path(inner)}{whole[0]}"
            kept = not inner or inner in self._known or NUMBER.fullmatch(inner)
            return whole if kept else f"{whole[0]}{_numbered(self._texts, inner, 'text')}{whole[0]}"
        return self._path(whole) if match["path"] else self._word(whole)

    def _path(self, path: str) -> str:
        parts = [part for part in re.split(r"[\\/]", path) if part]
        if all(NUMBER.fullmatch(part.strip("!")) or part in self._known or part == "!" for part in parts):
            return path  # "0/3", "forward/backward"
        library = path.rpartition("/site-packages/")[2]
        if library.startswith("torch/"):
            return library
        _, dot, ending = parts[-1].rpartition(".") if parts else ("", "", "")
        suffix = ".py" if dot and ending == "py" else ""
        return _numbered(self._files, parts[-1] if parts else path, "file") + suffix

    def _word(self, word: str) -> str:
        if word in self._known or NUMBER.fullmatch(word) or TYPE.fullmatch(word):
            return word
        if word.isdecimal():
            return "0"  # where an object was, or a time
        count = COUNTED.search(word)
        if count and word[: count.start()]:
            return self._word(word[: count.start()]) + count[0]
        return _numbered(self._names, word, "name")


def _numbered(known: dict[str, str], text: str, kind: str) -> str:
    return known.setdefault(text, f"{kind}{len(known) + 1}")
