"""The slicer of loop bodies: a forward traversal that tracks unknown values and keeps needed statements.

The traversal is repeated until no more statements are needed, because a kept statement may need others. In a branch
whose test is not known ahead no statement is kept; when slicing *loosely*, both sides are kept, one after the other.
Variables that either side assigns are unknown afterwards. A `break` or `continue` that is not known ahead has the same
effect on the rest of its loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.statements import (
    assigned,
    every_step,
    names_of,
    parts_of,
    subscripts,
    substantive,
    target_of,
    trimmed,
)
from stretto.loops.types.typed_tree import INT, Const, Row, Scalar

from .access import children, shown, shown_row

_ONE = Const(INT, 1)


@dataclass(frozen=True, slots=True)
class SkippedAccess:
    """An access that is not recorded."""

    line: int  # in the user's file
    array: str  # name
    mode: str  # 'read', 'write' or 'buffer'
    text: str  # as the user wrote it
    why: str  # the reason, such as 'it depends on W'


@dataclass(frozen=True, slots=True)
class RecordedAccess:
    """An access that is recorded."""

    line: int  # in the user's file
    array: str  # name
    mode: str  # 'read', 'write' or 'buffer'
    text: str  # as the user wrote it


def mutable(body: Body, behind: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Arrays of the caller that the loop changes, directly or through a buffer."""
    shared = {array.name for array in body.arrays if array.role in ("state", "captured")}
    found: set[str] = set()
    for step in every_step(body.steps):
        if isinstance(step, t.Store):
            found |= {place.array for place in step.places if isinstance(place, t.ElementPlace | t.RowPlace)} & shared
        elif isinstance(step, t.BufferAdd):
            found |= set(behind.get(step.buffer, ()))
    return frozenset(found)


Unknown = dict[str, str]  # variables, local rows and local arrays that are not known ahead, and why


@dataclass
class LoopFrame:
    """The innermost loop around a statement."""

    left: str = ""  # why the rest of this iteration may be skipped
    broken: str = ""  # why later iterations may be skipped
    exits: list[Unknown] = field(default_factory=list)  # unknown variables at each break and continue


def _join(into: Unknown, other: Unknown) -> None:
    for name, why in other.items():
        into.setdefault(name, why)


@dataclass
class Slicer:
    """Slices one body; see `slice_body`."""

    body: Body  # the body to slice
    arrays: frozenset[str]  # whose accesses are recorded
    modes: frozenset[str]  # of the accesses to record
    behind: Mapping[str, tuple[str, ...]]  # arrays that each buffer changes
    loosely: bool  # whether accesses that may happen are recorded too

    def __post_init__(self) -> None:
        self.mutable = mutable(self.body, self.behind)
        self.local = {array.name for array in self.body.arrays if array.role == "local"}
        self.needed: set[str] = set()  # names that kept statements depend on
        self.bound: list[str] = []  # variables of enclosing loops, which need no statement to have a value
        self.dead = 0  # nesting depth of loops of which nothing can be kept
        self.recorded: dict[RecordedAccess, None] = {}
        self.left_out: dict[SkippedAccess, None] = {}

    # --- statements ---

    def block(self, steps: tuple[t.Step, ...], env: Unknown, under: str, frame: LoopFrame) -> tuple[t.Step, ...]:
        """The kept statements of a block. under: why the block may not run; '' if it always runs."""
        kept: list[t.Step] = []
        for step in steps:
            kept += self.step(step, env, under or frame.left, frame)
        return tuple(kept)

    def step(self, step: t.Step, env: Unknown, here: str, frame: LoopFrame) -> list[t.Step]:
        match step:
            case t.Store():
                return self.put(step, env, here)
            case t.Allocate(array=array, sizes=sizes):
                kept = self.reads(sizes, env, here)
                why = next((w for size in sizes if (w := self.why(size, env))), "") or here
                if why:
                    env[array] = why
                else:
                    env.pop(array, None)
                if why or array not in self.needed or self.dead:
                    return kept
                self.need(*sizes)
                return [*kept, step]
            case t.ZeroFill(array=array):
                if not here:
                    env.pop(array, None)
                return [step] if array in self.needed and self.keeps(here) else []
            case t.Fold(index=index, value=value):
                return self.reads((*index, value), env, here)
            case t.BufferAdd(line=line, buffer=name, index=index, checked=checked, value=value):
                kept = self.reads((*index, value), env, here)
                target = self.behind.get(name, (name,))[0]
                length = value.length if t.is_row(value) else _ONE
                if t.is_row(value):
                    index, checked = (*index, Const(INT, 0)), (*checked, False)
                kept += self.record("buffer", target, line, index, checked, length, shown(name, step.index), env, here)
                return kept
            case t.Branch():
                return self.branch(step, env, here, frame)
            case t.Jump(kind=kind):
                frame.exits.append(dict(env))
                if here:
                    frame.left = frame.left or here
                    frame.broken = frame.broken or (here if kind == "break" else "")
                return [step] if not here and not self.dead else []
            case t.WhileLoop() | t.RangeLoop() | t.RaggedLoop():
                return self.loop(step, env, here)
        raise AssertionError(step)

    def keeps(self, here: str) -> bool:
        """Whether statements under this condition are kept."""
        return not self.dead and (not here or self.loosely)

    def put(self, x: t.Store, env: Unknown, here: str) -> list[t.Step]:
        kept = self.reads(x.values, env, here)
        names = [target_of(place, self.local) for place in x.places]
        later: list[t.ElementPlace | t.RowPlace] = []
        for at, place in enumerate(x.places):
            if not isinstance(place, t.ElementPlace | t.RowPlace):
                continue
            uses = {name for k in subscripts(place) for name in names_of(k, self.local)}
            # A target reads the values assigned to earlier targets, and the old values of later ones.
            if uses & set(names[at + 1 :]):
                both = "it depends on names that the same statement assigns" if uses & set(names[:at]) else ""
                kept += self.write(place, env, here or both)
            else:
                later.append(place)
        reasons = [self.why(value, env) for value in x.values]
        pairs: list[tuple[t.Place, Scalar | Row]] = []
        for place, value, name, why in zip(x.places, x.values, names, reasons, strict=True):
            if not name:
                continue
            parts: tuple[Scalar, ...] = ()
            if isinstance(place, t.ElementPlace | t.RowPlace):
                parts = subscripts(place)
                why = why or next((w for k in parts if (w := self.why(k, env))), "")
                if why:
                    env.setdefault(name, why)  # one element unknown: any may be
            elif why:
                env[name] = why
            else:
                env.pop(name, None)
            if not why and name in self.needed and self.keeps(here):
                pairs.append((place, value))
                self.need(value, *parts)
        if pairs:
            kept.append(t.Store(x.line, tuple(place for place, _ in pairs), tuple(value for _, value in pairs)))
        for place in later:
            kept += self.write(place, env, here)
        return kept

    def write(self, place: t.ElementPlace | t.RowPlace, env: Unknown, here: str) -> list[t.Step]:
        kept = self.reads(subscripts(place), env, here)
        index = (*place.lead, place.start) if isinstance(place, t.RowPlace) else place.index
        length = place.length if isinstance(place, t.RowPlace) else _ONE
        text = shown_row(place) if isinstance(place, t.RowPlace) else shown(place.array, place.index)
        return kept + self.record("write", place.array, place.line, index, place.checked, length, text, env, here)

    def branch(self, x: t.Branch, env: Unknown, here: str, frame: LoopFrame) -> list[t.Step]:
        kept = self.reads((x.test,), env, here)
        why = self.why(x.test, env)
        under, inside = here or why, LoopFrame(exits=frame.exits)
        yes_env, no_env = dict(env), dict(env)
        yes = self.block(x.body, yes_env, under, inside)
        if why:
            # Both sides are kept one after the other, so the second must not use what the first one changes.
            _join(no_env, dict.fromkeys(assigned(x.body, self.local), why))
        other = LoopFrame(exits=frame.exits)
        no = self.block(x.orelse, no_env, under, other)
        for side in (inside, other):
            frame.left, frame.broken = frame.left or side.left, frame.broken or side.broken
        env.clear()
        env.update(yes_env)
        _join(env, no_env)
        if why:
            _join(env, dict.fromkeys(assigned((*x.body, *x.orelse), self.local), why))
            return [*kept, *yes, *no]
        if yes or no:
            self.need(x.test)
            kept.append(t.Branch(x.line, x.test, yes, no))
        return kept

    def loop(self, x: t.WhileLoop | t.RangeLoop | t.RaggedLoop, env: Unknown, here: str) -> list[t.Step]:
        bounds = (
            (x.test,) if isinstance(x, t.WhileLoop) else (x.start, x.stop, x.step) if isinstance(x, t.RangeLoop) else ()
        )
        own = () if isinstance(x, t.WhileLoop) else (x.name,) if isinstance(x, t.RangeLoop) else x.names
        changed = assigned(x.body, self.local)
        kept = self.reads(bounds, env, here) if not isinstance(x, t.WhileLoop) else []
        why = "" if isinstance(x, t.WhileLoop) else next((w for b in bounds if (w := self.why(b, env))), "")
        # First find what is unknown at the start of any iteration, keeping nothing; then slice the statements.
        head, frame = dict(env), LoopFrame()
        self.dead += 1
        noted = dict(self.recorded), dict(self.left_out)
        while True:
            now, frame = dict(head), LoopFrame(broken=frame.broken)
            if isinstance(x, t.WhileLoop):
                why = self.why(x.test, head)
            self.enter(own, now, why)
            self.block(x.body, now, here or why or frame.broken, frame)
            for other in (now, *frame.exits):
                _join(now, other)
            if frame.left:
                _join(now, dict.fromkeys(changed, frame.left))
            size = len(head)
            _join(head, {name: reason for name, reason in now.items() if name not in own or name in changed})
            if len(head) == size:
                break
        self.dead -= 1
        self.recorded, self.left_out = noted
        broken = frame.broken
        if isinstance(x, t.WhileLoop):
            why = self.why(x.test, head) or broken or frame.left
        now = dict(head)
        self.enter(own, now, why)
        free = [name for name in own if name not in changed]
        self.dead += bool(why)
        self.bound += free
        body = [*(self.reads(bounds, now, here or why) if isinstance(x, t.WhileLoop) else [])]
        rest = self.block(x.body, now, here or why or broken, LoopFrame())
        for name in free:
            self.bound.remove(name)
        self.dead -= bool(why)
        env.clear()
        env.update(head)
        if why or broken or frame.left:
            _join(env, dict.fromkeys((*changed, *own), why or broken or frame.left))
        rest = trimmed(rest)
        if self.dead or why or not (substantive((*body, *rest)) or set(own) & self.needed):
            return kept
        self.need(*bounds)
        if body:
            # The test reads arrays too, also the last time: its records come first in every iteration.
            assert isinstance(x, t.WhileLoop)
            leave = t.Branch(x.line, x.test, (), (t.Jump(x.line, "break"),))
            return [t.WhileLoop(x.line, Const(t.BOOL, True), (*body, leave, *rest))]
        return [*kept, replace(x, body=rest)]

    def enter(self, own: Iterable[str], env: Unknown, why: str) -> None:
        """Bind the variables of a loop."""
        for name in own:
            env.pop(name, None)
            if why:
                env[name] = why

    # --- records ---

    def reads(self, values: Iterable[Scalar | Row], env: Unknown, here: str) -> list[t.Step]:
        """Records of what expressions read, in evaluation order."""
        kept: list[t.Step] = []
        for value in values:
            kept += self.read(value, env, here)
        return kept

    def read(self, x: Scalar | Row, env: Unknown, here: str) -> list[t.Step]:
        match x:
            case t.Select(test=test, yes=yes, no=no):
                return [*self.read(test, env, here), *self.choice(test, (yes,), (no,), env, here)]
            case t.Logic(op="and" | "or" as op, args=(first, *others)) if others:
                rest: tuple[Scalar, ...] = (replace(x, args=tuple(others)),)
                sides = (rest, ()) if op == "and" else ((), rest)
                return [*self.read(first, env, here), *self.choice(first, sides[0], sides[1], env, here)]
            case t.Element(line=line, array=array, index=index, checked=checked):
                kept = self.reads(index, env, here)
                return kept + self.record("read", array, line, index, checked, _ONE, shown(array, index), env, here)
            case t.RowLoad(line=line, array=array, lead=lead, start=start, length=length, checked=checked):
                kept = self.reads((*lead, start, length), env, here)
                index = (*lead, start)
                return kept + self.record("read", array, line, index, checked, length, shown_row(x), env, here)
        return self.reads(children(x), env, here)

    def choice(
        self, test: Scalar, yes: tuple[Scalar, ...], no: tuple[Scalar, ...], env: Unknown, here: str
    ) -> list[t.Step]:
        """Records of a conditional expression, of which only one side is evaluated."""
        why = self.why(test, env)
        sides = [tuple(self.reads(side, env, here or why)) for side in (yes, no)]
        if not any(sides):
            return []
        if why:
            return [*sides[0], *sides[1]]
        self.need(test)
        return [t.Branch(0, test, *sides)]

    def record(
        self,
        mode: str,
        array: str,
        line: int,
        index: tuple[Scalar, ...],
        checked: tuple[bool, ...],
        length: Scalar,
        text: str,
        env: Unknown,
        here: str,
    ) -> list[t.Step]:
        if array not in self.arrays or mode not in self.modes:
            return []
        why = next((w for k in (*index, length) if (w := self.why(k, env))), "")
        if why or self.dead or (here and not self.loosely):
            self.left_out.setdefault(SkippedAccess(line, array, mode, text, why or here or "it is never reached"))
            return []
        self.recorded.setdefault(RecordedAccess(line, array, mode, text))
        self.need(*index, length)
        kept: t.Step = t.BufferAdd(line, f"{mode} {array}", index, checked, length)
        if not isinstance(length, Const):
            kept = t.Branch(line, t.Test(t.BOOL, ">", length, Const(length.type, 0)), (kept,), ())
        return [kept]

    # --- expressions ---

    def need(self, *values: Scalar | Row) -> None:
        for value in values:
            self.needed |= set(names_of(value, self.local)) - set(self.bound)

    def why(self, x: Scalar | Row, env: Unknown) -> str:
        """Why the value of an expression is not known ahead; '' if it is."""
        match x:
            case t.Var(name=name) | t.RowLocal(name=name) if name in env:
                return env[name]
            case t.Element(array=array) | t.RowLoad(array=array):
                if array in self.mutable:
                    return f"it depends on {array}"
                if array in env:
                    return env[array]
        return next((why for part in parts_of(x) if (why := self.why(part, env))), "")
