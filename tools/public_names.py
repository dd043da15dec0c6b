"""What users import, and the classes that they meet without importing them: names, signatures, members."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from stretto.deprecation import deprecated_attribute
from tools.docstrings import Docstring, parse

# How users write the modules whose names are public.
SPACES = {
    "st": "stretto",
    "st.schedule": "stretto.schedule",
    "st.tables": "stretto.tables",
    "st.faults": "stretto.faults",
    "st.metrics": "stretto.metrics",
    "st.listeners": "stretto.observe.listeners",
    "st.memory": "stretto.memory",
    "stretto.errors": "stretto.errors",
}
# Classes of what functions return, or call the user's functions with.
MET = (
    "stretto.programs.values:ProgramResult",
    "stretto.programs.values:Look",
    "stretto.tables.worker:Worker",
    "stretto.tables.handle:Handle",
    "stretto.tables.whole:View",
    "stretto.tables.result:TableResult",
    "stretto.runtime.tables.job:TableEvaluation",
    "stretto.store.shard.functions:ServerFunction",
    "stretto.plan.job:JobPlan",
    "stretto.tasks.tree:Task",
    "stretto.tasks.cocoa.task:CocoaTask",
    "stretto.tasks.plan:TaskPlan",
    "stretto.tasks.result:TaskResult",
    "stretto.tasks.result:StageRecord",
    "stretto.tasks.unit_worker:UnitWorker",
    "stretto.tasks.task_queue:SubmittedTask",
    "stretto.tasks.partitions.part_handles:RowPartHandle",
    "stretto.tasks.partitions.part_handles:ColumnPartHandle",
    "stretto.tasks.partitions.part_handles:DataPartHandle",
    "stretto.tasks.transactions.handle:TransactionHandle",
    "stretto.tasks.transactions.calls:PendingTransaction",
    "stretto.state.transactions:Transaction",
    "stretto.tasks.proposals.propose:Proposals",
    "stretto.tasks.proposals.propose:Proposal",
    "stretto.loops.parallel:Loop",
    "stretto.loops.loop_plan:LoopPlan",
    "stretto.state.accumulator:Accumulator",
    "stretto.state.buffer:Buffer",
    "stretto.data.records.record_sets:Dense",
    "stretto.data.records.record_sets:Ragged",
    "stretto.data.records.record_sets:LazyRecords",
    "stretto.data.describe:Description",
    "stretto.data.describe:Skew",
    "stretto.data.generate.ratings:Generated",
    "stretto.evaluation.splits:Splits",
    "stretto.evaluation.table:Evaluation",
    "stretto.evaluation.table:Score",
    "stretto.evaluation.scorers:Scorer",
    "stretto.models.linear.path:LinearPath",
    "stretto.models.topics.analysis.browser:TopicBrowser",
    "stretto.models.topics.analysis.hierarchy:TopicHierarchy",
    "stretto.models.topics.analysis.matching:TopicMatch",
    "stretto.models.topics.analysis.over_time:TopicShares",
    "stretto.models.topics.analysis.sweep_result:TopicSweep",
    "stretto.models.topics.analysis.sweep_result:SweepRow",
    "stretto.models.topics.analysis.sweep_result:SweepRun",
    "stretto.models.topics.analysis.sweep_result:SweptTopic",
    "stretto.runtime.simulated.blocks.report:RotationReport",
    "stretto.runtime.simulated.blocks.report:PassReport",
    "stretto.memory.multi_device.mesh:MultiDeviceReport",
    "stretto.memory.multi_device.execute:MultiDeviceStep",
    "stretto.memory.run.fallback:HookedStep",
)
# Functions whose `**options` are documented one by one: where the options are defined.
OPTIONS = {
    "st.run": ("stretto.programs.run:run", "stretto.tables.run:run", "stretto.tasks.run:run"),
    "st.parallel": ("stretto.loops.analyse.analysis:LoopOptions",),
}


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes
    ----------
    title : str
        How users write it, such as `st.Lasso`.
    value : object
        What it is.
    doc : Docstring
        Its docstring, in parts.
    met : bool
        Whether users meet the class without importing it.
    """

    title: str
    value: Any
    doc: Docstring
    met: bool = False

    @property
    def module(self) -> str:
        """The module that defines it."""
        return str(getattr(self.value, "__module__", type(self.value).__module__))


@dataclass(frozen=True)
class Parameter:
    """A parameter of a signature: its name with stars, and its default as documentation writes it (None: required)."""

    name: str
    default: Any = inspect.Parameter.empty

    @property
    def written(self) -> str:
        """The parameter in a signature."""
        return self.name if self.default is inspect.Parameter.empty else f"{self.name}={show(self.default)}"


def found_at(where: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def names(spaces: tuple[str, ...] = tuple(SPACES), *, met: bool = True) -> list[Name]:
    """Every public name of these spaces, and the classes that users meet."""
    found = []
    for space in spaces:
        module = importlib.import_module(SPACES[space])
        for key in getattr(module, "__all__", None) or _defined(module):
            value = getattr(module, key)
            if inspect.ismodule(value):
                if not callable(value):
                    continue
                value = found_at("stretto.state.make:state")  # the package `stretto.state` can be called
            found.append(Name(f"{space}.{key}", value, parse(documentation(value, key))))
    if met:
        for where in MET:
            value = found_at(where)
            found.append(
                Name(f"{value.__module__}.{value.__name__}", value, parse(inspect.getdoc(value) or ""), met=True)
            )
    return found


def _defined(module: Any) -> list[str]:
    return [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]


def documentation(value: Any, key: str) -> str:
    """The docstring of a class or function; of any other value, the string below its assignment."""
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    body = ast.parse(inspect.getsource(importlib.import_module(type(value).__module__))).body
    for assigned, text in pairwise(body):
        if not isinstance(assigned, ast.Assign) or not isinstance(text, ast.Expr):
            continue
        named = [target.id for target in assigned.targets if isinstance(target, ast.Name)]
        if named == [key] and isinstance(text.value, ast.Constant):
            return inspect.cleandoc(str(text.value.value))
    return ""


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a function or of a class's constructor, without `self` and private ones."""
    if inspect.isclass(function) and not inspect.isfunction(vars(function).get("__init__", function.__init__)):
        return []  # as built-in exceptions
    factories = {}
    if dataclasses.is_dataclass(function):
        factories = {one.name: one.default_factory for one in dataclasses.fields(function)}
    found = []
    for key, parameter in inspect.signature(function).parameters.items():
        if key in ("self", "cls") or key.startswith("_"):
            continue
        default = parameter.default
        if repr(default) == "<factory>":
            default = factories[key]()  # type: ignore[operator]
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        found.append(Parameter(f"{stars}{key}", default))
    return found


def all_parameters(name: Name) -> list[Parameter]:
    """The parameters of a public name, options included."""
    if not callable(name.value) or not (inspect.isclass(name.value) or inspect.isroutine(name.value)):
        return []
    own = parameters(name.value)
    if name.title not in OPTIONS:
        return own
    options: dict[str, Parameter] = {}
    for where in OPTIONS[name.title]:
        defined = found_at(where)
        for one in parameters(defined)[0 if inspect.isclass(defined) else 1 :]:
            known = options.get(one.name)
            options[one.name] = one if known is None or known.default == one.default else Parameter(one.name)
    return [*(one for one in own if not one.name.startswith("**")), *options.values()]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods (as functions) and properties of a class that Stretto defines, inherited ones included."""
    for key in sorted(key for key in dir(cls) if not key.startswith("_")):
        owner = next((base for base in cls.__mro__ if key in vars(base)), None)
        if owner is None or not owner.__module__.startswith("stretto"):
            continue
        member = vars(owner)[key]
        if isinstance(member, deprecated_attribute):
            continue
        if isinstance(member, staticmethod | classmethod):
            yield key, member.__func__
        elif isinstance(member, property) or inspect.isfunction(member):
            yield key, member
        elif hasattr(member, "__get__") and type(member).__module__.startswith("stretto"):  # a descriptor of ours
            method = getattr(cls, key)
            yield key, method if inspect.isfunction(method) else member


def values(cls: type) -> list[str]:
    """Public attributes of a class that are plain values: its constants, slots and fields."""
    methods = {key for key, _ in members(cls)}
    found = {
        key
        for key, member in vars(cls).items()
        if not (key.startswith("_") or key in methods or inspect.isroutine(member))
        and not isinstance(member, deprecated_attribute)
        and not type(member).__module__.startswith("sklearn")
    }
    if dataclasses.is_dataclass(cls):
        found |= {one.name for one in dataclasses.fields(cls) if not one.name.startswith("_")}
    return sorted(found)


def member_doc(member: Any) -> Docstring:
    """The docstring of a method or property."""
    return parse(inspect.getdoc(member) or "")


def member_parameters(member: Any) -> list[Parameter]:
    """The parameters of a method; a property has none."""
    return parameters(member) if inspect.isfunction(member) else []


def show(default: Any) -> str:
    """A default as a signature shows it."""
    if inspect.isroutine(default) or inspect.isclass(default):
        return str(default.__name__)
    if dataclasses.is_dataclass(default):
        return f"{type(default).__name__}()"
    return repr(default)
