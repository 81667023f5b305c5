"""Which guards of an earlier program a call failed, in the words of `guard_failures.py`.

Torch names only the first guard that failed for each program. A watch evaluates every guard (`FailedGuard`). In a log
the other failures are derived from the guards of both compilations: if the earlier one requires another value, size or
type than the new one, the call failed that guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from aotviz.explain import guard_failures, size_ranges
from aotviz.explain.cures import backward_cures, guard_cures
from aotviz.explain.expressions import global_state, torchs_setting
from aotviz.explain.guard_failure import GuardFailure
from aotviz.explain.rows import Facts
from aotviz.recording import dynamo_stage
from aotviz.recording.schema import NONE, FailedGuard, GuardRecord, RecompileReason
from aotviz.recording.sizes import reach
from aotviz.recording.sources import UNKNOWN, SourceLine, user_frames
from aotviz.recording.spoken import spoken

SIZES = {  # in a guard on a tensor
    "shape[{}]": re.compile(r"\bsize=\[(.*?)\]"),
    "stride({})": re.compile(r"\bstride=\[(.*?)\]"),
}
TENSOR_FACTS = {
    "dtype": re.compile(r"\btorch\.((?:b?float|u?int|complex|bool)\w*)"),
    "requires_grad": re.compile(r"\brequires_grad=(\w+)"),
}
IDENTITY = re.compile(r"___check_obj_id\(.*, (\d+)\)")
LIBRARY = re.compile(
    r"^(?:torch|nn|utils|_\w+|functional)/|^contextlib\.py|/site-packages/|/lib/python3\.\d+/"
)  # as torch shortens paths
COMPARED = frozenset({"value", "length", "object", "type", "key", "keys", "attribute"})  # kinds of guards

Key = tuple[str, str]  # what a guard is about: its kind, and the value or a property of it
Made = GuardRecord | FailedGuard | RecompileReason  # a guard, with the line that made it


@dataclass(frozen=True)
class Miss:
    """A guard that the call failed."""

    failure: GuardFailure
    code: str  # the user's source line that made the guard
    place: str  # "model.py:17" of that line
    dynamic: bool  # the value is symbolic in the new program, so that other values fit it too

    @property
    def value(self) -> str:
        return value_of(self.failure.subject)

    @property
    def count(self) -> int:
        """How many values differ. One guard is about all settings of torch."""
        return len(self.failure.subject.split()) if self.failure.kind == "global state" else 1


@dataclass(frozen=True)
class Reason:
    """Why one earlier program did not match the call."""

    earlier: str  # its id in the recording, "" if it is not known
    misses: tuple[Miss, ...]  # at least one
    tried: bool  # every guard was evaluated; if not, more may have failed
    is_known: bool = False  # other programs, taken together, require each value that differs from this one's

    @property
    def count(self) -> int:
        """How many values differ."""
        return sum(miss.count for miss in self.misses)


@dataclass(frozen=True)
class Held:
    """What a guard requires of a value."""

    value: str
    text: str  # the guard; for a property of a tensor, the tensor as the guard writes it
    record: GuardRecord | None


def of(facts: Facts, place: int, reasons: Sequence[RecompileReason]) -> tuple[Reason, ...]:
    """Why each program did not match the call that compilation `place` was made for."""
    earlier = [facts.sibling(place, reason.earlier) for reason in reasons]
    firsts = [
        _miss(facts, place, program, guard_failures.read(facts.text(reason.guard)), reason)
        for program, reason in zip(earlier, reasons, strict=True)
    ]
    now = _now(facts, place, [miss.failure for miss in firsts])
    found = []
    for program, reason, first in zip(earlier, reasons, firsts, strict=True):
        if reason.failed:
            misses = [_tried(facts, place, program, guard) for guard in reason.failed]
            if first.failure.kind != "unknown" and first.value not in {miss.value for miss in misses}:
                misses.insert(0, first)
            if first.failure.kind == "size":  # only torch's own words say that a tensor is a parameter
                misses = [first if miss.failure.subject == first.failure.subject else miss for miss in misses]
        else:
            misses = [first, *_compared(facts, place, program, now, first)]
        distinct: dict[str, Miss] = {}
        for miss in _keys_together(misses):
            distinct.setdefault(miss.value, miss)
        found.append(Reason(facts.id(program) or reason.earlier, tuple(distinct.values()), bool(reason.failed)))
    return tuple(_marked(facts, found, now, earlier))


def _marked(
    facts: Facts, reasons: Sequence[Reason], now: Mapping[Key, str], earlier: Sequence[int]
) -> Iterator[Reason]:
    """The reasons with `is_known`, where the nearest ones are about several values."""
    least = min((reason.count for reason in reasons), default=0)
    about = {tuple(miss.value for miss in reason.misses) for reason in reasons if reason.count == least}
    programs = [required(facts, program) for program in earlier] if len(about) > 1 else []
    for reason in reasons:
        known = bool(programs) and all(_is_required(miss.failure, now, programs) for miss in reason.misses)
        yield replace(reason, is_known=known)


def _is_required(failure: GuardFailure, now: Mapping[Key, str], programs: Sequence[Mapping[Key, Held]]) -> bool:
    """Whether one of the programs was made for the value that a call has in place of the required one."""
    key = _key(failure)
    value = now.get(key) or failure.after
    return bool(value) and any(key in program and program[key].value == value for program in programs)


def _keys_together(misses: Sequence[Miss]) -> list[Miss]:
    """One miss for all keys of a dictionary, which may only be in another order."""
    keys: dict[str, list[Miss]] = {}
    for miss in misses:
        if miss.failure.kind == "key":
            keys.setdefault(miss.value, []).append(miss)
    found = [miss for miss in misses if keys.get(miss.value, [miss])[0] is miss]
    return [_in_another_order(miss, keys[miss.value]) if miss.failure.kind == "key" else miss for miss in found]


def _in_another_order(first: Miss, misses: Sequence[Miss]) -> Miss:
    before, after = [miss.failure.before for miss in misses], [miss.failure.after for miss in misses]
    if len(misses) < 2 or sorted(before) != sorted(after):
        return first
    name, was, now = first.value, ", ".join(before), ", ".join(after)
    words = f"`{name}` has the same keys in another order: {was}, and now {now}"
    return replace(first, failure=replace(first.failure, subject=name, before=was, after=now, words=words))


def of_own(facts: Facts, place: int, earlier: int, guards: Sequence[tuple[str, str]]) -> Reason:
    """The same for an aotviz program (-1: unknown). `guards`: (guard, the value now) for each that failed."""
    failures = [guard_failures.read(guard).with_after(now) for guard, now in guards]
    distinct = {
        value_of(failure.subject): _of_line(facts, place, _miss(facts, place, earlier, failure))
        for failure in reversed(failures)
    }
    return Reason(facts.id(earlier), tuple(reversed(distinct.values())), tried=True)


def of_error(facts: Facts, earlier: str, guard: str) -> Miss:
    """A guard that a call failed for which no program was made."""
    return _miss(facts, NONE, facts.place_of(earlier), guard_failures.read(guard))


def _of_line(facts: Facts, place: int, miss: Miss) -> Miss:
    """In a captured backward, a guard that no line made has the line that called `backward()`."""
    compilation = facts.data.compilations[place]
    of_dynamo = any(stage.name == dynamo_stage.NAME for stage in compilation.stages)
    begun = () if miss.place or of_dynamo else user_frames(facts.text(compilation.stack))
    return replace(miss, code=begun[-1].code, place=str(begun[-1])) if begun else miss


def own_line(frames: Sequence[SourceLine]) -> SourceLine:
    """The innermost line that is not a library's."""
    return next((frame for frame in reversed(frames) if not LIBRARY.search(frame.file)), UNKNOWN)


def users_place(facts: Facts, place: int) -> str:
    """The line of the compiled function, or, if that is a library's, the user's line that calls it."""
    return str(users_line(facts, place))


def users_line(facts: Facts, place: int) -> SourceLine:
    """The same with its code, which is known of a line that calls."""
    where = facts.frame_place(place) if place >= 0 else ""
    own = own_line(user_frames(facts.text(facts.data.compilations[place].stack))) if LIBRARY.search(where) else UNKNOWN
    file, _, number = where.rpartition(":")
    return own if own.line or not number.isdecimal() else SourceLine(file, int(number), "", "")


def shortened(place: str) -> str:
    """A library's line as torch shortens it.

    >>> shortened("/usr/lib/python3.11/site-packages/torch/optim/adam.py:79"), shortened("job.py:3")
    ('torch/optim/adam.py:79', 'job.py:3')
    """
    return re.sub(r"^.*(?:/site-packages|/lib/python3\.\d+)/", "", place)


@lru_cache(8192)  # asked of each guard of each program
def value_of(subject: str) -> str:
    """The value that a subject is about, so that all sizes of one tensor count as one cause."""
    name = re.sub(r"(\.shape\[\d+\]|\.stride\(\d+\)|\.keys\(\)\[\d+\])", "", subject)
    return name.removeprefix("len(").removesuffix(")") if name.startswith("len(") else name


def _tried(facts: Facts, place: int, earlier: int, guard: FailedGuard) -> Miss:
    failure = guard_failures.read(facts.text(guard.guard)).with_after(facts.text(guard.now))
    return _miss(facts, place, earlier, failure, guard)


def _miss(facts: Facts, place: int, earlier: int, failure: GuardFailure, guard: Made | None = None) -> Miss:
    before = _guard(facts, earlier, failure)
    if before is not None and (guard is None or not facts.text(guard.place)):
        guard = before
    code, where, stack = (facts.text(n) for n in (guard.code, guard.place, guard.stack)) if guard else ("", "", "")
    failure, dynamic = _completed(facts, place, earlier, failure)
    if failure.kind == "mode" and (grad := required(facts, earlier).get(GRAD_MODE)) is not None and grad.value == "on":
        failure = guard_failures.outside_of_inference_mode(failure)  # in inference mode, grad mode is off
    split = size_ranges.by_operator(facts, earlier, failure.before) if failure.kind == "symbolic" else None
    if split is not None:
        asked = own_line(user_frames(facts.text(split.record.stack)))
        words = f"{split.words}" + (f", and it is now {failure.after}" if failure.after.isdecimal() else "")
        failure = replace(failure, words=words, fix=guard_cures.OPERATOR_RANGE.said())
        return Miss(failure, asked.code, str(asked), dynamic)
    where = facts.whole_place(max(place, earlier), where, stack) if where else ""  # an error has no program of its own
    used = facts.first_use(earlier, facts.text(before.source)) if before else None
    if used is not None and LIBRARY.search(where):  # the guard names the library's line, the graph the user's
        code, where = used.code, str(used)
    frames = user_frames(stack)
    own = own_line(frames)
    if own.line and LIBRARY.search(where):
        code, where = own.code, str(own)
    if frames and not code:
        code, where = frames[-1].code, where or str(frames[-1])
    line = code.partition("  # ")[0].strip()
    found = Miss(failure, line, where, dynamic)
    return _of_a_capture(facts, place, found) if facts.data.compilations[place].compile_id.startswith("!") else found


GRAD_MODE = "global state", "grad_mode"
UNKNOWN_VALUES = ("", "of another type", "one function")
RELATION = re.compile(
    r"\.(?:size|stride)\(\)\["
)  # "x.stride()[0] == x.size()[1]" is no value that a call can differ from
LIFTED = re.compile(r"\b(inputs|sizes|scalars|hooks|packed_data)\[(\d+)\](?:\.shape\[1\])?")
HOOKED = re.compile(r"\bhooks\[\d+\]\.(?:__(?:kw)?defaults__|__closure__)")  # a number that a hook uses
NAMES = {"inputs": "input", "sizes": "size", "scalars": "number", "hooks": "hook", "packed_data": "packed value"}


def _of_a_capture(facts: Facts, place: int, miss: Miss) -> Miss:
    """A guard of the graph that torch's compiled autograd captured. Its inputs have no names of the user's, and its
    lines are generated."""
    failure = miss.failure

    def named(text: str) -> str:
        return LIFTED.sub(lambda match: f"{NAMES[match[1]]} {match[2]} of the captured backward", text)

    lifted = LIFTED.search(failure.subject)
    if HOOKED.search(failure.subject) and failure.kind in ("value", "symbolic"):
        name = "a number that a gradient hook uses"
        words = f"{name} was {failure.before} and is now {failure.after}" if failure.after else f"{name} changed"
        failure = replace(failure, subject=name, words=words, fix=backward_cures.HOOK_VALUE.said())
    elif lifted is not None:
        words = named(failure.words.replace("`", "")).replace("dimension 1 of size", "size")
        cure = backward_cures.SIZES_OF_TORCHS if miss.dynamic else backward_cures.LIFTED
        failure = replace(failure, subject=named(lifted[0]), words=words, fix=cure.said())
    if not miss.place.startswith("<eval_with_key>"):
        return replace(miss, failure=failure)
    frames = user_frames(facts.text(facts.data.compilations[place].stack))
    own = [frame for frame in frames if not LIBRARY.search(str(frame)) and not str(frame).startswith("<")]
    code, where = (own[-1].code, str(own[-1])) if own else ("", "")
    return replace(miss, failure=failure, code=code, place=where)


def _compared(facts: Facts, place: int, earlier: int, now: Mapping[Key, str], told: Miss) -> Iterator[Miss]:
    """The other guards that the call failed, found by comparing the guards of both: none on the value of `told`, but
    for the other keys of a dictionary."""
    for key, held in required(facts, earlier).items():
        after = now.get(key, held.value)
        if after == held.value or ("something" in (after, held.value) and "None" not in (after, held.value)):
            continue
        kind, about = key
        if kind == "global state":
            if told.failure.kind == kind and _names_setting(told.failure.subject, about):
                continue
            failure = _state(guard_failures.read(f"GLOBAL_STATE changed: {about}"), about, held.value, after)
        elif kind == "tensor":
            failure = guard_failures.read(f"{held.text} changed from {held.value} to {after}")
        else:
            failure = guard_failures.read(held.text)
            failure = failure if kind in ("object", "keys", "attribute") else failure.with_after(after)
        another_key = failure.kind == "key" and failure.subject != told.failure.subject
        if another_key or value_of(failure.subject) != told.value:
            yield _miss(facts, place, earlier, failure, held.record)


def _now(facts: Facts, place: int, named: Sequence[GuardFailure]) -> dict[Key, str]:
    """The values of the call, as far as the new program's guards, its symbols and torch's reasons say."""
    now = {_key(failure): failure.after for failure in named if failure.after}
    for source, value in _symbols(facts, place).items():
        sized = re.search(r"\.(?:shape\[\d+\]|stride\(\d+\))$", source)
        now["tensor" if sized else "value", source] = value
    return now | {key: held.value for key, held in required(facts, place).items()}


def required(facts: Facts, program: int) -> dict[Key, Held]:
    """What a compilation's guards require of a call."""
    if program < 0:
        return {}
    found: dict[Key, Held] | None = facts.memory.get(("held", program))
    if found is None:
        found = {}
        for record in facts.about(program, facts.data.guards):
            text = facts.text(record.text)
            if record.kind == "GLOBAL_STATE":
                found |= {("global state", name): Held(value, "", None) for name, value in global_state(text).items()}
            elif text.startswith("check_tensor("):
                found |= _held_by_tensor(facts.text(record.source), text, record)
            else:
                failure = guard_failures.read(text)
                identity = IDENTITY.match(text)
                value = identity[1] if identity else "0" if failure.before == "empty" else failure.before
                if failure.kind in COMPARED and value not in UNKNOWN_VALUES and not RELATION.search(value):
                    found[_key(failure)] = Held(value, text, record)
        facts.memory["held", program] = found
    return found


def made_by(facts: Facts, program: int, held: Held) -> Miss:
    """A guard of a program with the line that made it."""
    return _miss(facts, program, program, guard_failures.read(held.text), held.record)


def _held_by_tensor(source: str, text: str, record: GuardRecord) -> dict[Key, Held]:
    found = {}
    for fact, pattern in TENSOR_FACTS.items():
        if match := pattern.search(text):
            found[f"{source}.{fact}"] = match[1]
    for fact, pattern in SIZES.items():
        match = pattern.search(text)
        sizes = [size.strip() for size in match[1].split(",") if size.strip()] if match else []
        if match:
            found[f"{source}.ndim"] = str(len(sizes))
        found |= {f"{source}.{fact.format(i)}": size for i, size in enumerate(sizes) if size != "None"}
    return {("tensor", spoken(name)): Held(value, name, record) for name, value in found.items()}


def _key(failure: GuardFailure) -> Key:
    """What a guard is about, so that guards of two programs can be compared."""
    if failure.kind in ("size", "stride", "dtype", "rank", "requires_grad"):
        return "tensor", failure.subject
    if failure.kind == "keys":
        return "keys", f"{failure.subject} {failure.before.partition(' ')[2]}"
    return failure.kind, failure.subject if failure.kind == "key" else value_of(failure.subject)


def _completed(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> tuple[GuardFailure, bool]:
    """The failure with the value of the new compilation, and whether that value is symbolic."""
    if failure.kind == "global state":
        return _changed_state(facts, place, earlier, failure), False
    if failure.kind in ("same tensor", "memory"):
        return _laid_out(facts, place, earlier, failure), False
    if failure.kind == "unknown":
        return _from_inputs(facts, place, earlier, failure), False
    symbol = _symbols(facts, place).get(failure.subject)
    if symbol is not None and failure.kind == "symbolic":
        words = f"{failure.words}: `{failure.subject}` is now {symbol}"
        return replace(failure, after=symbol, words=words), False
    if symbol is not None:
        became_constant = any(
            failure.subject in facts.specialized(row) for row in facts.about(place, facts.data.shapes)
        )
        stays = failure.kind in ("value", "size") and not became_constant
        return failure.with_after(symbol) if failure.kind == "value" else failure, stays
    now = _guard(facts, place, failure)
    if now is not None and failure.kind == "value" and facts.text(now.text).startswith("check_tensor("):
        return guard_failures.now_tensor(failure, facts.text(now.source)), False
    if now is None or failure.after:
        return failure, False
    found = guard_failures.read(facts.text(now.text))
    if found.kind == failure.kind and found.subject == failure.subject and found.before != failure.before:
        return failure.with_after(found.before), False
    return failure, False


def _symbols(facts: Facts, place: int) -> dict[str, str]:
    """The values of the symbols that the compilation made, by what they are the sizes or values of."""
    made = [record for record in facts.about(place, facts.data.shapes) if record.kind == "create_symbol"]
    return {spoken(facts.text(record.source)): facts.text(record.value) for record in made}


def _guard(facts: Facts, place: int, failure: GuardFailure) -> GuardRecord | None:
    """The guard of a compilation on the same value."""
    if place < 0 or not failure.source:
        return None
    found = None
    for guard in facts.guards_about(place, spoken(failure.source).removeprefix("len(").removesuffix(")")):
        read = guard_failures.read(facts.text(guard.text))
        if read.kind == failure.kind and read.subject == failure.subject:
            return guard
        if found is None and facts.text(guard.place):
            found = guard
    return found


def _changed_state(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> GuardFailure:
    """How a global setting changed, from the guards of both compilations."""
    was, now = (
        {name: held.value for (kind, name), held in required(facts, program).items() if kind == "global state"}
        for program in (earlier, place)
    )
    settings = failure.subject.split()
    names = [name for name in settings if name in was and name in now and was[name] != now[name]]
    if len(settings) == len(names) == 1:
        return _state(failure, names[0], was[names[0]], now[names[0]])
    words = (
        _state(failure, name, was[name], now[name]).words if name in names else f"{torchs_setting(name)} changed"
        for name in settings
    )
    return replace(failure, words=" and ".join(dict.fromkeys(words))) if names else failure


def _names_setting(subject: str, name: str) -> bool:
    """Whether torch's reason, which lists settings, has this one. It names the parts of autocast's state."""
    return any(said == name or said.partition("(")[0] == name.removesuffix("_state") for said in subject.split())


def _state(failure: GuardFailure, name: str, before: str, after: str) -> GuardFailure:
    said = torchs_setting(name)
    words = f"{said} changed" if "{" in before + after else f"{said} was {before} and is now {after}"
    return replace(failure, before=before, after=after, words=words)


def _laid_out(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> GuardFailure:
    """How two tensors shared memory before and share it now, if the compilations describe them."""
    one, _, other = failure.subject.partition(", ")
    if not other or ", " in other:
        return failure
    before, after = (_relation(facts, program, one, other) for program in (earlier, place))
    vague = ("one object", "different objects", "different tensors")
    before = before if failure.before in vague and before else failure.before
    after = after if failure.after in vague and after else failure.after
    if before == after or (before, after) == (failure.before, failure.after):
        return failure
    return guard_failures.relation(one, other, before, after, failure.source)


def _relation(facts: Facts, program: int, one: str, other: str) -> str:
    """A key of RELATIONS; "" if the compilation does not describe both tensors."""
    described = {
        spoken(facts.text(source)): tensor
        for tensor in facts.about(program, facts.data.tensors)
        for source in tensor.sources
    }
    if one not in described or other not in described:
        return ""
    first, second = described[one], described[other]
    if (first.describer, first.tensor) == (second.describer, second.tensor):
        return "one tensor"
    if (first.describer, first.storage) != (second.describer, second.storage):
        return "in separate storages"
    start, begin = first.offset, second.offset
    end, last = (reach(tensor.offset, tensor.shape, tensor.stride) for tensor in (first, second))
    if end is None or last is None or not isinstance(start, int) or not isinstance(begin, int):
        return "different tensors"  # a size is symbolic
    return "apart in one storage" if end <= begin or last <= start else "overlapping views of one storage"


def _from_inputs(facts: Facts, place: int, earlier: int, failure: GuardFailure) -> GuardFailure:
    """Torch gives no reason: the first difference between the described inputs of the two compilations."""
    was, now = _inputs(facts, earlier), _inputs(facts, place)
    for name in was:
        for fact, before in was[name].items():
            after = now.get(name, {}).get(fact, before)
            if before != after:
                words = f"torch does not say why, but the {fact} of `{name}` was {before} and is now {after}"
                return replace(failure, subject=f"{name} ({fact})", before=before, after=after, words=words)
    return failure


def _inputs(facts: Facts, place: int) -> dict[str, dict[str, str]]:
    return {
        spoken(facts.text(source)): {
            "dtype": tensor.dtype,
            "device": tensor.device,
            "shape": str(tuple(tensor.shape)),
            "stride": str(tuple(tensor.stride)),
            "requires_grad": str(tensor.requires_grad),
        }
        for tensor in facts.about(place, facts.data.tensors)
        for source in tensor.sources
    }
