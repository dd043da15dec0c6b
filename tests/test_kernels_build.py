"""How kernels become machine code: stamps of sources, helpers linked into kernels, files of compiled code."""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite import binding
from numba.core.registry import cpu_target

from stretto.kernels.build import linking, notice, stamps, storage, targets
from stretto.kernels.core import claims, scratch
from stretto.kernels.core.compile import inner, kernel, merged
from stretto.kernels.core.merge import add_worker
from stretto.warmup import ship

MODULES = sorted(
    ".".join(path.relative_to(stamps.FOLDER).with_suffix("").parts)
    for path in stamps.FOLDER.rglob("*.py")
    if path.name != "__init__.py"
)


# --- stamps ------------------------------------------------------------


def imported_by_python(module: str) -> set[str]:
    """The kernel modules a module imports anywhere, as Python's own parser sees them."""
    path = stamps.FOLDER.joinpath(*module.split(".")).with_suffix(".py")
    package = ["stretto", "kernels", *module.split(".")[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = [*package[: len(package) - node.level + 1]] if node.level else []
        full = ".".join([*base, *filter(None, [node.module])])
        found |= {full, *(f"{full}.{name.name}" for name in node.names)}
    return {name.removeprefix("stretto.kernels.") for name in found} & set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_stamp_covers_every_module_that_is_imported(module: str) -> None:
    """But those of `build` that store code, which `compile` imports inside a function."""
    found = stamps.closure(module)
    assert module in found
    without = {"build.storage", "build.stamps", "build.targets", "build.notice"}
    for name in found:
        missed = imported_by_python(name) - set(found)
        assert missed <= without, f"{name} imports {missed}"


def test_most_edits_touch_few_modules() -> None:
    dependents = sorted(sum(module in stamps.closure(other) for other in MODULES) for module in MODULES)
    assert dependents[len(dependents) // 2] <= 3


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from stretto.kernels.core.claims import next_visit\n", {"core.claims"}),
        ("from stretto.kernels.numeric import lanes, vector as v  # both\n", {"numeric.lanes", "numeric.vector"}),
        ("from stretto.kernels.numeric import (\n    lanes,\n    scalar,\n)\n", {"numeric.lanes", "numeric.scalar"}),
        (
            "import numpy\nfrom numpy import float32\ndef f():\n    from stretto.kernels.factorization import als\n",
            set(),
        ),
        ("from stretto.kernels.build.linking import entry\n", {"build.linking"}),
    ],
)
def test_imports_are_found_in_a_source(source: str, found: set[str]) -> None:
    assert stamps.imported(source, "") == found


def test_a_stamp_follows_what_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of c → b → a and d: an edit of a changes the stamps of a, b and c, and not that of d."""
    files = {"a": "x = 1\n", "b": "from .a import x\n", "c": "from . import b\n", "d": "y = 2\n"}

    def all_stamps() -> dict[str, Any]:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        for cached in (stamps.closure, stamps._source, stamps.stamp):
            cached.cache_clear()
        return {name: stamps.stamp(f"stretto.kernels.{name}") for name in files}

    monkeypatch.setattr(stamps, "FOLDER", tmp_path)
    try:
        before = all_stamps()
        files["a"] = "x = 2\n"
        after = all_stamps()
    finally:
        monkeypatch.undo()
        for cached in (stamps.closure, stamps._source, stamps.stamp):
            cached.cache_clear()
    assert [name for name in files if before[name] != after[name]] == ["a", "b", "c"]


# --- helpers -----------------------------------------------------------


@inner
def _third(x: Any, values: Any, scale: Any = 3) -> Any:
    return x * values[0] + scale


@inner
def _second(x: Any, values: Any) -> Any:
    return _third(x, values) + _third(x, values, 1)


def _first(values: Any, out: Any) -> None:
    for k in range(out.shape[0]):
        out[k] = _second(k, values)


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel that no earlier process has stored."""
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    return kernel(_first)


def test_helpers_are_linked_and_never_become_machine_code(first: Any) -> None:
    values, out = np.array([2.0]), np.empty(4)
    first(values, out)
    assert out.tolist() == [4.0 * k + 4 for k in range(4)]
    engine = cpu_target.target_context.codegen()._engine
    for helper in (_second, _third):
        assert helper.overloads
        assert not any(
            engine.is_symbol_defined(cres.fndesc.llvm_cpython_wrapper_name) for cres in helper.overloads.values()
        )


def test_names_of_a_helper_do_not_depend_on_its_first_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper takes no option of Numba's from a caller that is merged: forms of both kinds would be stored, and one
    that calls the other kind would call nothing.
    """
    direct, through = inner(_third.py_func), inner(_third.py_func)

    @merged
    def between(x: Any, values: Any) -> Any:
        return through(x, values)

    def one_worker(values: Any, out: Any) -> None:
        out[0] = direct(3, values)

    def other_worker(values: Any, out: Any) -> None:
        out[0] = between(3, values)

    for worker in (one_worker, other_worker):
        monkeypatch.setenv("STRETTO_CACHE", str(tmp_path / worker.__name__))
        kernel(worker)(np.array([2.0]), np.empty(1))
    names = [
        {one.name for one in form.library.own_module().functions if not one.is_declaration}
        for form in (*direct.overloads.values(), *through.overloads.values())
    ]
    assert len(names) == 2
    assert names[0] == names[1]


def test_a_stored_helper_that_calls_what_is_not_there_is_not_used(first: Any) -> None:
    first(np.array([2.0]), np.empty(4))
    (form,) = _second.overloads.values()
    (called,) = linking.called(form.library.own_module())
    whole = storage._reduced_helper(form)
    assert storage._rebuilt_helper(form.target_context, whole).library.name == "_second"
    renamed = str(form.library.own_module()).replace(called, f"{called}x")
    broken = (whole[0], binding.parse_assembly(renamed).as_bitcode(), *whole[2:])
    with pytest.raises(LookupError, match=f"_second calls {called}x"):
        storage._rebuilt_helper(form.target_context, broken)


def test_a_kernel_that_lacks_a_helper_is_never_run(first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code that calls a function that is nowhere would call address 0."""
    monkeypatch.setattr(linking, "reached", lambda libraries: [])
    with pytest.raises(RuntimeError, match="kernel _first: its code lacks _ZN"):
        first(np.array([2.0]), np.empty(4))


def test_a_number_left_out_or_constant_makes_no_other_form(first: Any) -> None:
    first(np.array([2.0]), np.empty(4))
    assert len(_third.overloads) == 1


def test_a_helper_can_be_called_from_python() -> None:
    assert _third(2.0, np.array([5.0])) == 13.0


# --- arrays that kernels make -------------------------------------------


@kernel(allocates=True)
def _makes(n: Any, like: Any) -> Any:
    one, two, three = scratch.zeros(n, np.int32), scratch.zeros2(n, 3, like.dtype), scratch.empty2(2, n, np.float64)
    four = scratch.empty(n, np.bool_)
    for k in range(n):
        three[0, k], three[1, k], four[k] = k, one[k] + two[k, 2], k > 1
    total = 0.0
    for k in range(n):
        total += three[0, k] + three[1, k] + four[k]
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_kernels_make_arrays_of_their_own(dtype: Any) -> None:
    assert _makes(5, np.empty(0, dtype)) == 0 + 1 + 2 + 3 + 4 + 3
    with pytest.raises(MemoryError):
        _makes(1 << 57, np.empty(0, dtype))


# --- files -------------------------------------------------------------

SCRIPT = """
import numpy as np
from stretto.kernels.factorization import compress
key, values = np.array([1, 0, 1], np.int32), np.ones(3, np.float32)
compress.group_by(key, key, values, np.zeros(3, np.int64), np.empty(3, np.int32), np.empty(3, np.float32))
stats = compress.group_by.exact.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def run(folder: Path, script: str = SCRIPT, **env: str) -> subprocess.CompletedProcess[str]:
    said = {"STRETTO_CACHE": str(folder), "STRETTO_COMPILE_NOTICE": "1"}
    return subprocess.run(
        [sys.executable, "-c", script], env=os.environ | said | env, capture_output=True, text=True, check=True
    )


def test_the_next_process_compiles_nothing_and_only_who_waits_is_told(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first.stdout.split() == ["0", "1"]
    assert second.stdout.split() == ["1", "0"]
    assert first.stderr.count("compiling kernels (compress.group_by first)") == 1
    assert "once" in first.stderr
    assert second.stderr == ""
    assert run(tmp_path / "other", STRETTO_COMPILE_NOTICE="0").stderr == ""


LOOP = """
import numpy as np
import stretto as st

@st.parallel
def halve(x):
    for i in range(len(x)):
        x[i] = x[i] / 2

halve(np.ones(9))
"""


def test_who_waits_for_a_loop_is_not_advised_to_compile_kernels_ahead(tmp_path: Path) -> None:
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    script = f"import runpy; runpy.run_path({str(path)!r})"
    first, second = run(tmp_path, script), run(tmp_path, script)
    assert first.stderr.startswith("stretto: compiling a loop for the first use")
    assert "warmup" not in first.stderr
    assert second.stderr == ""


def test_who_waits_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_COMPILE_NOTICE", "1")
    monkeypatch.setattr(notice, "_said", False)
    notice.compiling("one")
    notice.compiling("two")
    assert capsys.readouterr().err.count("stretto:") == 1


ADDED = """
from numba import types
{before}
from stretto.kernels.core import merge
words, floats, plane = types.int64[::1], types.float64[::1], types.float64[:, ::1]
merge.add_worker.exact.compile((words, types.int64, floats, words, plane, floats))
"""


def test_helpers_stored_by_other_processes_fit_together(tmp_path: Path) -> None:
    """Numba numbers functions in the order in which a process meets them; a stored name must not depend on that."""
    one, two, mixed = tmp_path / "one", tmp_path / "two", tmp_path / "mixed"
    run(one, ADDED.format(before=""))
    run(two, ADDED.format(before="import numba\nfor k in range(3):\n    numba.njit(lambda x: x + 1)(k)"))
    names = sorted(path.name for path in (one / "kernels").iterdir())
    assert names == sorted(path.name for path in (two / "kernels").iterdir())
    assert len(names) > 3
    (mixed / "kernels").mkdir(parents=True)
    for number, name in enumerate(name for name in names if "add_worker" not in name):
        shutil.copy((one if number % 2 else two) / "kernels" / name, mixed / "kernels" / name)
    run(mixed, ADDED.format(before=""))  # compiles the kernel with helpers of both
    assert sorted(path.name for path in (mixed / "kernels").iterdir()) == names


# --- what a wheel ships ------------------------------------------------

SHIPPED = """
import sys
from pathlib import Path
from numba import types
from stretto.kernels.build import storage, targets
storage.shipped = lambda: Path(sys.argv[1])
targets.levels = lambda: tuple(sys.argv[2].split())
import numpy as np
from stretto.kernels.core import claims, merge
out, target = np.zeros(1), np.zeros(3)
merge.add_worker.exact(claims.stopped(), 0, out, np.array([0, 3]), np.ones((2, 3)), target)
stats = merge.add_worker.exact.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_shipped_kernels_are_found_before_anything_is_compiled(tmp_path: Path) -> None:
    add_worker(claims.stopped(), 0, np.zeros(1), np.array([0, 3]), np.ones((2, 3)), np.zeros(3))
    wanted = [form for form in ship.forms() if form[:2] == ("stretto.kernels.core.merge", "add_worker")]
    assert ship.ship(tmp_path / "compiled", wanted, targets.LEVELS, 1) > 2 * 3  # helpers too
    level = targets.levels()[:1]  # what this processor may run; code for others is present and must not be used

    def hits(levels: str) -> list[str]:
        env = os.environ | {"STRETTO_CACHE": str(tmp_path / levels.replace(" ", "-") / "cache")}
        command = [sys.executable, "-c", SHIPPED, str(tmp_path / "compiled"), levels]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()

    assert hits("none") == ["0", "1"]
    if level:
        assert hits(level[0]) == ["1", "0"]


def test_code_for_a_level_is_not_used_in_profile_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "shipped", lambda: tmp_path)
    monkeypatch.setattr(targets, "levels", lambda: ("x86-64-v3",))
    codegen = cpu_target.target_context.codegen()
    made: Any = kernel(_first)
    places = {profile: list(made[profile]._cache._places((), codegen)) for profile in ("exact", "fast")}
    assert [path.is_relative_to(tmp_path) for path in places["exact"]] == [True, False]
    assert [path.is_relative_to(tmp_path) for path in places["fast"]] == [False]


# --- functions that are not stored --------------------------------------


def test_a_function_at_a_prompt_is_compiled_and_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))
    around: dict[str, Any] = {"__name__": "nowhere"}
    exec("def add(x, y):\n    return x + y\n", around)
    assert kernel(around["add"])(1, 2) == 3
    assert not storage.folder().exists()


@pytest.mark.parametrize(
    ("has", "levels"),
    [
        (set(), ()),
        ({"avx2", "fma"}, ()),
        (targets._NEEDS["x86-64-v3"], ("x86-64-v3",)),
        (targets._NEEDS["x86-64-v3"] | {"avx512f"}, ("x86-64-v3",)),
        (targets._NEEDS["x86-64-v3"] | targets._NEEDS["x86-64-v4"], ("x86-64-v4", "x86-64-v3")),
        (targets._NEEDS["x86-64-v4"], ()),
    ],
)
def test_levels_a_processor_has(has: set[str], levels: tuple[str, ...]) -> None:
    assert targets.supported(has) == levels
