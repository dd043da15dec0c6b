"""Drop checks of subscripts that hold inside inner loops.

The types prove a subscript by an interval that a variable keeps in the whole body. A counter of two inner loops has no
such interval, but one in each loop: `for f, x in features` twice in a body is common. The form that is compiled uses
those too; the canonical form, which fingerprints are made of, and `explain` do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from stretto.loops.analyse.space import Space
from stretto.loops.front.bind import ArrayInfo, Info
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body
from stretto.loops.types.inventory import nodes
from stretto.loops.types.promote import whole
from stretto.loops.types.scope import Interval, Scope


def proven(body: Body, space: Space, infos: Mapping[str, Info]) -> Body:
    """The body, with fewer subscripts to check.

    Parameters
    ----------
    body : Body
        A typed body.
    space : Space
        Its iterations.
    infos : mapping
        Descriptions of the arguments, by name.
    """
    if not any(any(getattr(node, "checked", ())) for node in nodes(body.steps)):
        return body
    return replace(body, steps=_Proofs(body, space, infos).renewed(body.steps))


class _Proofs:
    def __init__(self, body: Body, space: Space, infos: Mapping[str, Info]) -> None:
        self.body, self.infos, self.ragged = body, infos, dict(space.ragged)
        self.scope = Scope(self.size)
        for dim in space.dims:
            ends = (dim.start, dim.start + (dim.extent - 1) * dim.step)
            self.scope.ranges[dim.name] = (min(ends), max(ends)) if dim.extent else (0, -1)

    def size(self, array: str, axis: int) -> int | None:
        """Elements of an array along an axis; None if that is not known."""
        info = self.infos.get(array)
        if isinstance(info, ArrayInfo):
            return info.shape[axis]
        known = next((one for one in self.body.arrays if one.name == array), None)
        if known is None or known.allocated:
            return None
        if known.sizes:
            found = self.scope.of(known.sizes[axis])
            return found[0] if found and found[0] == found[1] else None
        return known.shape[axis]

    def renewed(self, x: Any) -> Any:
        """A part of the tree with the checks that are still needed."""
        match x:
            case tuple():
                return tuple(self.renewed(part) for part in x)
            case t.RangeLoop(name=name, start=start, stop=stop, step=stride):
                first, last, by = self.scope.of(start), self.scope.of(stop), self.scope.of(stride)
                within = (first[0], max(first[0], last[1] - 1)) if first and last and by and by[0] > 0 else None
                return self.loop(x, {name: within})
            case t.RaggedLoop(names=names, types=kinds, ragged=field):
                parts = self.ragged[field].parts
                found = {name: (int(part.min()), int(part.max())) for name, kind, part in
                         zip(names, kinds, parts, strict=True) if whole(kind) and len(part)}  # fmt: skip
                return self.loop(x, {name: found.get(name) for name in names})
            case t.Element(array=array, index=index) | t.ElementPlace(array=array, index=index):
                return self.checks(x, array, index)
            case t.RowLoad(array=array, lead=lead) | t.RowPlace(array=array, lead=lead):
                return self.checks(x, array, lead)
            case t.Fold(accumulator=array, index=index) | t.BufferAdd(buffer=array, index=index):
                return self.checks(x, array, index)
        if is_dataclass(x) and type(x).__module__ == t.__name__:
            return self.within(x)
        return x

    def within(self, x: Any) -> Any:
        """A node with new parts; the node itself if none has changed."""
        parts = {part.name: (getattr(x, part.name), self.renewed(getattr(x, part.name))) for part in fields(x)}
        changed = {name: new for name, (old, new) in parts.items() if new is not old and new != old}
        return replace(x, **changed) if changed else x

    def loop(self, x: Any, ranges: Mapping[str, Interval]) -> Any:
        """A loop whose body is read with the ranges of its counters, those that the body does not assign."""
        assigned = {place.name for node in nodes(x.body) if isinstance(node, t.Store)
                    for place in node.places if isinstance(place, t.VarPlace)}  # fmt: skip
        for node in nodes(x.body):
            if isinstance(node, t.RangeLoop):
                assigned.add(node.name)
            elif isinstance(node, t.RaggedLoop):
                assigned.update(node.names)
        bounds = {} if isinstance(x, t.RaggedLoop) else {
            part: self.renewed(getattr(x, part)) for part in ("start", "stop", "step")
        }  # fmt: skip
        before = {name: self.scope.ranges.get(name) for name in ranges}
        self.scope.ranges.update({name: None if name in assigned else found for name, found in ranges.items()})
        body = self.renewed(x.body)
        self.scope.ranges.update(before)
        return replace(x, body=body, **bounds)

    def checks(self, x: Any, array: str, index: tuple[t.Scalar, ...]) -> Any:
        """A reference with fewer checks."""
        found = self.within(x)
        checked = list(found.checked)
        for axis, k in enumerate(index):
            if checked[axis] and self.scope.inside(k, self.size(array, axis)):
                checked[axis] = False
        return replace(found, checked=tuple(checked)) if tuple(checked) != found.checked else found
