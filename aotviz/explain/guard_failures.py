"""What a failed guard means: which value it was about, what it was, what it is now, and what to do about it.

Torch names the guard in one of some thirty debug formats: `tensor 'x' size mismatch at index 0. expected 3, actual 4`,
`___check_obj_id(f, 140574)`. `read` makes a `GuardFailure` of each with the table `FORMS`, and quotes other forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from aotviz.explain import advice, expressions, failed_in_backwards
from aotviz.explain.cures import guard_cures
from aotviz.explain.cures.registry import NO_ADVICE, Advice
from aotviz.explain.expressions import is_global, of_module, torchs_setting
from aotviz.explain.guard_failure import GuardFailure
from aotviz.recording.guard_texts import with_article
from aotviz.recording.spoken import BEFORE_BREAK, spoken

DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Int": "int32",
    "Long": "int64",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
RELATIONS = {  # how two tensors share memory: (in the past, now)
    "one tensor": ("were the same tensor", "are the same tensor now"),
    "overlapping views of one storage": ("overlapped in one storage", "overlap in one storage now"),
    "apart in one storage": (
        "were parts of one storage that do not overlap",
        "are parts of one storage now that do not overlap",
    ),
    "in separate storages": ("were in separate storages", "are in separate storages now"),
    "different tensors": ("were different tensors", "are different tensors now"),
    "one object": ("were the same object", "are the same object now"),
    "different objects": ("were different objects", "are different objects now"),
}
RELATION = "|".join(RELATIONS)
NOT_DEVICES = {"BackendSelect", "ADInplaceOrView", "Python", "PythonTLSSnapshot", "Conjugate", "Negative", "ZeroTensor"}

NO_TENSORS = {"a float", "an int", "a bool", "a complex", "a list", "a tuple", "an ndarray"}
HOOKS = re.compile(r"\._(?:\w+_)?hooks$")  # a module's dictionary of hooks
OF_OBJECT = re.compile(r"(?:self|fn)\b.*\.")  # an attribute of an object whose method or module is compiled
SUBMODULE = re.compile(r"\._modules\['[^']*'\]$")
PLACE = re.compile(r"(?P<fact>shape|stride)[\[(](?P<index>\d{1,9})[\])]")  # a size or a stride among a tensor's

Reader = Callable[[re.Match[str]], GuardFailure]


def _size(match: re.Match[str]) -> GuardFailure:
    parameter = "Guard failed on a parameter" in match["rest"]
    return _sized(match["name"], match["index"], match["before"], match["after"], parameter)


def _sized(source: str, index: str, before: str, after: str, parameter: bool) -> GuardFailure:
    name = spoken(source)
    fix = advice.size(source, int(index), before, after, parameter)
    words = f"dimension {index} of `{name}` had size {before} and now has size {after}"
    return GuardFailure("size", f"{name}.shape[{index}]", before, after, words, fix, source)


def _duck_sized(match: re.Match[str]) -> GuardFailure:
    sizes = [spoken(match["one"]), spoken(match["other"])]
    words = f"`{sizes[0]}` and `{sizes[1]}` were equal and now differ"
    fix = advice.equal_by_chance(sizes, sizes)
    return GuardFailure("symbolic", ", ".join(sizes), "equal", "different", words, fix)


def _stride(match: re.Match[str]) -> GuardFailure:
    return _strided(match["name"], match["index"], match["before"], match["after"])


def _strided(source: str, index: str, before: str, after: str) -> GuardFailure:
    name = spoken(source)
    words = f"the memory layout of `{name}` changed: the stride of dimension {index} was {before} and is now {after}"
    fix = guard_cures.STRIDE.said(name=name)
    return GuardFailure("stride", f"{name}.stride({index})", before, after, words, fix, source)


def _dtype(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["name"])
    before, after = (DTYPES.get(match[side], match[side]) for side in ("before", "after"))
    words = f"`{name}.dtype` was {before} and is now {after}"
    fix = advice.tensor("dtype", match["name"], before)
    return GuardFailure("dtype", f"{name}.dtype", before, after, words, fix, match["name"])


def _rank(match: re.Match[str]) -> GuardFailure:
    name, before, after = spoken(match["name"]), match["before"], match["after"]
    words = f"`{name}` had {_dimensions(before)} and now has {after}"
    return GuardFailure("rank", f"{name}.ndim", before, after, words, guard_cures.RANK.said(name=name), match["name"])


def _requires_grad(match: re.Match[str]) -> GuardFailure:
    name, was = spoken(match["name"]), match["before"] in ("1", "True")
    verbs = ("required grad", "does not require grad now") if was else ("did not require grad", "requires grad now")
    words = f"`{name}` {verbs[0]} and {verbs[1]}"
    subject, fix = f"{name}.requires_grad", advice.tensor("requires_grad", match["name"], "")
    return GuardFailure("requires_grad", subject, str(was), str(not was), words, fix, match["name"])


def _inference(name: str, is_now: bool, source: str) -> GuardFailure:
    was, now = ("a normal", "an inference") if is_now else ("an inference", "a normal")
    words = f"`{name}` was {was} tensor and is now {now} tensor"
    return GuardFailure("inference", name, was, now, words, guard_cures.INFERENCE.said(), source)


def outside_of_inference_mode(failure: GuardFailure) -> GuardFailure:
    """The failure of a tensor that was used or made in inference mode, given that both calls were outside of it."""
    return _inference(failure.subject, failure.after == "inside", failure.source) if failure.kind == "mode" else failure


def _dispatch(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["name"])
    before, after = (_keys(match[side]) for side in ("before", "after"))
    was, now = (_device(keys) for keys in (before, after))
    if was != now:
        words = f"`{name}` was on {was} and is now on {now}"
        fix = advice.tensor("device", match["name"], was)
        return GuardFailure("device", f"{name}.device", was, now, words, fix, match["name"])
    if before != after and all(key.startswith(("ADInplaceOrView", "Autograd")) for key in before ^ after):
        is_now = len(before) > len(after)
        if any(key.startswith("ADInplaceOrView") for key in before ^ after):
            return _inference(name, is_now, match["name"])
        was, now = ("outside", "inside") if is_now else ("inside", "outside")
        words = f"`{name}` was used, or made, {was} of `torch.inference_mode()` and is now used, or made, {now} of it"
        return GuardFailure("mode", name, was, now, words, guard_cures.INFERENCE_MODE.said(), match["name"])
    gone, new = sorted(before - after), sorted(after - before)
    changes = [f"no longer {', '.join(gone)}"] * bool(gone) + [f"now {', '.join(new)}"] * bool(new)
    words = f"`{name}` is a different kind of tensor: {' and '.join(changes)}"
    fix = guard_cures.TENSOR_KIND.said(name=name)
    return GuardFailure("tensor kind", name, ", ".join(gone), ", ".join(new), words, fix, match["name"])


def _device_index(match: re.Match[str]) -> GuardFailure:
    name, before, after = spoken(match["name"]), match["before"].strip("() ."), match["after"].strip("() .")
    words = f"`{name}` was on device {before} and is now on device {after}"
    fix = advice.tensor("device", match["name"], before)
    return GuardFailure("device", f"{name}.device", before, after, words, fix, match["name"])


def _tensor_or_not(match: re.Match[str]) -> GuardFailure:
    return _no_tensor(match["name"], with_article(match["found"].rpartition(".")[2]))


def now_tensor(failure: GuardFailure, source: str) -> GuardFailure:
    """The failure of a guard on a number, where the new call has a tensor, by Dynamo's expression for that."""
    fix = guard_cures.TENSOR_OR_NUMBER.said(name=failure.subject)
    return replace(failure, after="", fix=fix).with_after(_as_tensor(source))


def _as_tensor(source: str) -> str:
    return "a NumPy value" if source.startswith(advice.OF_NUMPY) else "a tensor"


def _no_tensor(source: str, now: str) -> GuardFailure:
    """What was a tensor, or a value of NumPy, which Dynamo takes for one, and now is something else."""
    name, before = spoken(source), _as_tensor(source)
    if now == "None":
        cure = guard_cures.TENSOR_OR_NONE
    else:
        cure = guard_cures.TENSOR_OR_NUMBER if now in NO_TENSORS or before != "a tensor" else guard_cures.TENSOR_CLASS
    words = f"`{name}` was {before} and is now {now}"
    return GuardFailure("type", name, before, now, words, cure.said(name=name), source)


def _duplicates(match: re.Match[str]) -> GuardFailure:
    names = [spoken(one or other) for one, other in re.findall(r"\"([^\"]+)\"|'([^',\"]+)'", match["names"])]
    both = " and ".join(f"`{name}`" for name in names) or "two arguments"
    words = f"{both} were different tensors and are the same tensor now"
    fix = guard_cures.DUPLICATES.said(name=both)
    return GuardFailure("same tensor", ", ".join(names), "different tensors", "one tensor", words, fix)


def _duplicate(match: re.Match[str]) -> GuardFailure:
    """The form in which torch does not name the arguments."""
    words = "two arguments are the same tensor now and were different tensors before; torch does not say which"
    fix = guard_cures.DUPLICATES.said(name="the arguments")
    return GuardFailure("same tensor", "arguments", "different tensors", "one tensor", words, fix)


def _related(match: re.Match[str]) -> GuardFailure:
    one, other = spoken(match["one"]), spoken(match["other"])
    return relation(one, other, match["before"], match["after"], match["one"])


def relation(one: str, other: str, before: str, after: str, source: str = "") -> GuardFailure:
    """The relation of two values changed from `before` to `after`, which are keys of RELATIONS."""
    both = f"`{one}` and `{other}`"
    words = f"{both} {RELATIONS[before][0]} and {RELATIONS[after][1]}"
    same = "one tensor" in (before, after)
    kind, cure = ("same tensor", guard_cures.DUPLICATES) if same else ("memory", guard_cures.MEMORY)
    return GuardFailure(kind, f"{one}, {other}", before, after, words, cure.said(name=both), source)


def _identical(match: re.Match[str]) -> GuardFailure:
    states = ("different objects", "one object") if match["negated"] else ("one object", "different objects")
    one, other = spoken(match["one"]), spoken(match["other"])
    return relation(one, other, *states, match["one"])


def _elsewhere(match: re.Match[str]) -> GuardFailure:
    names = match["names"]
    words = f"{names} share memory in a different way than before"
    return GuardFailure("memory", names, "", "", words, guard_cures.DUPLICATES.said(name=names))


def _global_state(match: re.Match[str]) -> GuardFailure:
    names = match["names"].split()
    said = " and ".join(dict.fromkeys(map(torchs_setting, names))) or "a global setting of torch"
    words = f"{said} changed"
    return GuardFailure("global state", " ".join(names) or "global state", "", "", words, advice.global_state(names))


def _object(match: re.Match[str]) -> GuardFailure:
    source, of = match["source"], match["of"] or ""
    name, kind = spoken(source), _class(of)
    if name.endswith(".__code__"):
        function = name.removesuffix(".__code__")
        words = f"`{function}` is a different function than before"
        fix = guard_cures.FUNCTION.said(name=function)
        return GuardFailure("object", function, "one function", "another function", words, fix, source)
    what = f" ({kind})" if kind else ""
    words = f"`{name}` is a different object{what} than before"
    fix = guard_cures.IDENTITY.said(name=name)
    return GuardFailure("object", name, "one object", "another object", words, fix, source)


def _type(match: re.Match[str]) -> GuardFailure:
    source = match["source"]
    name, before = spoken(source), _class(match["of"] or "") or _class(match["hint"] or "") or "of another type"
    words = f"`{name}` was a {before} and is now something else" if match["of"] else f"`{name}` has another type"
    replaced = guard_cures.OTHER_MODULE if SUBMODULE.search(source) else guard_cures.OTHER_CLASS
    fix = (guard_cures.TYPE if before in BUILTIN else replaced).said(name=name, type=before)
    return GuardFailure("type", name, before, "", words, fix, source)


def _is_member(match: re.Match[str]) -> GuardFailure:
    name, key, was = spoken(match["source"]), match["key"], not match["negated"]
    change = f"it contained {key} and no longer does" if was else f"it did not contain {key} and now does"
    words = f"`{name}` has other elements: {change}"
    cure = guard_cures.GLOBAL_VALUE if match["source"].startswith("G[") else guard_cures.VALUE
    return GuardFailure("value", name, "", "", words, cure.said(name=name), match["source"])


def _or_hooks(reader: Reader) -> Reader:
    """For a guard on a dictionary: if it holds a module's hooks, these are what changed. All hooks are one subject, for
    one edit cures them."""

    def read_dictionary(match: re.Match[str]) -> GuardFailure:
        name = spoken(match["source"])
        name = name.rpartition(".keys()")[0] or name
        if not HOOKS.search(name):
            return reader(match)
        of, _, kind = name.rpartition("._")
        words, fix = f"the {kind.replace('_', ' ')} of `{of}` changed", guard_cures.MODULE_HOOKS.said()
        return GuardFailure("hooks", "hooks of modules", "", "", words, fix, match["source"])

    return read_dictionary


@_or_hooks
def _contains(match: re.Match[str]) -> GuardFailure:
    name, key = spoken(match["source"]), match["key"]
    had = not match["negated"]
    words = f"`{name}` had the key {key} and no longer has it" if had else f"`{name}` had no key {key} and now has it"
    before, after = (f"has {key}", f"lacks {key}") if had else (f"lacks {key}", f"has {key}")
    of, _, rest = name.rpartition(".__dict__")
    if of and not rest and not had and (attribute := key.strip("'")).isidentifier():
        words = f"`{of}` had no attribute `{attribute}` of its own and now has one"
        cure = guard_cures.FORWARD if attribute == "forward" else guard_cures.SET_BY_CALL
        fix = cure.said(name=f"{of}.{attribute}")
        return GuardFailure("keys", f"{of}.{attribute}", before, after, words, fix, match["source"])
    return GuardFailure("keys", name, before, after, words, guard_cures.KEYS.said(name=name), match["source"])


@_or_hooks
def _key(match: re.Match[str]) -> GuardFailure:
    """One key of a dictionary, by its place: the keys and their order are guarded one by one."""
    name, before = spoken(match["source"]), match["before"].strip()
    of = name.rpartition(".keys()")[0]
    words, fix = f"a key of `{of}` was {before} and changed", guard_cures.KEY_ORDER.said(name=of)
    return GuardFailure("key", name, before, "", words, fix, match["source"])


@_or_hooks
def _dict_length(match: re.Match[str]) -> GuardFailure:
    """Torch's reason for a dictionary; `before` is the number that the program was compiled for."""
    name, count = spoken(match["source"]), int(match["before"])
    if name.endswith("._modules"):  # of a ModuleList, a Sequential or another container
        name, modules = name.removesuffix("._modules"), f"{count} {'module' if count == 1 else 'modules'}"
        words = f"`{name}` had {modules} and now has more or fewer"
        return GuardFailure("modules", name, modules, "", words, guard_cures.MODULES.said(name=name), match["source"])
    keys = f"{count} {'key' if count == 1 else 'keys'}"
    words = f"`{name}` had {keys} and now has more or fewer"
    return GuardFailure("keys", name, keys, "", words, guard_cures.KEYS.said(name=name), match["source"])


def _length(match: re.Match[str]) -> GuardFailure:
    name, before = spoken(match["source"]), match["before"]
    words = f"`{name}` had length {before} and now has another length"
    return GuardFailure("length", f"len({name})", before, "", words, _same_length(name), f"len({match['source']})")


@_or_hooks
def _empty(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["source"])
    words = f"`{name}` was empty or false, and no longer is"
    return GuardFailure("length", name, "empty", "not empty", words, _same_length(name), match["source"])


def _same_length(name: str) -> Advice:
    return guard_cures.MODULE_HOOKS.said() if name.endswith("hooks") else guard_cures.LENGTH.said(name=name)


def _attribute(match: re.Match[str]) -> GuardFailure:
    name, attribute = spoken(match["source"]), match["attribute"]
    if attribute.startswith("_dynamo_"):
        words = f"the marks on `{name}` (from `mark_dynamic` and similar functions) changed"
        return GuardFailure("marks", name, "", "", words, guard_cures.MARKS.said(), match["source"])
    had = not match["negated"] and match["equal"] != "False"
    words = f"`{name}` {'no longer has' if had else 'now has'} the attribute `{attribute}`"
    before, after = ("there", "not there") if had else ("not there", "there")
    return GuardFailure(
        "attribute", f"{name}.{attribute}", before, after, words, guard_cures.ATTRIBUTE.said(), match["source"]
    )


def _no_attribute(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["source"])
    words = f"`{name}` is no parameter, buffer or attribute any more"
    return GuardFailure(
        "attribute", name, "there", "not there", words, guard_cures.NO_ATTRIBUTE.said(), match["source"]
    )


def _none(match: re.Match[str]) -> GuardFailure:
    name, was_none = spoken(match["source"]), not match["negated"]
    before, after = ("None", "something") if was_none else ("something", "None")
    words = f"`{name}` was {before} and is now {after}"
    if name.endswith(".grad"):
        fix = guard_cures.GRADIENT.said()
    else:
        of_object = was_none and OF_OBJECT.match(name)
        fix = (guard_cures.SET_BY_CALL if of_object else guard_cures.TENSOR_OR_NONE).said(name=name)
    return GuardFailure("type", name, before, after, words, fix, match["source"])


def _value(match: re.Match[str]) -> GuardFailure:
    source, before = match["source"], match["before"].strip()
    name = spoken(source)
    if name.endswith("CURRENT_DEVICE"):
        words = f"the default device (`torch.set_default_device`) was {before} and changed"
        return GuardFailure("global state", "default device", before, "", words, advice.global_state(["device"]))
    if name.startswith("torch._functorch"):
        words = "the hooks on saved tensors changed"
        return GuardFailure(
            "global state", "saved-tensor hooks", before, "", words, guard_cures.SAVED_HOOKS.said(), source
        )
    if name.endswith(".keys())") or name.startswith("list("):
        name = name.removeprefix("list(").removesuffix(".keys())")
        words = f"`{name}` had the keys {before} and now has other keys"
        return GuardFailure("keys", name, before, "", words, guard_cures.KEYS.said(name=name), source)
    fix = advice.value(name, before, is_global(source), of_module(source), name.endswith(".training"))
    words = f"`{name}` was {before} and changed"
    failure = GuardFailure("value", name, before, "", words, fix, source)
    opposite = {"True": "False", "False": "True"}.get(before, "")
    return failure.with_after(opposite)


def _marked(match: re.Match[str]) -> GuardFailure:
    """The form in which torch does not name the tensor."""
    words = "a tensor has marks (from `mark_dynamic` and similar functions) that it did not have before"
    return GuardFailure("marks", "marks of a tensor", "", "", words, guard_cures.MARKS.said())


def _backend(match: re.Match[str]) -> GuardFailure:
    words = "`torch.compile` was called with another backend object than before"
    return GuardFailure("backend", "backend", "", "", words, guard_cures.BACKEND.said())


def _unexpected(match: re.Match[str]) -> GuardFailure:
    words = "a guard failed when the function was called, but it no longer failed when torch looked for the reason, so "
    words += "something changed in between, perhaps in another thread; no cure is known"
    return GuardFailure("unknown", "", "", "", words, NO_ADVICE)


def _gone(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["name"].strip(" '\"")) or "an object"
    words = f"the earlier program was deleted together with `{name}`, on which it depends"
    return GuardFailure("deleted", name, "alive", "deleted", words, guard_cures.DELETED.said(name=name))


def _modes(match: re.Match[str]) -> GuardFailure:
    words = "other `__torch_function__` modes are active than before"
    return GuardFailure("global state", "torch function modes", "", "", words, guard_cures.MODES.said())


def _metadata(match: re.Match[str]) -> GuardFailure:
    name = spoken(match["source"] or "a tensor subclass")
    words = f"the metadata of `{name}`, a tensor subclass, changed"
    return GuardFailure("subclass", name, "", "", words, guard_cures.SUBCLASS.said())


def _own(match: re.Match[str]) -> GuardFailure:
    """A guard of Dynamo's that aotviz evaluated itself (`failed_guards.py`)."""
    name, before, after = spoken(match["name"]), match["before"], match["after"]
    source, _, fact = match["name"].rpartition(".")
    subject = spoken(source)
    words = f"`{name}` was {before} and is now {after}"
    place = PLACE.fullmatch(fact)
    if place and place["fact"] == "shape":
        return _sized(source, place["index"], before, after, "_parameters" in source)
    if place:
        return _strided(source, place["index"], before, after)
    if before == "a tensor":
        return _no_tensor(match["name"], after)
    if subject and fact in advice.OF_TENSORS:
        fix = advice.tensor(fact, source, before)
        return GuardFailure({"ndim": "rank"}.get(fact, fact), name, before, after, words, fix, source)
    return GuardFailure("value", name, before, after, words, advice.value(name, before, False, False, False))


def _symbolic(match: re.Match[str]) -> GuardFailure:
    condition = spoken(match["condition"])
    if least := AT_LEAST_2.fullmatch(condition):
        return replace(_sized(least["name"], least["index"], "2 or more", "0 or 1", False), kind="symbolic")
    if not OF_SIZES.search(condition):
        condition = expressions.plainly(condition)
        words = f"the program was compiled for `{condition}`, which no longer holds"
        fix = guard_cures.NEEDED_NUMBER.said()
        return GuardFailure("symbolic", _symbols(condition), condition, f"not {condition}", words, fix)
    words = f"the program was compiled for sizes with {condition}, which no longer holds"
    return GuardFailure(
        "symbolic", _symbols(condition), condition, f"not {condition}", words, guard_cures.SYMBOLIC.said()
    )


def _nan(match: re.Match[str]) -> GuardFailure:
    source = match["source"]
    name = spoken(source)
    words = f"`{name}` was nan and is now something else"
    fix = advice.value(name, "nan", is_global(source), of_module(source), False)
    return GuardFailure("value", name, "nan", "", words, fix, source)


BUILTIN = {"list", "tuple", "set", "dict", "int", "float", "str"}  # whose name makes a value of another type one of it
OF_SIZES = re.compile(r"\.(?:shape\[|stride\(|size\()|\bs\d+\b|\bu\d+\b|storage_offset")
AT_LEAST_2 = re.compile(r"2 <= (?P<name>\S+)\.shape\[(?P<index>\d{1,9})\]")
DIMENSION = r"\S+\.(?:shape|size\(\))\[\d{1,9}\]"
MOST_READ = 2000  # characters of a guard; some forms take the square of them
NAME = r"tensor '(?P<name>.*?)' "
FORMS: tuple[tuple[re.Pattern[str], Reader], ...] = tuple(
    (re.compile(pattern, re.S), reader)
    for pattern, reader in (
        (
            NAME + r"size mismatch at index (?P<index>\d{1,9})\. "
            r"expected (?P<before>\S+?), actual (?P<after>-?\w+)(?P<rest>.*)",
            _size,
        ),
        (
            NAME
            + r"stride mismatch at index (?P<index>\d{1,9})\. expected (?P<before>\S+?), actual (?P<after>-?\w+).*",
            _stride,
        ),
        (NAME + r"dtype mismatch\. expected (?P<before>\w+), actual (?P<after>\w+).*", _dtype),
        (NAME + r"rank mismatch\. expected (?P<before>\d+), actual (?P<after>\d+).*", _rank),
        (NAME + r"requires_grad mismatch\. expected requires_grad=(?P<before>\w+).*", _requires_grad),
        (NAME + r"dispatch key set mismatch\. expected (?P<before>.*?\)), actual (?P<after>.*?\)).*", _dispatch),
        (
            NAME + r"(?>.*?device index)(?>.*?to be )(?P<before>.*?)[,.] (?:but )?(?:got|actual) (?P<after>.*)",
            _device_index,
        ),
        (
            r"expected type of '(?P<name>.*)' to be (?:a tensor type, '?|<class 'torch\.Tensor'>,) ?"
            r"but found <class '(?P<found>.*?)'>.*",
            _tensor_or_not,
        ),
        (r"Duplicate tensors found: \[(?P<names>.*)\].*", _duplicates),
        (r".*Duplicate tensor found.*", _duplicate),
        (r"(?:GLOBAL_STATE changed:|___check_global_state\(\))(?P<names>.*)", _global_state),
        (
            r"___check_obj_id\((?P<source>.*), \d+\)(?:, type=<class '(?P<of>.*?)'>)?.*",
            _object,
        ),
        (
            r"___check_type_id\((?P<source>.*), \d+\)(?:, type=<class '(?P<of>.*?)'>)?"
            r"(?:.*\(HINT: type (?P<hint>.*)\))?.*",
            _type,
        ),
        (r"CodeGuardAccessor: Not a function on (?P<source>.+)(?P<of>)", _object),
        *failed_in_backwards.FORMS,
        (r"the sizes do not fulfil (?P<condition>.*)", _symbolic),
        (
            rf"(?P<one>.+?) and (?P<other>.+?) were (?P<before>{RELATION}) and are (?P<after>{RELATION})",
            _related,
        ),
        (rf"(?P<one>{DIMENSION}) == (?P<other>{DIMENSION}) +# duck sizing added .*", _duck_sized),
        (
            r"(?P<names>.+?) (?:do not overlap in memory as they did when|are views of other tensors than when) this "
            r"was compiled.*",
            _elsewhere,
        ),
        (r"(?P<name>[^=]+?) changed from (?P<before>.+) to (?P<after>.+)", _own),
        (r"(?P<negated>not )?(?:frozen)?set\.__contains__\((?P<source>.*), (?P<key>.*?)\)", _is_member),
        (r"(?P<negated>not )?___dict_contains\((?P<key>.*), (?P<source>[^,]*)\)", _contains),
        (r"len\((?P<source>.*)\) == (?P<before>\d{1,9})", _length),
        (r"len\((?P<source>.*)\) != (?P<before>\d{1,9})", _dict_length),
        (
            r"(?P<negated>not )?hasattr\((?P<source>.*), '(?P<attribute>\w+)'\)(?: == (?P<equal>\w+))?",
            _attribute,
        ),
        (r"(?P<source>[^\s].*?) is (?P<negated>not )?None", _none),
        (r"(?P<one>[^\s=<>]+) is (?P<negated>not )?(?P<other>[^\s=<>]+)", _identical),
        (r"_has_dynamo_dim_marking is .*", _marked),
        (r"BACKEND_MATCH failure.*", _backend),
        (r"Unexpected recompilation.*", _unexpected),
        (r".*invalidated because (?P<name>.*?) got deallocated.*", _gone),
        (r"___check_torch_function_mode_stack\(\).*", _modes),
        (r"___check_metadata_[\w/]++(?:\((?P<source>[^)]*+)\))?+.*", _metadata),
        (r"(?P<source>list\(dict\.keys\([^()]*\)\)\[\d{1,9}\]) == (?P<before>[^=<>]+)", _key),
        (r"(?P<source>[A-Za-z_][^<>=!+*/%]*?) == (?P<before>[^=<>]+)", _value),
        (r"\(?(?:type\(\S+\) is float and )?_{0,3}math_isnan\((?P<source>[^()]+)\)\)?", _nan),
        (r"KeyError on (?P<source>\S+)", _no_attribute),
        (r"not (?P<source>[A-Za-z_][\w.\[\]'\"]*)", _empty),
        (r"(?P<condition>[^#\n]*(?:<=|>=|==|!=|<|>|Eq\(|Ne\(|Mod\()[^#\n]*)", _symbolic),
    )
)


@lru_cache(8192)  # a function that recompiles often fails the same guards each time
def read(guard: str) -> GuardFailure:
    """What a failed guard says, as torch wrote it without the comment.

    >>> read("tensor 'x' size mismatch at index 0. expected 3, actual 4").words
    'dimension 0 of `x` had size 3 and now has size 4'
    >>> read("list(dict.keys(L['batch']))[1] == 'text'").with_after("'image'").words
    "a key of `batch` was 'text' and is now 'image'"
    >>> read("(type(L['lr']) is float and __math_isnan(L['lr']))").words
    '`lr` was nan and is now something else'
    >>> read("").words
    'torch does not say which guard failed; `TORCH_LOGS=recompiles_verbose` prints all of them'
    """
    text = guard.strip()
    if not text or text.lower() in ("no reason", "unknown reason"):
        words = "torch does not say which guard failed; `TORCH_LOGS=recompiles_verbose` prints all of them"
        return GuardFailure("unknown", "", "", "", words, NO_ADVICE)
    for pattern, reader in FORMS if len(text) <= MOST_READ else ():
        match = pattern.fullmatch(text)
        if match:
            found = reader(match)
            # No line of the user's names such a value, so no advice can name it.
            return replace(found, fix=NO_ADVICE) if BEFORE_BREAK in found.subject else found
    words = f"the check `{spoken(text)}` no longer holds, for which no cure is known"
    return GuardFailure("other", spoken(text), "", "", words, NO_ADVICE, text)


def _dimensions(count: str) -> str:
    return f"{count} dimension{'' if count == '1' else 's'}"


def _keys(text: str) -> set[str]:
    inner = text.partition("(")[2].rpartition(")")[0]
    return {key.strip() for key in inner.split(",") if key.strip()}


def _device(keys: set[str]) -> str:
    devices = sorted(key for key in keys if key not in NOT_DEVICES and not key.startswith(("Autograd", "Autocast")))
    return ", ".join(devices).lower() or "an unknown device"


def _class(text: str) -> str:
    return text.strip().removeprefix("__main__.").removeprefix("builtins.")


def _symbols(condition: str) -> str:
    found = re.findall(r"[A-Za-z_][\w.]*(?:\.shape\[\d+\]|\.stride\(\d+\))|[A-Za-z_][\w.\[\]]*(?![\w.(])", condition)
    names = dict.fromkeys(name for name in found if name not in ("Eq", "Ne", "Mod", "and", "or", "not", "Max", "Min"))
    return ", ".join(names)
