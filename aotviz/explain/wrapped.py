"""Functions that Dynamo compiles inside a wrapper of its own, because it does not compile their own frames.

They are functions and modules of torch, such as `torch.compile(F.gelu)` and `torch.compile(nn.Sequential(...))`. All of
them share the wrapper's code, where they are called `fn`. So a guard that fails there may be of another function, which
is no recompile, or of one module that changed, which is one. Where `fn` itself differs, it is another function. A
module of other sizes, submodules or classes is another module too, unless the same line calls it. All else, such as an
attribute of a submodule, changes in one module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from aotviz.explain import misses
from aotviz.explain.cures import guard_cures
from aotviz.explain.guard_failure import GuardFailure
from aotviz.explain.misses import Miss, Reason
from aotviz.explain.rows import Facts
from aotviz.recording.sources import SourceLine, user_frames

WRAPPER = re.compile(r"_dynamo/external_utils\.py:")
PASSED = re.compile(r"(?:args|kwargs)\b")  # the wrapper's variables for what a line passes
FN = re.compile(r"\bfn\b")  # and for the function
BUILT_OTHERWISE = {guard_cures.SIZE_OF_PARAMETER, guard_cures.MODULES, guard_cures.OTHER_MODULE, guard_cures.KEY_ORDER}
OF_CLASS = re.compile(r"___check_type_id\(.*type=<class '(?:.*\.)?(?P<name>\w+)'>")
NAMELESS = "model"  # a module that the line which calls it gives no name


def is_wrapper(facts: Facts, place: int) -> bool:
    return bool(WRAPPER.search(facts.frame_place(place)))


def reasons(facts: Facts, place: int, found: Sequence[Reason]) -> tuple[Reason, ...]:
    """Why the earlier programs of this one function did not match, at the line that calls it, where the guard is of no
    line of the user's. The module has the name that this line gives it."""
    called = _called_at(facts, place)
    code, where = called.code, str(called)

    def told(miss: Miss) -> Miss:
        failure = miss.failure
        if FN.search(failure.subject):
            if guard_cures.MODULE_NUMBER in failure.fix.cures and misses.LIBRARY.search(miss.place):
                failure = replace(failure, fix=guard_cures.LIBRARY_NUMBER.said(name=failure.subject))
            name = name_in(code)
            failure = replace(
                failure,
                subject=FN.sub(name, failure.subject),
                words=FN.sub(name, failure.words),
                fix=failure.fix.renamed(FN, name),
            )
        miss = replace(miss, failure=failure)
        return miss if has_own_line(miss) else replace(miss, code=code, place=where)

    return tuple(
        replace(reason, misses=tuple(map(told, reason.misses)))
        for reason in found
        if not _of_another_function(facts, place, reason)
    )


def beyond_the_limit(facts: Facts, place: int, found: Sequence[Reason]) -> tuple[Reason, ...]:
    """Why the limit was reached where each program is of another function."""
    words = "this is another function or module of torch's than those before, and all of them share one limit"
    failure = GuardFailure("object", "fn", "one object", "another object", words, guard_cures.SHARED_LIMIT.said(), "fn")
    called = _called_at(facts, place)
    return (Reason(found[0].earlier, (Miss(failure, called.code, str(called), False),), found[0].tried),)


def explained(facts: Facts, place: int, reason: Miss) -> str:
    """What the names in the words of a guard of the wrapper stand for; "" if they are the user's."""
    if name := PASSED.match(reason.failure.subject):
        return f"`{name[0]}` is what this line passes to the module or function of torch that was compiled"
    called, kind = name_in(_called_at(facts, place).code), _class_of(facts, place)
    if kind and called == NAMELESS and re.match(rf"{called}\b", reason.failure.subject):
        return f"`{called}` is the compiled `{kind}`"
    return ""


def name_in(code: str) -> str:
    """What a line calls, if it is one variable or attribute.

    >>> name_in("loss = self.net(x)"), name_in("y = net(torch.ones(2))"), name_in("loss = criterion(net(x), y)")
    ('self.net', 'net', 'model')
    """
    try:
        tree = ast.parse(code.strip().rstrip(":"))
    except (SyntaxError, ValueError):
        return NAMELESS
    functions = [ast.unparse(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call)]
    named = {one for one in functions if re.fullmatch(r"[\w.]+", one) and not one.startswith(("torch.", "nn.", "F."))}
    return named.pop() if len(named) == 1 else NAMELESS


def has_own_line(miss: Miss) -> bool:
    """Whether a guard is of a line of the user's, as in a hook, and not of what is passed to the wrapper."""
    return bool(miss.place) and not misses.LIBRARY.search(miss.place) and not PASSED.match(miss.failure.subject)


def _called_at(facts: Facts, place: int) -> SourceLine:
    return misses.own_line(_frames(facts, place))


def _frames(facts: Facts, place: int) -> Sequence[SourceLine]:
    """A compilation that was refused before it began has no stack: that of the one before it."""
    others = facts.frames.get(facts.frame(place), ())  # none if Dynamo gave it no compile id
    stacks = (facts.data.compilations[one].stack for one in (place, *reversed(others)))
    return user_frames(next((text for text in map(facts.text, stacks) if text), ""))


def _of_another_function(facts: Facts, place: int, reason: Reason) -> bool:
    about = [miss.failure for miss in reason.misses if FN.search(miss.failure.subject)]
    if not about:
        return False
    earlier = facts.find(reason.earlier) if reason.earlier else -1
    itself = any(failure.subject == "fn" and failure.kind in ("object", "type") for failure in about)
    if itself or not _class_of(facts, earlier):
        return True
    if not any(BUILT_OTHERWISE & {*failure.fix.cures} for failure in about):
        return False
    return _callers(facts, place) != _callers(facts, earlier)


def _callers(facts: Facts, place: int) -> list[SourceLine]:
    return [frame for frame in _frames(facts, place) if not misses.LIBRARY.search(frame.file)]


def _class_of(facts: Facts, place: int) -> str:
    """The class of the module that was compiled; "" if it is a function, or if the log does not say."""
    found = (OF_CLASS.match(facts.text(guard.text)) for guard in facts.guards_about(place, "fn"))
    return next((match["name"] for match in found if match), "")
