"""Stretto: iterative-convergent models, scheduled.

This module lists every public name. Each is imported when it is first used, so that `import stretto` stays fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stretto import memory, schedule, tables
    from stretto.comm.policy import Eager, Lazy, Managed
    from stretto.consistency.rules import ASP, BSP, SSP
    from stretto.data.convert.convert import as_data
    from stretto.data.generate.ratings import ratings as generate_ratings
    from stretto.data.parts.node_files import NodeFiles
    from stretto.data.reading.read import read
    from stretto.data.reading.text import text_file
    from stretto.data.records.data import Data
    from stretto.data.records.dense import dense
    from stretto.data.records.ids import IdMap
    from stretto.data.records.ragged import samples
    from stretto.data.write import write
    from stretto.entry import run
    from stretto.keyed import integers, normal, uniform
    from stretto.loops.parallel import parallel
    from stretto.models.factorization.cross_validation import cross_validate, split
    from stretto.models.factorization.estimator import MatrixFactorization
    from stretto.models.factorization.fold_in import NewRows
    from stretto.models.linear.lasso import ElasticNet, Lasso
    from stretto.models.linear.lasso_cv import LassoCV
    from stretto.models.linear.logistic import LogisticRegression
    from stretto.models.linear.path import lasso_path
    from stretto.models.topics.estimator import LatentDirichletAllocation
    from stretto.plan.plan import Plan
    from stretto.programs.coordinates.regression import SparseRegression
    from stretto.programs.program import Program, program
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.epochs import epochs
    from stretto.runtime.files.run_checkpoints import Saving
    from stretto.runtime.runtimes import Serial, Threads
    from stretto.runtime.session import Session
    from stretto.runtime.simulated.faults import Crash, Delay, Pause, Reset, SlowLink, SlowNode
    from stretto.runtime.simulated.spec import Simulated
    from stretto.state.accumulator import accumulator
    from stretto.state.buffer import buffer
    from stretto.state.make import full, random, sparse_rows, state, zeros
    from stretto.state.sparse_rows import SparseRows
    from stretto.state.state import State
    from stretto.store.shard.functions import adagrad, adarevision, add, average, proximal, server_function
    from stretto.tables.table import Table

_SHELF = {
    "ASP": "stretto.consistency.rules:ASP",
    "BSP": "stretto.consistency.rules:BSP",
    "Cluster": "stretto.runtime.cluster.spec:Cluster",
    "Crash": "stretto.runtime.simulated.faults:Crash",
    "Data": "stretto.data.records.data:Data",
    "Delay": "stretto.runtime.simulated.faults:Delay",
    "Eager": "stretto.comm.policy:Eager",
    "ElasticNet": "stretto.models.linear.lasso:ElasticNet",
    "IdMap": "stretto.data.records.ids:IdMap",
    "Lasso": "stretto.models.linear.lasso:Lasso",
    "LassoCV": "stretto.models.linear.lasso_cv:LassoCV",
    "LatentDirichletAllocation": "stretto.models.topics.estimator:LatentDirichletAllocation",
    "Lazy": "stretto.comm.policy:Lazy",
    "LogisticRegression": "stretto.models.linear.logistic:LogisticRegression",
    "Managed": "stretto.comm.policy:Managed",
    "MatrixFactorization": "stretto.models.factorization.estimator:MatrixFactorization",
    "NodeFiles": "stretto.data.parts.node_files:NodeFiles",
    "NewRows": "stretto.models.factorization.fold_in:NewRows",
    "Pause": "stretto.runtime.simulated.faults:Pause",
    "Plan": "stretto.plan.plan:Plan",
    "Program": "stretto.programs.program:Program",
    "Reset": "stretto.runtime.simulated.faults:Reset",
    "SSP": "stretto.consistency.rules:SSP",
    "Saving": "stretto.runtime.files.run_checkpoints:Saving",
    "Serial": "stretto.runtime.runtimes:Serial",
    "Session": "stretto.runtime.session:Session",
    "Simulated": "stretto.runtime.simulated.spec:Simulated",
    "SlowLink": "stretto.runtime.simulated.faults:SlowLink",
    "SlowNode": "stretto.runtime.simulated.faults:SlowNode",
    "SparseRegression": "stretto.programs.coordinates.regression:SparseRegression",
    "SparseRows": "stretto.state.sparse_rows:SparseRows",
    "State": "stretto.state.state:State",
    "Table": "stretto.tables.table:Table",
    "Threads": "stretto.runtime.runtimes:Threads",
    "accumulator": "stretto.state.accumulator:accumulator",
    "adagrad": "stretto.store.shard.functions:adagrad",
    "adarevision": "stretto.store.shard.functions:adarevision",
    "add": "stretto.store.shard.functions:add",
    "as_data": "stretto.data.convert.convert:as_data",
    "average": "stretto.store.shard.functions:average",
    "buffer": "stretto.state.buffer:buffer",
    "cross_validate": "stretto.models.factorization.cross_validation:cross_validate",
    "dense": "stretto.data.records.dense:dense",
    "epochs": "stretto.runtime.epochs:epochs",
    "full": "stretto.state.make:full",
    "generate_ratings": "stretto.data.generate.ratings:ratings",
    "integers": "stretto.keyed:integers",
    "lasso_path": "stretto.models.linear.path:lasso_path",
    "memory": "stretto:memory",
    "normal": "stretto.keyed:normal",
    "parallel": "stretto.loops.parallel:parallel",
    "program": "stretto.programs.program:program",
    "proximal": "stretto.store.shard.functions:proximal",
    "random": "stretto.state.make:random",
    "read": "stretto.data.reading.read:read",
    "run": "stretto.entry:run",
    "samples": "stretto.data.records.ragged:samples",
    "schedule": "stretto:schedule",
    "server_function": "stretto.store.shard.functions:server_function",
    "sparse_rows": "stretto.state.make:sparse_rows",
    "split": "stretto.models.factorization.cross_validation:split",
    "state": "stretto.state.make:state",
    "tables": "stretto:tables",
    "text_file": "stretto.data.reading.text:text_file",
    "uniform": "stretto.keyed:uniform",
    "write": "stretto.data.write:write",
    "zeros": "stretto.state.make:zeros",
}

__all__ = [
    "ASP",
    "BSP",
    "SSP",
    "Cluster",
    "Crash",
    "Data",
    "Delay",
    "Eager",
    "ElasticNet",
    "IdMap",
    "Lasso",
    "LassoCV",
    "LatentDirichletAllocation",
    "Lazy",
    "LogisticRegression",
    "Managed",
    "MatrixFactorization",
    "NewRows",
    "NodeFiles",
    "Pause",
    "Plan",
    "Program",
    "Reset",
    "Saving",
    "Serial",
    "Session",
    "Simulated",
    "SlowLink",
    "SlowNode",
    "SparseRegression",
    "SparseRows",
    "State",
    "Table",
    "Threads",
    "accumulator",
    "adagrad",
    "adarevision",
    "add",
    "as_data",
    "average",
    "buffer",
    "cross_validate",
    "dense",
    "epochs",
    "full",
    "generate_ratings",
    "integers",
    "lasso_path",
    "memory",
    "normal",
    "parallel",
    "program",
    "proximal",
    "random",
    "read",
    "run",
    "samples",
    "schedule",
    "server_function",
    "sparse_rows",
    "split",
    "state",
    "tables",
    "text_file",
    "uniform",
    "write",
    "zeros",
]


def __getattr__(name: str) -> Any:
    if name not in _SHELF:
        raise AttributeError(f"module 'stretto' has no attribute {name!r}")
    module, _, attribute = _SHELF[name].partition(":")
    if module == "stretto":  # a subpackage that is a public name as well
        return importlib.import_module(f"stretto.{attribute}")
    value = getattr(importlib.import_module(module), attribute)
    return globals().setdefault(name, value)  # `state` is also a subpackage, which can be called


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
