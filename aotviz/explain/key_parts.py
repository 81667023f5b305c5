"""The parts of a cache key, and what a difference in one of them means.

Torch logs the parts of a key as some six hundred lines "name: content", each with a hash: the graph, the metadata of
every input, every setting of the compiler, versions. If it logs none (AOTAutograd since 2.13, unless its log level is
debug), they are gathered from the other rows of the compilation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import zip_longest

from aotviz.explain.expressions import global_state, torchs_setting
from aotviz.explain.rows import Facts
from aotviz.recording.schema import CacheLookup
from aotviz.recording.spoken import spoken, without_hashes
from aotviz.recording.strings import parsed

LONGEST = 80  # characters of a value that are shown
SETTINGS = {
    "dynamo_config": "torch._dynamo.config",
    "inductor_config": "torch._inductor.config",
    "compiler_config": "torch.compiler.config",
    "functorch_config": "torch._functorch.config",
}
FIELD = re.compile(r"\b(\w+)=((?:torch\.Size)?\([^()]*\)|(?:torch\.Size)?\(\[[^\]]*\]\)|\w+\('[^']*'\)|[^,()]+)")
INPUT = re.compile(r"\b(?:arg\d+_|primals_|tangents_)\d+\b")  # named differently for inference and training
ANNOTATION = re.compile(r': "[^"]*"(?= =)')
SOURCE_LINE = re.compile(r"^\s*(?:return|[a-z_]\w* *(?:: *\"[^\"]*\" *)?=).*")


@dataclass(frozen=True)
class Difference:
    """One part of the key that differs from an earlier key."""

    part: str  # as torch names it, e.g. "example_inputs[0]"
    subject: str  # in words, e.g. "the shape of input 0"
    before: str
    after: str
    _: KW_ONLY
    hidden: bool = False  # both print the same

    @property
    def words(self) -> str:
        if self.hidden:
            return f"{self.subject} differs in what torch does not print"
        before, after = short_pair(self.before, self.after)
        if not before and not after:
            return f"{self.subject} changed"
        before, after = (f"`{value}`" if value else "absent" for value in (before, after))
        return f"{self.subject} was {before} and is now {after}"


def parts(facts: Facts, lookup: CacheLookup) -> dict[str, tuple[str, str]]:
    """Name -> (hash, content) of each part of the key."""
    if not lookup.components:
        return {name: (content, content) for name, content in _gathered(facts, lookup.origin.compilation)}
    hashes = lookup.component_hashes or lookup.components
    asked = "parts of a key", (*lookup.components, *hashes)
    known: dict[str, tuple[str, str]] | None = facts.memory.get(asked)
    if known is not None:  # another rank asked with this key
        return known
    found = facts.memory[asked] = {}
    for component, number in zip(lookup.components, hashes, strict=False):
        name, _, content = facts.text(component).partition(": ")
        found[name.strip()] = (facts.text(number), content)
    return found


def differences(
    before: Mapping[str, tuple[str, str]], after: Mapping[str, tuple[str, str]], settings: tuple[Mapping[str, str], ...]
) -> list[Difference]:
    """What differs between two keys, the graph and the inputs first. `settings` are those of the two compilations."""
    names = [name for name in after if before.get(name, ("", ""))[0] != after[name][0]]
    names += [name for name in before if name not in after]
    found: list[Difference] = []
    counts = [sum(name.startswith("example_inputs[") for name in key) for key in (before, after)]
    if counts[0] != counts[1]:  # then positions cannot be compared
        found.append(Difference("example_inputs", "the number of inputs", *map(str, counts)))
        names = [name for name in names if not name.startswith("example_inputs[")]
    for name in sorted(names, key=_order):
        was, now = before.get(name, ("", ""))[1], after.get(name, ("", ""))[1]
        if was == now and name in before and name in after:
            found.append(Difference(name, _subject(name), "", "", hidden=True))
        else:
            found.extend(_explained(name, was, now, settings))
    return found


def _subject(name: str) -> str:
    kind, _, index = name.partition("[")
    index = index.rstrip("]")
    if kind == "gm":
        return "the graph, for example the values of a constant tensor,"
    if kind == "example_inputs":
        return f"input {index}"
    return (
        f"the setting `torch._inductor.config.{index}`"
        if kind == "inductor_config"
        else SUBJECTS.get(name, f"`{name}`")
    )


def settings(facts: Facts, place: int) -> dict[str, str]:
    """The compiler's settings during a compilation, by their full names, as far as they are logged."""
    found: dict[str, str] = {}
    for record in facts.about(place, facts.data.metrics):
        for field, module in SETTINGS.items():
            number = record.texts.get(field, -1)
            asked = "settings", module, number
            if asked not in facts.memory:  # all compilations of a job have the same
                values = _mapping(facts.text(number))
                facts.memory[asked] = {f"{module}.{name}": str(value) for name, value in values.items()}
            found.update(facts.memory[asked])
    for text in facts.named(place, "torch._functorch.config"):
        pairs = (line.strip().partition(" = ")[::2] for line in text.splitlines() if " = " in line)
        values = {**_mapping(text), **dict(pairs)}  # newer releases write JSON
        found |= {f"torch._functorch.config.{name}": str(value) for name, value in values.items()}
    return found


def short(text: str) -> str:
    line = " ".join(without_hashes(text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def short_pair(one: str, other: str) -> tuple[str, str]:
    """Two texts as `short` writes them; if these would be equal, from shortly before the first difference on. Both are
    empty if they differ in hashes only.

    >>> short_pair("x" * 100 + " = 1", "x" * 100 + " = 2")
    ('...xxxxxxxxxxxxxxxxx = 1', '...xxxxxxxxxxxxxxxxx = 2')
    >>> short_pair("all 9: 4a0d09a9d2752c5233ec", "all 9: 5b1e10b0e3863d6344fd")
    ('', '')
    """
    one, other = map(without_hashes, (one, other))
    if one == other:
        return "", ""
    if one.split() == other.split() or short(one) != short(other):
        return short(one), short(other)
    first, second = (" ".join(text.split()) for text in (one, other))
    pairs = enumerate(zip_longest(first, second))
    begin = max(0, next(i for i, (a, b) in pairs if a != b) - LONGEST // 4)
    return short(f"...{first[begin:]}"), short(f"...{second[begin:]}")


def _mapping(text: str) -> dict[str, object]:
    """A mapping from JSON, which may be quoted as a text in JSON; {} for anything else."""
    try:
        value = parsed(text)
        value = parsed(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _gathered(facts: Facts, place: int) -> Iterator[tuple[str, str]]:
    compilation = facts.compilation(place)
    if compilation is None:
        return
    for artifact in facts.about(place, facts.data.artifacts):
        if facts.text(artifact.type) == "dynamo_output_graph":
            yield "gm", facts.text(artifact.text)
    for tensor in facts.about(place, facts.data.tensors):
        if tensor.sources:
            name = spoken(facts.text(tensor.sources[0]))
            sizes = f"shape={tuple(tensor.shape)}, stride={tuple(tensor.stride)}"
            other = f"device={tensor.device}, requires_grad={tensor.requires_grad}"
            yield f"example_inputs[{name}]", f"TensorMetadata(dtype={tensor.dtype}, {sizes}, {other})"
    for guard in facts.about(place, facts.data.guards):
        if guard.kind == "GLOBAL_STATE":
            for name, value in global_state(facts.text(guard.text)).items():
                yield f"state[{name}]", value
    for name, value in settings(facts, place).items():
        yield f"setting[{name}]", value
    if compilation.log >= 0:
        yield "torch_version", facts.data.logs[compilation.log].torch


def _order(name: str) -> tuple[int, str]:
    kinds = ("gm", "example_inputs", "aot_config", "grad_enabled", "fx_kwargs", "setting", "inductor_config")
    return next((n for n, kind in enumerate(kinds) if name.startswith(kind)), len(kinds)), name


def _explained(name: str, before: str, after: str, known: tuple[Mapping[str, str], ...]) -> Iterator[Difference]:
    kind, _, index = name.partition("[")
    index = index.rstrip("]")
    if kind == "gm":
        was, now = first_difference(before, after)
        if was or now or before.count("\n") != after.count("\n"):
            yield Difference(name, "the traced code", was, now)
    elif kind == "example_inputs":
        yield from _input(name, index, before, after)
    elif kind in ("inductor_config", "setting"):
        setting = index if kind == "setting" else f"torch._inductor.config.{index}"
        yield Difference(name, f"the setting `{setting}`", before, after)
    elif kind == "state":
        yield Difference(name, torchs_setting(index), before, after)
    elif name in ("autograd_config", "dynamo_config"):
        module = "torch._functorch.config" if name == "autograd_config" else "torch._dynamo.config"
        yield from _settings(name, module, known)
    else:
        subject = SUBJECTS.get(kind) or SUBJECTS.get(name) or f"`{name}`"
        readable = before.isprintable() and after.isprintable()
        which = f" `{index}`" if index and kind in WITH_INDEX else ""
        yield Difference(name, subject + which, *((before, after) if readable else ("", "")))


SUBJECTS = {
    "aot_config": "how AOTAutograd was called (sources of its inputs, static inputs, dynamic shapes)",
    "grad_enabled": "whether gradients are recorded",
    "deterministic_algorithms": "`torch.use_deterministic_algorithms`",
    "deterministic_algorithms_settings": "`torch.use_deterministic_algorithms`",
    "saved_tensors_hooks_fx_wrap_cache_hashes": "the hooks on saved tensors",
    "cuda_matmul_settings": "the precision of matrix products (`torch.backends.cuda.matmul`)",
    "torch_version": "the version of PyTorch",
    "system_info": "the machine (its GPU or the driver's version)",
    "default_dtype": "the default dtype",
    "cpp_runtime_thread_count": "the number of CPU threads",
    "cache_key_tag": "the tag `torch.compiler.config.cache_key_tag`",
    "fx_kwargs": "how Inductor was called:",
    "user_defined_triton_source": "the source of your Triton kernel",
    "pre_grad_custom_pass": "the custom pass before autograd",
    "post_grad_custom_pre_pass": "the custom pass after autograd",
    "post_grad_custom_post_pass": "the custom pass after autograd",
    "joint_custom_pre_pass": "the custom pass on the joint graph",
    "joint_custom_post_pass": "the custom pass on the joint graph",
    "custom_backend_passes": "the custom passes of a device's backend",
    "inductor_config_comms": "a setting of communication:",
}
WITH_INDEX = {"fx_kwargs", "inductor_config_comms"}


def _input(name: str, index: str, before: str, after: str) -> Iterator[Difference]:
    """The properties of an input that differ. If its shape differs, its strides are not reported."""
    subject = f"input {index}" if index.isdigit() else f"`{index}`"
    was, now = dict(FIELD.findall(before)), dict(FIELD.findall(after))
    if not was or not now:
        yield Difference(name, subject, *("a tensor" if "TensorMetadata(" in one else one for one in (before, after)))
        return
    fields = [field for field in (*now, *(f for f in was if f not in now)) if was.get(field) != now.get(field)]
    if "shape" in fields:
        fields = [field for field in fields if field not in ("stride", "storage_bytes")]
    if "stride" in fields:
        fields = [field for field in fields if field != "memory_format"]
    for field in fields:
        yield Difference(name, f"the {field} of {subject}", _plain(was.get(field, "")), _plain(now.get(field, "")))


def _plain(value: str) -> str:
    value = value.strip().removeprefix("torch.Size(").removeprefix("torch.")
    return value.removesuffix(")") if value.startswith("[") else value


def _settings(name: str, module: str, known: tuple[Mapping[str, str], ...]) -> Iterator[Difference]:
    was, now = ({setting: value for setting, value in one.items() if setting.startswith(module)} for one in known)
    changed = [setting for setting in now if setting in was and was[setting] != now[setting]]
    for setting in changed:
        yield Difference(name, f"the setting `{setting}`", was[setting], now[setting])
    if not changed:
        yield Difference(name, f"a setting of `{module}`", "", "")


def first_difference(before: str, after: str) -> tuple[str, str]:
    """The first statements that differ between the code of two graphs, ignoring the names of inputs and shapes.

    >>> first_difference("a = x.sin()\\nb = a * 7", "a = x.sin()\\nb = a * 8")
    ('b = a * 7', 'b = a * 8')
    """
    was, now = ([_statement(line) for line in text.splitlines() if SOURCE_LINE.match(line)] for text in (before, after))
    for one, other in zip(was, now, strict=False):
        if INPUT.sub("input", one) != INPUT.sub("input", other):
            return one, other
    return (was[len(now)], "") if len(was) > len(now) else ("", now[len(was)]) if len(now) > len(was) else ("", "")


def _statement(line: str) -> str:
    """A line of code without annotations, clean-up and comments."""
    return ANNOTATION.sub("", line.strip().partition(";  ")[0].partition("  # ")[0])
