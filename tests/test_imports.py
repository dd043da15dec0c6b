"""What importing costs, which names are public, which packages are pure, and which way imports point."""

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
        "stretto.data.records.record_sets",
        "stretto.data.reading.text",
        "stretto.keyed",
        "stretto.entry",
        "stretto.faults",
        "stretto.tables",
        "stretto.metrics",
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
        "stretto.schedule.stages.stage_scheduler",
        "stretto.schedule.stages.task_graph",
        "stretto.schedule.stages.width_memory",
        "stretto.errors",
        "stretto.deprecation",
    ],
)
def test_importing_is_light(module: str, ready: Ready, tmp_path: Path) -> None:
    assert loaded_after(f"import {module}", HEAVY, ready, tmp_path) == []


def test_what_is_loaded_is_seen(ready: Ready, tmp_path: Path) -> None:
    assert loaded_after("import rich", HEAVY, ready, tmp_path) == ["rich"]


@pytest.mark.parametrize(
    "name",
    [
        "Lasso",
        "ElasticNet",
        "GroupLasso",
        "MultiTaskLasso",
        "PoissonRegressor",
        "HuberElasticNet",
        "LassoCV",
        "ElasticNetCV",
        "LogisticRegressionCV",
        "enet_path",
        "LogisticRegression",
        "LinearSVC",
        "FactorizationMachine",
        "Threads",
    ],
)
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
    code += "try: stretto.memory.train_step\nexcept stretto.errors.PlanError as error: print(error)"
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
# Packages that decide and never act: no threads, sockets, clocks or files, in them or in their subpackages.
PURE = [
    "schedule",
    "plan",
    "data/partition.py",
    "data/parts/placement.py",
    "state",
    "loops",
    "store",
    "consistency",
    "comm",
    "tasks",
    "runtime/tables/run",
]

PATHS = {
    ".".join(("stretto", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(SRC.rglob("*.py"))
}


def imports_of(module: str) -> set[str]:
    """Everything that a module imports, by its full name: at the top, inside functions, and for type checkers."""
    path = PATHS[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            name = ".".join(filter(None, (base, node.module)))
            found |= {full if (full := f"{name}.{alias.name}") in PATHS else name for alias in node.names}
    return found


def inside(place: str) -> list[str]:
    """The modules of a package and of its subpackages, or one module."""
    name = "stretto." + place.removesuffix(".py").replace("/", ".")
    return [module for module in PATHS if module == name or module.startswith(name + ".")]


@pytest.mark.parametrize("place", PURE)
def test_pure_packages_decide_and_never_act(place: str) -> None:
    modules = inside(place)
    assert modules
    for module in modules:
        assert not {name.split(".")[0] for name in imports_of(module)} & IMPURE, module
        tree = ast.parse(PATHS[module].read_text(encoding="utf-8"))
        called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert "open" not in {call.id for call in called if isinstance(call, ast.Name)}, module


# Imports point from the front ends towards the kernels, never back (docs/architecture.md). All imports count: inside
# functions and for type checkers too. A package may import itself and what is listed.
BELOW: dict[str, set[str]] = {
    "cli": {
        "evaluation",
        "metrics",
        "models",
        "solvers",
        "loops",
        "tables",
        "warmup",
        "runtime",
        "plan",
        "data",
        "kernels",
        "observe",
    },
    "warmup": {"evaluation", "memory", "models", "loops", "programs", "tasks", "runtime", "data", "kernels"},
    "evaluation": {"metrics", "models", "solvers", "runtime", "schedule", "data", "kernels"},
    "models": {"solvers", "metrics", "programs", "runtime", "plan", "schedule", "state", "data", "kernels", "observe"},
    "solvers": {"metrics", "runtime", "plan", "schedule", "state", "data", "kernels", "observe"},
    "metrics": {"runtime", "schedule", "data", "kernels"},
    "loops": {"runtime", "plan", "schedule", "state", "data", "kernels"},
    "programs": {"runtime", "plan", "schedule", "state", "data", "kernels", "observe"},
    "tables": {"plan", "runtime", "store", "consistency", "comm", "keyed"},
    "tasks": {"solvers", "tables", "runtime", "plan", "schedule", "consistency", "state"},
    "memory": {"kernels", "observe", "paths"},
    "testing": {"loops", "runtime", "store", "consistency", "comm", "kernels", "keyed"},
    "runtime": {"plan", "schedule", "store", "consistency", "comm", "state", "data", "kernels", "observe", "paths"},
    "plan": {"schedule", "data", "kernels"},
    "schedule": {"kernels"},
    "store": {"consistency", "comm", "kernels"},
    "comm": {"kernels"},
    "consistency": {"comm"},
    "state": {"data", "consistency"},
    "data": {"kernels", "paths"},
    "observe": {"paths"},
    "kernels": {"paths"},
}

# Small modules at the top of the package, which import nothing of ours but each other.
EVERYWHERE = {"atomic", "cached", "checks", "deprecation", "errors", "figures", "pages", "ranges", "text"}

# Methods that users call on a value, and that lead to where things are done: State.save, State.load, Session.submit.
LEADS_ON = {"stretto.state.state": {"runtime"}, "stretto.runtime.session": {"tasks"}}


def test_every_package_has_its_place() -> None:
    packages = {name for name, path in PATHS.items() if path.name == "__init__.py" and "." in name}
    assert {name.split(".")[1] for name in packages} == set(BELOW)


@pytest.mark.parametrize("package", BELOW)
def test_imports_never_point_back(package: str) -> None:
    for module in inside(package):
        found = {name.split(".")[1] for name in imports_of(module) if name.startswith("stretto.")}
        allowed = BELOW[package] | EVERYWHERE | LEADS_ON.get(module, set()) | {package}
        assert found <= allowed, f"{module} imports {found - allowed}"


def test_packages_below_form_no_cycle() -> None:
    left = {package: BELOW[package] & BELOW.keys() for package in BELOW}
    while free := {package for package, below in left.items() if not below}:
        left = {package: below - free for package, below in left.items() if package not in free}
    assert not left


# A part of a simulated run names, for type checkers alone, the class of the run that it belongs to.
BACK_TO_THE_OWNER = {
    (f"stretto.runtime.simulated.tables.{part}", "stretto.runtime.simulated.tables.job")
    for part in ("driver", "evaluations", "fault_injection", "workers")
}


def test_modules_form_no_cycle() -> None:
    """Imports inside functions and for type checkers count. That a module loads its own package does not."""
    left = {
        module: {name for name in imports_of(module) & PATHS.keys() if (module, name) not in BACK_TO_THE_OWNER}
        - {module}
        for module in PATHS
    }
    while free := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in free}
    assert not left, _one_cycle(left)


def _one_cycle(left: dict[str, set[str]]) -> str:
    """A cycle among modules of which each imports another, in words."""
    path = [min(left)]
    while (name := min(left[path[-1]] & left.keys())) not in path:
        path.append(name)
    return " imports ".join([*path[path.index(name) :], name])


def test_packages_are_small_enough_to_be_read() -> None:
    """About twenty modules to a package, and one sentence on what belongs there."""
    for module, path in PATHS.items():
        if path.name == "__init__.py":
            assert len(list(path.parent.glob("*.py"))) <= 21, module
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), module


def test_no_property_takes_the_lock_that_a_ctrl_c_can_leave_taken() -> None:
    """Before Python 3.12, that of functools does; see `stretto.cached`."""
    found = [
        path for path in SRC.rglob("*.py") if "functools" in (text := path.read_text()) and "cached_property" in text
    ]
    assert [path.name for path in found if "stretto.cached import" not in path.read_text()] == ["cached.py"]
