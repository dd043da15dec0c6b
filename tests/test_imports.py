"""What importing costs, what the shelf holds, and which rooms are pure."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import stretto
from readymade import Ready

SRC = Path(stretto.__file__).parent
HEAVY = (
    *("numba", "llvmlite", "scipy", "sklearn", "matplotlib", "pandas", "pyarrow", "rich", "fsspec", "typer"),
    *("narwhals", "polars"),
    *("ray", "zmq"),
)


@pytest.fixture(scope="module")
def ready() -> Iterator[Ready]:
    """NumPy may be there, and takes longest of what may."""
    with Ready("numpy") as made:
        yield made


def loaded_after(code: str, names: tuple[str, ...], ready: Ready, folder: Path) -> list[str]:
    script = folder / "script.py"
    script.write_text(f"import sys\n{code}\nprint(*[m for m in {names} if m in sys.modules])")
    done = ready.run(script, cwd=folder, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "stretto",
        "stretto.data",
        "stretto.data.partition",
        "stretto.plan.plan",
        "stretto.plan.draw",
        "stretto.schedule.orders.rotation",
        "stretto.schedule.orders.bound",
        "stretto.schedule",
        "stretto.schedule.pipeline",
        "stretto.programs.program",
        "stretto.data.design.design",
        "stretto.data.generate.corpus",
        "stretto.observe.topics",
        "stretto.models.topics.topics",
        "stretto.state.state",
        "stretto.state.make",
        "stretto.state.accumulator",
        "stretto.state.buffer",
        "stretto.data.records.lazy",
        "stretto.data.reading.text",
        "stretto.keyed",
        "stretto.entry",
        "stretto.tables.table",
        "stretto.store.layout",
        "stretto.store.shard.functions",
        "stretto.consistency.rules",
        "stretto.consistency.clocks",
        "stretto.comm.policy",
        "stretto.comm.messages",
        "stretto.comm.units",
        "stretto.runtime.tables.job",
        "stretto.runtime.simulated.spec",
        "stretto.runtime.cluster",
        "stretto.runtime.cluster.hosts.calls",
        "stretto.observe.events",
        "stretto.errors",
    ],
)
def test_importing_is_light(module: str, ready: Ready, tmp_path: Path) -> None:
    assert loaded_after(f"import {module}", HEAVY, ready, tmp_path) == []


def test_what_is_loaded_is_seen(ready: Ready, tmp_path: Path) -> None:
    assert loaded_after("import rich", HEAVY, ready, tmp_path) == ["rich"]


@pytest.mark.parametrize("name", ["Lasso", "ElasticNet", "LassoCV", "lasso_path", "LogisticRegression", "Threads"])
def test_linear_models_import_numba_when_they_fit(name: str, ready: Ready, tmp_path: Path) -> None:
    assert loaded_after(f"import stretto; stretto.{name}", ("numba", "llvmlite"), ready, tmp_path) == []


@pytest.mark.parametrize("name", ["Lasso", "MatrixFactorization", "LatentDirichletAllocation"])
def test_estimators_import_little_of_others(name: str, ready: Ready, tmp_path: Path) -> None:
    """Of scikit-learn what an estimator is made of; pandas and SciPy's statistics only where they are used."""
    code = f"import stretto; stretto.{name}"
    left_out = ("scipy.stats", "pandas", "matplotlib", "pyarrow", "polars")
    assert loaded_after(code, left_out, ready, tmp_path) == []
    code += "\nimport pandas, scipy.stats\nprint(pandas.DataFrame({'a': [1]}).shape, scipy.stats.norm.cdf(0.0))"
    assert loaded_after(code, (), ready, tmp_path) == ["(1,", "1)", "0.5"]


def test_the_shelf() -> None:
    assert sorted(stretto.__all__) == sorted(stretto._SHELF)
    for name in stretto.__all__:
        assert getattr(stretto, name) is not None
        assert name in dir(stretto)
    with pytest.raises(AttributeError, match="module 'stretto' has no attribute 'MatrixFactorisation'"):
        stretto.MatrixFactorisation  # noqa: B018


def test_memory_without_torch_says_what_to_install(ready: Ready, tmp_path: Path) -> None:
    code = "sys.modules['torch'] = None\nimport stretto, stretto.errors\n"
    code += "try: stretto.memory.fit\nexcept stretto.errors.PlanError as error: print(error)"
    assert "pip install 'stretto[memory]'" in " ".join(loaded_after(code, (), ready, tmp_path))


def test_type_checkers_see_the_shelf_that_is_there() -> None:
    """The names imported for type checkers are those loaded at run time, from the same modules."""
    tree = ast.parse((SRC / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == stretto._SHELF


IMPURE = {
    "threading",
    "socket",
    "time",
    "concurrent",
    "multiprocessing",
    "asyncio",
    "subprocess",
    "signal",
    "select",
    "os",
}
PURE = ["schedule", "plan", "data/partition.py", "state", "loops", "store", "consistency", "comm", "runtime/tables"]


def imports_of(path: Path) -> set[str]:
    """Top-level packages a file imports, and Stretto's own rooms, outside `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("room", PURE)
def test_pure_rooms_decide_and_never_act(room: str) -> None:
    where = SRC / room
    for path in [where] if where.is_file() else sorted(where.glob("*.py")):
        names = imports_of(path)
        assert not {name.split(".")[0] for name in names} & IMPURE, path
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        calls = {call.id for call in called if isinstance(call, ast.Name)}
        assert "open" not in calls, path


# Imports point from the doors towards the kernels, never back (docs/architecture.md).
BELOW: dict[str, set[str]] = {
    "cli": {
        *("cli", "models", "loops", "tables", "warmup", "runtime", "plan", "data", "kernels", "observe", "errors"),
    },
    "warmup": {"memory", "warmup", "models", "loops", "programs", "runtime", "data", "kernels", "errors"},
    "models": {
        *("models", "solvers", "programs", "runtime", "plan", "schedule", "state", "data", "kernels", "observe"),
        "errors",
    },
    "memory": {"memory", "plan", "kernels", "errors", "paths"},
    "kernels": {"kernels", "paths"},
    "kernels/build": {"kernels", "paths"},
    "data": {"data", "kernels", "errors", "paths"},
    "data/parts": {"data", "errors"},
    "state": {"state", "data", "errors"},
    "schedule": {"schedule", "kernels", "errors"},
    "plan": {"plan", "schedule", "data", "kernels", "errors"},
    "observe": {"observe", "errors", "paths"},
    "loops": {"loops", "runtime", "plan", "schedule", "state", "data", "kernels", "errors"},
    "solvers": {"solvers", "runtime", "schedule", "data", "kernels", "errors"},
    "programs": {"programs", "runtime", "plan", "schedule", "state", "data", "kernels", "observe", "errors"},
    "testing": {
        *("testing", "loops", "kernels", "keyed", "errors"),
        *("runtime", "store", "consistency", "comm"),
    },
    "runtime": {
        *("runtime", "plan", "schedule", "state", "data", "kernels", "observe", "errors", "paths"),
        *("store", "consistency", "comm"),
    },
    "runtime/cluster": {"runtime", "plan", "schedule", "store", "consistency", "comm", "kernels", "errors"},
    "runtime/simulated": {"runtime", "plan", "schedule", "store", "consistency", "comm", "kernels", "errors"},
    "runtime/tables": {"runtime", "store", "consistency", "comm", "errors"},
    "tables": {"tables", "plan", "runtime", "store", "consistency", "comm", "keyed", "errors"},
    "store": {"store", "consistency", "comm", "kernels", "errors"},
    "consistency": {"consistency", "errors"},
    "comm": {"comm", "kernels", "errors"},
}

# Small modules at the top of the package, which import nothing of ours but each other.
EVERYWHERE = {"cached", "checks", "errors", "pages"}

# A method that users call on a value, and that leads to where things are done.
LEADS_ON = {"state/state.py": {"runtime"}}  # State.save and State.load


def test_every_package_has_its_place() -> None:
    packages = {path.parent.relative_to(SRC).as_posix() for path in SRC.rglob("*.py")}
    assert packages - {"."} == set(BELOW)


@pytest.mark.parametrize("room", BELOW)
def test_imports_never_point_back(room: str) -> None:
    for path in sorted((SRC / room).glob("*.py")):
        rooms = {name.split(".")[1] for name in imports_of(path) if name.startswith("stretto.")}
        allowed = BELOW[room] | EVERYWHERE | LEADS_ON.get(path.relative_to(SRC).as_posix(), set())
        assert rooms <= allowed, f"{path.relative_to(SRC)} imports {rooms - allowed}"


def test_no_property_takes_the_lock_that_a_ctrl_c_can_leave_taken() -> None:
    """Before Python 3.12, that of functools does; see `stretto.cached`."""
    found = [
        path for path in SRC.rglob("*.py") if "functools" in (text := path.read_text()) and "cached_property" in text
    ]
    assert [path.name for path in found if "stretto.cached import" not in path.read_text()] == ["cached.py"]
