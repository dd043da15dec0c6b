"""Stretto: iterative-convergent models, scheduled.

This module lists every public name. Each is imported when it is first used, so that `import stretto` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stretto.deprecation import deprecated_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stretto import faults, memory, metrics, schedule, tables
    from stretto.consistency.replication import add, average, random_share, round_robin, top
    from stretto.consistency.rules import ASP, BSP, SSP
    from stretto.data.convert.convert import as_data
    from stretto.data.documents.read_text import read_text
    from stretto.data.documents.text_counts import TextCounts
    from stretto.data.generate.ratings import ratings as generate_ratings
    from stretto.data.parts.node_files import NodeFiles
    from stretto.data.reading.read import read
    from stretto.data.reading.text import text_file
    from stretto.data.records.data import Data
    from stretto.data.records.dense import dense
    from stretto.data.records.ids import IdMap
    from stretto.data.records.samples import samples
    from stretto.data.records.sparse import sparse
    from stretto.data.write import write
    from stretto.entry import run
    from stretto.evaluation.cross_validation import cross_validate
    from stretto.evaluation.evaluate import evaluate
    from stretto.evaluation.scorers import scorer
    from stretto.evaluation.splits import split
    from stretto.keyed import integers, normal, uniform
    from stretto.loops.parallel import parallel
    from stretto.models.factorization.estimator import MatrixFactorization
    from stretto.models.factorization.new_rows import NewRows
    from stretto.models.factorization.serving.explanation import Explanation
    from stretto.models.factorization.serving.recommender import Recommender
    from stretto.models.factorization_machine.estimator import FactorizationMachine
    from stretto.models.linear.cross_validation.elastic_net_cv import ElasticNetCV
    from stretto.models.linear.cross_validation.lasso_cv import LassoCV
    from stretto.models.linear.cross_validation.logistic_cv import LogisticRegressionCV
    from stretto.models.linear.groups.group_lasso import GroupLasso
    from stretto.models.linear.groups.multi_task import MultiTaskElasticNet, MultiTaskLasso
    from stretto.models.linear.lasso import ElasticNet, Lasso
    from stretto.models.linear.logistic import LogisticRegression
    from stretto.models.linear.losses.huber import HuberElasticNet
    from stretto.models.linear.losses.poisson import PoissonRegressor
    from stretto.models.linear.path import enet_path, lasso_path
    from stretto.models.linear.svc import LinearSVC
    from stretto.models.topics.analysis.sweep import sweep_topics
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.observe import listeners
    from stretto.observe.page.front import dashboard, report
    from stretto.plan.plan import Plan
    from stretto.programs.coordinates.regression import SparseRegression
    from stretto.programs.program import Program, program
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.epochs import epochs
    from stretto.runtime.files.run_checkpoints import Saving
    from stretto.runtime.runtimes import Serial, Threads
    from stretto.runtime.session import Session
    from stretto.runtime.simulated.spec import Simulated
    from stretto.state.accumulator import accumulator
    from stretto.state.buffer import buffer
    from stretto.state.make import full, random, sparse_rows, state, zeros
    from stretto.state.state import SparseRows, State
    from stretto.state.transactions import transaction
    from stretto.tasks.adaptive.knobs import knob
    from stretto.tasks.arguments import source, whole
    from stretto.tasks.cocoa.task import cocoa
    from stretto.tasks.files import files
    from stretto.tasks.front import below, branch, loop, parallel_units, seq, stalls, unit
    from stretto.tasks.proposals.front import propose

_SHELF = {
    "ASP": "stretto.consistency.rules:ASP",
    "BSP": "stretto.consistency.rules:BSP",
    "Cluster": "stretto.runtime.cluster.spec:Cluster",
    "Data": "stretto.data.records.data:Data",
    "ElasticNet": "stretto.models.linear.lasso:ElasticNet",
    "ElasticNetCV": "stretto.models.linear.cross_validation.elastic_net_cv:ElasticNetCV",
    "GroupLasso": "stretto.models.linear.groups.group_lasso:GroupLasso",
    "HuberElasticNet": "stretto.models.linear.losses.huber:HuberElasticNet",
    "Explanation": "stretto.models.factorization.serving.explanation:Explanation",
    "FactorizationMachine": "stretto.models.factorization_machine.estimator:FactorizationMachine",
    "IdMap": "stretto.data.records.ids:IdMap",
    "Lasso": "stretto.models.linear.lasso:Lasso",
    "LassoCV": "stretto.models.linear.cross_validation.lasso_cv:LassoCV",
    "LatentDirichletAllocation": "stretto.models.topics.estimator:LatentDirichletAllocation",
    "LinearSVC": "stretto.models.linear.svc:LinearSVC",
    "LogisticRegression": "stretto.models.linear.logistic:LogisticRegression",
    "LogisticRegressionCV": "stretto.models.linear.cross_validation.logistic_cv:LogisticRegressionCV",
    "MatrixFactorization": "stretto.models.factorization.estimator:MatrixFactorization",
    "MultiTaskElasticNet": "stretto.models.linear.groups.multi_task:MultiTaskElasticNet",
    "MultiTaskLasso": "stretto.models.linear.groups.multi_task:MultiTaskLasso",
    "NewRows": "stretto.models.factorization.new_rows:NewRows",
    "NodeFiles": "stretto.data.parts.node_files:NodeFiles",
    "Plan": "stretto.plan.plan:Plan",
    "PoissonRegressor": "stretto.models.linear.losses.poisson:PoissonRegressor",
    "Program": "stretto.programs.program:Program",
    "Recommender": "stretto.models.factorization.serving.recommender:Recommender",
    "SSP": "stretto.consistency.rules:SSP",
    "Saving": "stretto.runtime.files.run_checkpoints:Saving",
    "Serial": "stretto.runtime.runtimes:Serial",
    "Session": "stretto.runtime.session:Session",
    "Simulated": "stretto.runtime.simulated.spec:Simulated",
    "SparseRegression": "stretto.programs.coordinates.regression:SparseRegression",
    "SparseRows": "stretto.state.state:SparseRows",
    "State": "stretto.state.state:State",
    "TextCounts": "stretto.data.documents.text_counts:TextCounts",
    "Threads": "stretto.runtime.runtimes:Threads",
    "accumulator": "stretto.state.accumulator:accumulator",
    "add": "stretto.consistency.replication:add",
    "as_data": "stretto.data.convert.convert:as_data",
    "average": "stretto.consistency.replication:average",
    "below": "stretto.tasks.front:below",
    "branch": "stretto.tasks.front:branch",
    "buffer": "stretto.state.buffer:buffer",
    "cocoa": "stretto.tasks.cocoa.task:cocoa",
    "cross_validate": "stretto.evaluation.cross_validation:cross_validate",
    "dashboard": "stretto.observe.page.front:dashboard",
    "dense": "stretto.data.records.dense:dense",
    "enet_path": "stretto.models.linear.path:enet_path",
    "epochs": "stretto.runtime.epochs:epochs",
    "evaluate": "stretto.evaluation.evaluate:evaluate",
    "faults": "stretto:faults",
    "files": "stretto.tasks.files:files",
    "full": "stretto.state.make:full",
    "generate_ratings": "stretto.data.generate.ratings:ratings",
    "integers": "stretto.keyed:integers",
    "knob": "stretto.tasks.adaptive.knobs:knob",
    "listeners": "stretto.observe:listeners",
    "lasso_path": "stretto.models.linear.path:lasso_path",
    "loop": "stretto.tasks.front:loop",
    "memory": "stretto:memory",
    "metrics": "stretto:metrics",
    "normal": "stretto.keyed:normal",
    "parallel": "stretto.loops.parallel:parallel",
    "parallel_units": "stretto.tasks.front:parallel_units",
    "program": "stretto.programs.program:program",
    "propose": "stretto.tasks.proposals.front:propose",
    "random": "stretto.state.make:random",
    "random_share": "stretto.consistency.replication:random_share",
    "read": "stretto.data.reading.read:read",
    "read_text": "stretto.data.documents.read_text:read_text",
    "report": "stretto.observe.page.front:report",
    "round_robin": "stretto.consistency.replication:round_robin",
    "run": "stretto.entry:run",
    "samples": "stretto.data.records.samples:samples",
    "schedule": "stretto:schedule",
    "scorer": "stretto.evaluation.scorers:scorer",
    "seq": "stretto.tasks.front:seq",
    "source": "stretto.tasks.arguments:source",
    "sparse": "stretto.data.records.sparse:sparse",
    "sparse_rows": "stretto.state.make:sparse_rows",
    "split": "stretto.evaluation.splits:split",
    "stalls": "stretto.tasks.front:stalls",
    "state": "stretto.state.make:state",
    "sweep_topics": "stretto.models.topics.analysis.sweep:sweep_topics",
    "tables": "stretto:tables",
    "text_file": "stretto.data.reading.text:text_file",
    "top": "stretto.consistency.replication:top",
    "transaction": "stretto.state.transactions:transaction",
    "uniform": "stretto.keyed:uniform",
    "unit": "stretto.tasks.front:unit",
    "whole": "stretto.tasks.arguments:whole",
    "write": "stretto.data.write:write",
    "zeros": "stretto.state.make:zeros",
}

__all__ = [
    "ASP",
    "BSP",
    "SSP",
    "Cluster",
    "Data",
    "ElasticNet",
    "ElasticNetCV",
    "Explanation",
    "FactorizationMachine",
    "GroupLasso",
    "HuberElasticNet",
    "IdMap",
    "Lasso",
    "LassoCV",
    "LatentDirichletAllocation",
    "LinearSVC",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MatrixFactorization",
    "MultiTaskElasticNet",
    "MultiTaskLasso",
    "NewRows",
    "NodeFiles",
    "Plan",
    "PoissonRegressor",
    "Program",
    "Recommender",
    "Saving",
    "Serial",
    "Session",
    "Simulated",
    "SparseRegression",
    "SparseRows",
    "State",
    "TextCounts",
    "Threads",
    "accumulator",
    "add",
    "as_data",
    "average",
    "below",
    "branch",
    "buffer",
    "cocoa",
    "cross_validate",
    "dashboard",
    "dense",
    "enet_path",
    "epochs",
    "evaluate",
    "faults",
    "files",
    "full",
    "generate_ratings",
    "integers",
    "knob",
    "lasso_path",
    "listeners",
    "loop",
    "memory",
    "metrics",
    "normal",
    "parallel",
    "parallel_units",
    "program",
    "propose",
    "random",
    "random_share",
    "read",
    "read_text",
    "report",
    "round_robin",
    "run",
    "samples",
    "schedule",
    "scorer",
    "seq",
    "source",
    "sparse",
    "sparse_rows",
    "split",
    "stalls",
    "state",
    "sweep_topics",
    "tables",
    "text_file",
    "top",
    "transaction",
    "uniform",
    "unit",
    "whole",
    "write",
    "zeros",
]

# Names that moved into a namespace; here they still work, and warn.
_moved = deprecated_names(
    "stretto",
    {
        **{name: f"stretto.tables:{name}" for name in ("Eager", "Lazy", "Managed", "Table")},
        **{name: f"stretto.tables:{name}" for name in ("adagrad", "adarevision", "proximal")},
        "server_function": "stretto.tables:server_function",
        **{name: f"stretto.faults:{name}" for name in ("Crash", "Delay", "Pause", "Reset", "SlowLink", "SlowNode")},
    },
    removed_in="0.3",
)


def __getattr__(name: str) -> Any:
    if name not in _SHELF:
        try:
            return _moved(name)
        except AttributeError as error:
            raise AttributeError(f"{error}{_nearest(name)}", name=name) from None
    module, _, attribute = _SHELF[name].partition(":")
    if module in ("stretto", "stretto.observe"):  # a subpackage that is a public name as well
        return importlib.import_module(f"{module}.{attribute}")
    value = getattr(importlib.import_module(module), attribute)
    return globals().setdefault(name, value)  # `state` is also a subpackage, which can be called


def _nearest(name: str) -> str:
    """The public name that was probably meant, in words."""
    if name.startswith("_"):
        return ""
    import difflib

    near = difflib.get_close_matches(name, __all__, 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
