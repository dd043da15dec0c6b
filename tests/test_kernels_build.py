"""How kernels become machine code: stamps of sources, helpers linked into kernels, files of compiled code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.registry import cpu_target

from stretto.kernels import space
from stretto.kernels.build import notice, stamps, storage, targets
from stretto.kernels.compile import inner, kernel

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
        ("from stretto.kernels.claims import next_visit\n", {"claims"}),
        ("from stretto.kernels import lanes, vector as v  # both\n", {"lanes", "vector"}),
        ("from stretto.kernels import (\n    lanes,\n    scalar,\n)\n", {"lanes", "scalar"}),
        ("import numpy\nfrom numpy import float32\ndef f():\n    from stretto.kernels import als\n", set()),
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


@kernel
def _first(values: Any, out: Any) -> None:
    for k in range(out.shape[0]):
        out[k] = _second(k, values)


def test_helpers_are_linked_and_never_become_machine_code() -> None:
    values, out = np.array([2.0]), np.empty(4)
    _first(values, out)
    assert out.tolist() == [4.0 * k + 4 for k in range(4)]
    engine = cpu_target.target_context.codegen()._engine
    for helper in (_second, _third):
        assert helper.overloads
        assert not any(
            engine.is_symbol_defined(cres.fndesc.llvm_cpython_wrapper_name) for cres in helper.overloads.values()
        )


def test_a_number_left_out_or_constant_makes_no_other_form() -> None:
    _first(np.array([2.0]), np.empty(4))
    assert len(_third.overloads) == 1


def test_a_helper_can_be_called_from_python() -> None:
    assert _third(2.0, np.array([5.0])) == 13.0


# --- arrays that kernels make -------------------------------------------


@kernel(allocates=True)
def _makes(n: Any, like: Any) -> Any:
    one, two, three = space.zeros(n, np.int32), space.zeros2(n, 3, like.dtype), space.empty2(2, n, np.float64)
    four = space.empty(n, np.bool_)
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
from stretto.kernels import compress
key, values = np.array([1, 0, 1], np.int32), np.ones(3, np.float32)
compress.group_by(key, key, values, np.zeros(3, np.int64), np.empty(3, np.int32), np.empty(3, np.float32))
stats = compress.group_by.exact.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def run(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    said = {"STRETTO_CACHE": str(folder), "STRETTO_COMPILE_NOTICE": "1"}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | said | env, capture_output=True, text=True, check=True
    )


def test_the_next_process_compiles_nothing_and_only_who_waits_is_told(tmp_path: Path) -> None:
    first, second = run(tmp_path), run(tmp_path)
    assert first.stdout.split() == ["0", "1"]
    assert second.stdout.split() == ["1", "0"]
    assert first.stderr.count("compiling kernels (compress.group_by first)") == 1
    assert "once" in first.stderr
    assert second.stderr == ""
    assert run(tmp_path / "other", STRETTO_COMPILE_NOTICE="0").stderr == ""


def test_who_waits_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_COMPILE_NOTICE", "1")
    monkeypatch.setattr(notice, "_said", False)
    notice.compiling("one")
    notice.compiling("two")
    assert capsys.readouterr().err.count("stretto:") == 1


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
