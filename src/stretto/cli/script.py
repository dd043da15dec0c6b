"""Load a decorated loop from a user's script, with arguments to explain it with.

Three ways to say what the arguments are:

    stretto explain train.py:epoch --arg ratings=data:6040x3706:1000000 --arg W=f4:6040x64 --arg H=f4:3706x64
    stretto explain train.py:epoch              where train.py has a function example_epoch(), or example(), that
                                                returns them as a tuple, or by name as a dict
    stretto explain train.py:epoch --run        run the script up to its first call of epoch, and explain that call

The script is imported under another name, so that code below `if __name__ == "__main__":` does not run, except with
--run.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stretto.errors import DataError, PlanError

if TYPE_CHECKING:
    from stretto.loops.parallel import Loop

Call = tuple[tuple[Any, ...], dict[str, Any]]


def script_target(text: str) -> tuple[Path, str] | None:
    """(script, function) of `script.py:function`, with '' for a script alone; None for anything else.

    >>> script_target("a/train.py:epoch")[1], script_target("ratings.dat")
    ('epoch', None)
    """
    found = re.fullmatch(r"(.+\.py)(?::(\w*))?", text)
    return (Path(found[1]), found[2] or "") if found else None


def loops_of(names: Mapping[str, Any]) -> dict[str, Loop]:
    """The decorated functions of a script."""
    from stretto.loops.parallel import Loop

    return {name: value for name, value in names.items() if isinstance(value, Loop)}


def import_script(path: Path) -> dict[str, Any]:
    """The names a script defines; its own folder is where it imports from, as when Python runs it."""
    if not path.is_file():
        raise DataError(f"there is no script {path}; give the path of a Python file and a function: script.py:function")
    spec = importlib.util.spec_from_file_location(f"stretto_script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with _folder_of(path):
        spec.loader.exec_module(module)
    return vars(module)


def find(names: Mapping[str, Any], path: Path, function: str) -> Loop:
    """The decorated function of that name."""
    loops = loops_of(names)
    if function in loops:
        return loops[function]
    there = f"it has {', '.join(sorted(loops))}" if loops else "it has none: put @st.parallel above the function"
    if not function and len(loops) == 1:
        return next(iter(loops.values()))
    if function in names:
        raise PlanError(f"{function} in {path.name} is not decorated with @st.parallel; {there}")
    wanted = f"no loop called {function}" if function else "more than one loop, or none"
    raise PlanError(f"{path.name} has {wanted}; {there}. Write {path.name}:NAME")


def example_of(names: Mapping[str, Any], loop: Loop) -> dict[str, Any]:
    """What the script's example_NAME() or example() returns, by the names of the parameters; empty without one."""
    for name in (f"example_{loop.plain.__name__}", "example"):
        make = names.get(name)
        if callable(make):
            return _named(loop, name, make)
    return {}


def _named(loop: Loop, name: str, make: Callable[[], Any]) -> dict[str, Any]:
    given = make()
    parameters = list(inspect.signature(loop.plain).parameters)
    if isinstance(given, Mapping):
        pairs = dict(given)
    elif isinstance(given, tuple) and len(given) <= len(parameters):
        pairs = dict(zip(parameters, given, strict=False))
    else:
        raise PlanError(f"{name}() gave {type(given).__name__}; return a tuple of arguments of {loop.plain.__name__}, "
                        f"or a dict by name: {', '.join(parameters)}")  # fmt: skip
    return pairs


def need_more(loop: Loop, given: Mapping[str, Any]) -> None:
    """Refuse with the ways to give arguments where data or arrays are missing, which cannot be guessed."""
    from stretto.loops.front.loop_tree import IteratedName
    from stretto.loops.front.loop_tree import LoopNest as LoopTree
    from stretto.loops.types.scope import subscripted

    function = loop.tree
    unknown = sorted(set(given) - set(function.params))
    if unknown:
        raise PlanError(f"{function.name} has no parameter {unknown[0]}; it has {', '.join(function.params)}")
    loops = [step for step in function.steps if isinstance(step, LoopTree)]
    needed = {level.over.name for step in loops for level in step.levels if isinstance(level.over, IteratedName)}
    for step in loops:
        needed |= subscripted(step.body)
    missing = [name for name in function.params if name in needed and name not in given]
    if missing:
        raise PlanError(
            f"{function.name} needs {', '.join(missing)}: give each with --arg, such as --arg {missing[0]}=SPEC (see "
            f"stretto explain --help); or write a function example_{function.name}() in the script that returns the "
            "arguments; or let the script run up to its first call: --run"
        )


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(path.parent.resolve()))


class _CalledError(BaseException):
    """Carries the arguments of a call out of the program that made it, past any `except Exception`."""

    def __init__(self, loop: Loop, call: Call) -> None:
        self.loop, self.call = loop, call


def first_call(function: str, program: Callable[[], Any], *, others: bool = True) -> tuple[Loop, Call] | None:
    """Run `program` up to its first call of a decorated function of that name: the loop and the arguments.

    Other loops run as they are, or with others=False not at all. None when the program ends without such a call.
    """
    from stretto.loops.parallel import Loop

    usual = Loop.__call__

    def watched(self: Loop, *args: Any, **kwargs: Any) -> None:
        if self.plain.__name__ == function:
            raise _CalledError(self, (args, kwargs))
        if others:
            usual(self, *args, **kwargs)

    Loop.__call__ = watched  # type: ignore[method-assign]
    try:
        program()
    except _CalledError as found:
        return found.loop, found.call
    finally:
        Loop.__call__ = usual  # type: ignore[method-assign]
    return None


def first_call_of_script(path: Path, function: str) -> tuple[Loop, Call]:
    """The same for a script, run as Python would run it."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        with _folder_of(path):
            found = first_call(function, lambda: runpy.run_path(str(path), run_name="__main__"))
    finally:
        sys.argv = before
    if found is None:
        raise PlanError(f"{path.name} ended without a call of {function}; give the arguments with --arg name=SPEC")
    return found
