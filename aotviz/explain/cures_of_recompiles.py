"""What to do about recompiles of one cause, by what its values were."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict

from aotviz.explain import advice, error_texts, fixed_sizes
from aotviz.explain.cures import guard_cures
from aotviz.explain.cures.export_cures import FIXED_SIZE
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.explanation import some_of
from aotviz.explain.graph_breaks import LOOP
from aotviz.explain.guard_failure import GuardFailure
from aotviz.explain.misses import LIBRARY
from aotviz.explain.recompile import Cause, Recompile
from aotviz.explain.rows import Facts
from aotviz.recording.dynamo_stage import COMPILE_ID
from aotviz.recording.sources import SourceLine
from aotviz.recording.spoken import spoken

ITEM = ".item()"  # Dynamo takes a number of NumPy for a tensor, and reads it so
LAYER = re.compile(r"past_key_values?\b.*?\.layers\[(\d+)\]")
FEW_VALUES = {  # of a constant that the call cannot do without
    guard_cures.OWN_NUMBER,
    guard_cures.NEEDED_NUMBER,
    guard_cures.LIBRARY_NUMBER,
    guard_cures.MODULE_VALUE,
    guard_cures.VALUE,
}
CONSTANTS_OF_MODULES = {  # unless a setting makes them symbols
    guard_cures.MODULE_NUMBER,
    guard_cures.OWN_NUMBER,
    guard_cures.BOUND_NUMBER,
    guard_cures.SIZE_OF_PARAMETER,
    guard_cures.SIZE_OF_BUFFER,
}
OF_SIZE = re.compile(
    r"(?:el)?if .*(?:\.shape\[|\.size\(|\blen\().*[<>]|(?:el)?if .*[<>].*(?:\.shape\[|\.size\(|\blen\()"
)
STATE = re.compile(r"(?:^|\.)state\[")  # of an optimizer
OF_HOOK = re.compile(r"hooks\[.*\]\.__closure__\[\d+\]$")
CACHED = re.compile(r"\.layers\[\d+\]\.(?:keys|values)\.shape\b")


def of(facts: Facts, cause: Cause, usual: Recompile, full: bool) -> Advice:
    """What to do, by what the values were: a number that was compiled for each of several values is a constant.

    `full`: the function reached the recompile limit, so torch keeps no further program of it.
    """
    failure, fix = usual.main.failure, usual.main.failure.fix
    if is_of_new_class(cause):
        fix = guard_cures.NEW_CLASS.said(name=cause.subject)
    elif is_of_member(cause):
        fix = guard_cures.MEMBER.said(name=cause.subject)
    elif guard_cures.SIZE in fix.cures and (line := line_that_fixed(facts, cause)):
        fix = guard_cures.UNROLLED.said() if LOOP.match(line.code) else _of_parameter(cause) or FIXED_SIZE.said()
    elif guard_cures.SIZE in fix.cures and _follows_parameters(cause):
        fix = _of_parameter(cause)
    elif guard_cures.SIZE in fix.cures and (equal := _equal_by_chance(facts, usual)):
        fix = advice.equal_by_chance(equal, [failure.subject])
    elif guard_cures.SIZE in fix.cures:
        fix = advice.sizes(_sizes_that_vary(facts, cause)) or fix
    elif guard_cures.NEEDED_NUMBER in fix.cures and re.match(r"(?:el)?if\b", usual.main.code):
        fix = guard_cures.FLAG.said(name=failure.subject)
    elif guard_cures.MODULE_NUMBER in fix.cures and _indexes(usual.main.code, failure.subject):
        fix = guard_cures.LOOKED_UP.said()
    elif guard_cures.MODULE_NUMBER in fix.cures and OF_SIZE.match(usual.main.code):
        fix = guard_cures.GROWN_TABLE.said(name=failure.subject)
    elif guard_cures.MODULE_NUMBER in fix.cures and _bounds(usual.main.code, failure.subject):
        fix = guard_cures.BOUND_NUMBER.said(name=failure.subject)
    elif guard_cures.OPTIMIZER_NUMBER in fix.cures and not failure.subject.endswith("['lr']"):
        once = len(cause.recompiles) == 1
        fix = (guard_cures.OPTIMIZER_SYMBOL if once else guard_cures.OPTIMIZER_CONSTANT).said(name=failure.subject)
    elif guard_cures.MODULE_NUMBER in fix.cures and LIBRARY.search(usual.main.place):
        fix = guard_cures.LIBRARY_NUMBER.said(name=failure.subject)
    elif guard_cures.MODULE_NUMBER in fix.cures and not _assigns(usual):
        fix = guard_cures.OWN_NUMBER.said(name=failure.subject)
    elif guard_cures.NUMBER in fix.cures and not _is_dynamos(facts, usual):
        return guard_cures.CONSTANT_OF_FUNCTION.said(name=failure.subject)
    elif guard_cures.NUMBER in fix.cures and (line := line_that_fixed(facts, cause)):
        return _of_fixed_number(failure, line)
    elif guard_cures.KEYS in fix.cures and failure.before == "0 keys" and STATE.search(failure.subject):
        return guard_cures.STATE_MADE.said()
    elif guard_cures.LENGTH in fix.cures and (filled := _filled_by_hook(usual)):
        return guard_cures.HOOK_FILLS.said(name=filled)
    elif guard_cures.SYMBOLIC in fix.cures and (said := facts.failure(usual.place)):
        fix = error_texts.known_cure(facts.text(said.fail_reason)) or fix
    elif guard_cures.LENGTH in fix.cures and usual.main.value.endswith(".param_groups"):
        fix = guard_cures.PARAMETER_GROUPS.said()
    elif guard_cures.LENGTH in fix.cures and (_is_filled(facts, cause, usual) or _fills(usual)):
        grows = not _is_dictionary(facts, usual) and _computes_with_elements(facts, cause)
        fix = (guard_cures.GROWING_LIST if grows else guard_cures.FILLED).said(name=usual.main.value)
    elif guard_cures.LENGTH in fix.cures and _is_dictionary(facts, usual):
        fix = guard_cures.KEYS.said(name=usual.main.value)
    elif guard_cures.LENGTH in fix.cures and not _reads_elements(facts, usual):
        fix = guard_cures.ONLY_LENGTH.said(name=usual.main.value)
    elif guard_cures.REQUIRES_GRAD in fix.cures and failure.after == "True" and _was_trained(facts, usual):
        fix = guard_cures.DIFFERENTIATED.said(name=usual.main.value.removesuffix(".requires_grad"))
    values = {one.main.failure.after for one in cause.recompiles if one.main.failure.kind == "value"}
    symbolic = any(recompile.main.dynamic for recompile in cause.recompiles)
    if guard_cures.NUMBER in fix.cures and len(values) > 1 and not symbolic:
        fix = advice.constant(failure.subject)
    if symbolic and CONSTANTS_OF_MODULES & {*fix.cures}:
        fix = guard_cures.SYMBOL.said(name=failure.subject)
    if guard_cures.NUMBER in fix.cures and cause.recompiles[-1].main.dynamic:
        fix = guard_cures.COMPUTED_NUMBER.said(name=failure.subject)
    guards = [miss.failure.subject for r in cause.recompiles for miss in (r.main, *r.also)]
    if any(map(advice.KV_CACHE.search, guards)):
        if not _of_several_layers(facts, usual):
            return guard_cures.WITHOUT_KV_CACHE.said()
        grows = any(map(CACHED.search, guards))
        return guard_cures.GROWING_CACHE.said() if grows else guard_cures.PROMPT.said()
    if guard_cures.LOOKED_UP in fix.cures:
        return fix  # it lifts the guards on what is found as well
    if full and FEW_VALUES & {*fix.cures}:
        fix = fix.together_with(guard_cures.MORE_PROGRAMS.said())
    fix = fix.where(full, bool(LIBRARY.search(facts.frame_place(cause.first.place))))
    lifted = {cure for one in fix.cures for cure in advice.LIFTS.get(one, ())}
    also = {miss.value for one in cause.recompiles for miss in one.also if not lifted & {*miss.failure.fix.cures}}
    if also and all(recompile.also for recompile in cause.recompiles):
        several = guard_cures.ALSO.said(
            guards="guard" if len(also) == 1 else "guards", names=some_of([f"`{name}`" for name in sorted(also)])
        )
        fix = fix.together_with(several)
    return fix


def _is_dynamos(facts: Facts, recompile: Recompile) -> bool:
    """Whether Dynamo compiled the function, or asked one of aotviz's backends to."""
    compilation = facts.data.compilations[recompile.place]
    return bool(compilation.compile_id or COMPILE_ID.search(compilation.name))


def _of_fixed_number(failure: GuardFailure, line: SourceLine) -> Advice:
    """What to do about a number that a line needs the value of."""
    kind = "float" if "." in failure.after else "int"
    if failure.source.startswith(advice.OF_NUMPY) and failure.subject.endswith(ITEM):
        return guard_cures.NUMPY_NUMBER.said(kind=kind, name=failure.subject.removesuffix(ITEM))
    if _indexes(line.code, failure.subject):
        return guard_cures.INDEXED_BY_NUMBER.said()
    is_needed = kind == "float" and not LOOP.match(line.code)
    return (guard_cures.NEEDED_NUMBER if is_needed else guard_cures.FIXED_NUMBER).said()


def _of_parameter(cause: Cause) -> Advice:
    """What to do about the size of a parameter that made others constants."""
    missed = (miss.failure.fix for one in cause.recompiles for miss in one.also)
    return next((fix for fix in missed if guard_cures.SIZE_OF_PARAMETER in fix.cures), NO_ADVICE)


def _follows_parameters(cause: Cause) -> bool:
    """Whether each of these calls had parameters of other sizes as well, which the size of an input follows."""
    return all(any(guard_cures.SIZE_OF_PARAMETER in m.failure.fix.cures for m in one.also) for one in cause.recompiles)


def _sizes_that_vary(facts: Facts, cause: Cause) -> dict[str, list[int]]:
    """The sizes that made the recompiles, and those that became symbols with them: tensor -> dimensions.

    Sizes that are equal in each call become symbols together. If one of them stays a constant, so does each other.
    """
    missed = [miss for one in cause.recompiles for miss in (one.main, *one.also)]
    found = {miss.failure.subject for miss in missed if guard_cures.SIZE in miss.failure.fix.cures}
    for recompile in cause.recompiles:
        made = (row for row in facts.about(recompile.place, facts.data.shapes) if row.kind == "create_symbol")
        found |= {spoken(facts.text(row.source)) for row in made} if recompile.main.dynamic else set()
    sizes: dict[str, set[int]] = defaultdict(set)
    for match in filter(None, map(fixed_sizes.DIMENSION.fullmatch, found)):
        sizes[match["name"]].add(int(match["index"]))
    return {tensor: sorted(sizes[tensor]) for tensor in sorted(sizes)}


def _equal_by_chance(facts: Facts, recompile: Recompile) -> list[str]:
    """The sizes that were one symbol in the earlier program, which became a constant, with the one that failed."""
    place = facts.place_of(recompile.nearest.earlier)
    sizes = map(facts.specialized, facts.about(place, facts.data.shapes) if place >= 0 else ())
    return next((those for those in sizes if len(those) > 1 and recompile.main.failure.subject in those), [])


def _was_trained(facts: Facts, recompile: Recompile) -> bool:
    """Whether the earlier program has a backward of AOTAutograd's already, which is that of the parameters: what is
    new is the gradient of an input."""
    earlier = facts.place_of(recompile.nearest.earlier)
    return earlier >= 0 and facts.text_of(earlier, "aot_joint_graph") >= 0


def _is_dictionary(facts: Facts, recompile: Recompile) -> bool:
    """Whether the value whose length failed is a dictionary."""
    guards = facts.guarded(recompile.place).get(recompile.main.value, ())
    return any(guard.kind == "DICT_LENGTH" for guard in guards)


def _is_filled(facts: Facts, cause: Cause, recompile: Recompile) -> bool:
    """Whether it is a dictionary, or a list outside of the function, that has more entries at each call."""
    guards = facts.guarded(recompile.place).get(recompile.main.value, ())
    is_global = any(facts.text(guard.source).startswith("G[") for guard in guards)
    return _rises(cause) and (is_global or _is_dictionary(facts, recompile))


def _fills(recompile: Recompile) -> bool:
    """Whether the line that the guard is of adds to the list or dictionary."""
    name = re.escape(recompile.main.value.rpartition(".")[2])
    return re.search(rf"\b{name}\.(?:append|extend|insert|update|setdefault|add)\(", recompile.main.code) is not None


def _filled_by_hook(recompile: Recompile) -> str:
    """What a hook of a module sets of a dictionary that it has from outside, "acts['relu']"; "" if it is no hook."""
    is_of_hook = OF_HOOK.search(recompile.main.value)
    found = re.search(r"\b\w+\[[^\]]{1,99}\](?= *=[^=])", recompile.main.code) if is_of_hook else None
    return found[0] if found else ""


def _indexes(code: str, subject: str) -> bool:
    """Whether a line takes an element by the number, as of a list or a dictionary."""
    name = re.escape(subject.rpartition(".")[2])
    return re.search(rf"\w\[[^\[\]:,]*\b{name}\]", code) is not None


def _bounds(code: str, subject: str) -> bool:
    """Whether a line takes a slice whose bound has the number."""
    name = re.escape(subject.rpartition(".")[2])
    return re.search(rf"\[[^\[\]]*(?:\b{name}\b[^\[\],]*:|:[^\[\],]*\b{name}\b)", code) is not None


def _assigns(recompile: Recompile) -> bool:
    """Whether the line that the guard is of sets the number."""
    name = re.escape(recompile.main.failure.subject.rpartition(".")[2])
    return re.search(rf"\.{name}\s*(?:[-+*/%]|//|\*\*)?=(?!=)", recompile.main.code) is not None


def _rises(cause: Cause) -> bool:
    """Whether each program was for more entries than the one before."""
    lengths = [recompile.main.failure.before.replace("empty", "0") for recompile in cause.recompiles]
    numbers = [int(length) for length in lengths if length.isdigit()]
    return 1 < len(lengths) == len(numbers) and all(a < b for a, b in itertools.pairwise(numbers))


def _of_several_layers(facts: Facts, recompile: Recompile) -> bool:
    """Whether the function reads the key-value cache of several layers: it is a model and no block of one."""
    return len({match[1] for name in facts.guarded(recompile.place) for match in LAYER.finditer(name)}) > 1


def line_that_fixed(facts: Facts, cause: Cause) -> SourceLine | None:
    return fixed_sizes.line_of(facts, (recompile.place for recompile in cause.recompiles), cause.subject)


def is_of_new_class(cause: Cause) -> bool:
    """Whether each program was for another class of one name."""
    failures = [recompile.main.failure for recompile in cause.recompiles]
    return (
        len(failures) > 1 and {one.kind for one in failures} == {"type"} and len({one.before for one in failures}) == 1
    )


def is_of_member(cause: Cause) -> bool:
    """Whether the value is a member of an Enum: its `_value_` is guarded as well."""
    also = {miss.failure.subject for recompile in cause.recompiles for miss in recompile.also}
    return f"{cause.subject}._value_" in also


def words_of_class(cause: Cause) -> str:
    if is_of_member(cause):
        return f"`{cause.subject}` is another member of its Enum than before"
    if is_of_new_class(cause):
        return f"`{cause.subject}` is of another class named `{cause.first.main.failure.before}` than before"
    return ""


def _computes_with_elements(facts: Facts, cause: Cause) -> bool:
    """Whether an element of the list whose length failed is used in a graph."""
    name = cause.first.main.value
    for recompile in cause.recompiles:
        for value, guards in facts.guarded(recompile.place).items():
            if value.startswith(f"{name}[") and facts.first_use(recompile.place, facts.text(guards[0].source)):
                return True
    return False


def _reads_elements(facts: Facts, recompile: Recompile) -> bool:
    """Whether the new program has a guard on an element of the value whose length failed."""
    place, name = recompile.place, recompile.main.value
    return any(guard.startswith(f"{name}[") for guard in facts.guarded(place))
