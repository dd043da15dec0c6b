"""Stretto: iterative-convergent models, scheduled.

The shelf: every name a user imports. Each is loaded when it is first used, so that importing Stretto costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stretto import memory, schedule, tables
    from stretto.comm.policy import Eager, Lazy, Managed
    from stretto.consistency.rules import ASP, BSP, SSP
    from stretto.data.convert import as_data
    from stretto.data.data import Data
    from stretto.data.dense import dense
    from stretto.data.generate import ratings as generate_ratings
    from stretto.data.ids import IdMap
    from stretto.data.parts.node_files import NodeFiles
    from stretto.data.ragged import samples
    from stretto.data.read import read
    from stretto.data.text import text_file
    from stretto.data.write import write
    from stretto.entry import run
    from stretto.keyed import integers, normal, uniform
    from stretto.loops.door import parallel
    from stretto.models.factorization import MatrixFactorization
    from stretto.models.lasso import ElasticNet, Lasso
    from stretto.models.lasso_cv import LassoCV
    from stretto.models.lda import LatentDirichletAllocation
    from stretto.models.linear_path import lasso_path
    from stretto.models.logistic import LogisticRegression
    from stretto.models.mf_fold import NewRows
    from stretto.models.validation import cross_validate, split
    from stretto.plan.plan import Plan
    from stretto.programs.coordinates import SparseRegression
    from stretto.programs.program import Program, program
    from stretto.runtime.cluster.spec import Cluster
    from stretto.runtime.epochs import epochs
    from stretto.runtime.run_checkpoints import Saving
    from stretto.runtime.runtimes import Serial, Threads
    from stretto.runtime.session import Session
    from stretto.runtime.simulated.faults import Crash, Delay, Pause, Reset, SlowLink, SlowNode
    from stretto.runtime.simulated.spec import Simulated
    from stretto.state.accumulator import accumulator
    from stretto.state.buffer import buffer
    from stretto.state.make import full, random, sparse_rows, state, zeros
    from stretto.state.sparse_rows import SparseRows
    from stretto.state.state import State
    from stretto.store.functions import adagrad, adarevision, add, average, proximal, server_function
    from stretto.tables.table import Table

_SHELF = {
    "ASP": "stretto.consistency.rules:ASP",
    "BSP": "stretto.consistency.rules:BSP",
    "Cluster": "stretto.runtime.cluster.spec:Cluster",
    "Crash": "stretto.runtime.simulated.faults:Crash",
    "Data": "stretto.data.data:Data",
    "Delay": "stretto.runtime.simulated.faults:Delay",
    "Eager": "stretto.comm.policy:Eager",
    "ElasticNet": "stretto.models.lasso:ElasticNet",
    "IdMap": "stretto.data.ids:IdMap",
    "Lasso": "stretto.models.lasso:Lasso",
    "LassoCV": "stretto.models.lasso_cv:LassoCV",
    "LatentDirichletAllocation": "stretto.models.lda:LatentDirichletAllocation",
    "Lazy": "stretto.comm.policy:Lazy",
    "LogisticRegression": "stretto.models.logistic:LogisticRegression",
    "Managed": "stretto.comm.policy:Managed",
    "MatrixFactorization": "stretto.models.factorization:MatrixFactorization",
    "NodeFiles": "stretto.data.parts.node_files:NodeFiles",
    "NewRows": "stretto.models.mf_fold:NewRows",
    "Pause": "stretto.runtime.simulated.faults:Pause",
    "Plan": "stretto.plan.plan:Plan",
    "Program": "stretto.programs.program:Program",
    "Reset": "stretto.runtime.simulated.faults:Reset",
    "SSP": "stretto.consistency.rules:SSP",
    "Saving": "stretto.runtime.run_checkpoints:Saving",
    "Serial": "stretto.runtime.runtimes:Serial",
    "Session": "stretto.runtime.session:Session",
    "Simulated": "stretto.runtime.simulated.spec:Simulated",
    "SlowLink": "stretto.runtime.simulated.faults:SlowLink",
    "SlowNode": "stretto.runtime.simulated.faults:SlowNode",
    "SparseRegression": "stretto.programs.coordinates:SparseRegression",
    "SparseRows": "stretto.state.sparse_rows:SparseRows",
    "State": "stretto.state.state:State",
    "Table": "stretto.tables.table:Table",
    "Threads": "stretto.runtime.runtimes:Threads",
    "accumulator": "stretto.state.accumulator:accumulator",
    "adagrad": "stretto.store.functions:adagrad",
    "adarevision": "stretto.store.functions:adarevision",
    "add": "stretto.store.functions:add",
    "as_data": "stretto.data.convert:as_data",
    "average": "stretto.store.functions:average",
    "buffer": "stretto.state.buffer:buffer",
    "cross_validate": "stretto.models.validation:cross_validate",
    "dense": "stretto.data.dense:dense",
    "epochs": "stretto.runtime.epochs:epochs",
    "full": "stretto.state.make:full",
    "generate_ratings": "stretto.data.generate:ratings",
    "integers": "stretto.keyed:integers",
    "lasso_path": "stretto.models.linear_path:lasso_path",
    "memory": "stretto:memory",
    "normal": "stretto.keyed:normal",
    "parallel": "stretto.loops.door:parallel",
    "program": "stretto.programs.program:program",
    "proximal": "stretto.store.functions:proximal",
    "random": "stretto.state.make:random",
    "read": "stretto.data.read:read",
    "run": "stretto.entry:run",
    "samples": "stretto.data.ragged:samples",
    "schedule": "stretto:schedule",
    "server_function": "stretto.store.functions:server_function",
    "sparse_rows": "stretto.state.make:sparse_rows",
    "split": "stretto.models.validation:split",
    "state": "stretto.state.make:state",
    "tables": "stretto:tables",
    "text_file": "stretto.data.text:text_file",
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
    if module == "stretto":  # a room that is a name on the shelf as well
        return importlib.import_module(f"stretto.{attribute}")
    value = getattr(importlib.import_module(module), attribute)
    return globals().setdefault(name, value)  # `state` is a room as well, which can be called and stays what it is


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
