"""Stretto: iterative-convergent models, scheduled.

The shelf: every name a user imports. Each is loaded when it is first used, so that importing Stretto costs little.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stretto import schedule
    from stretto.data.convert import as_data
    from stretto.data.data import Data
    from stretto.data.dense import dense
    from stretto.data.generate import ratings as generate_ratings
    from stretto.data.ids import IdMap
    from stretto.data.ragged import samples
    from stretto.data.read import read
    from stretto.data.text import text_file
    from stretto.data.write import write
    from stretto.keyed import integers, normal, uniform
    from stretto.loops.door import parallel
    from stretto.models.factorization import MatrixFactorization
    from stretto.models.lasso import ElasticNet, Lasso
    from stretto.models.lasso_cv import LassoCV
    from stretto.models.lda import LatentDirichletAllocation
    from stretto.models.linear_path import lasso_path
    from stretto.models.logistic import LogisticRegression
    from stretto.plan.plan import Plan
    from stretto.programs.coordinates import SparseRegression
    from stretto.programs.program import Program, program
    from stretto.programs.run import run
    from stretto.runtime.runtimes import Serial, Threads
    from stretto.runtime.session import Session
    from stretto.runtime.train import Saving
    from stretto.state.accumulator import accumulator
    from stretto.state.buffer import buffer
    from stretto.state.make import full, random, state, zeros
    from stretto.state.state import State

_SHELF = {
    "Data": "stretto.data.data:Data",
    "ElasticNet": "stretto.models.lasso:ElasticNet",
    "IdMap": "stretto.data.ids:IdMap",
    "Lasso": "stretto.models.lasso:Lasso",
    "LassoCV": "stretto.models.lasso_cv:LassoCV",
    "LatentDirichletAllocation": "stretto.models.lda:LatentDirichletAllocation",
    "LogisticRegression": "stretto.models.logistic:LogisticRegression",
    "MatrixFactorization": "stretto.models.factorization:MatrixFactorization",
    "Plan": "stretto.plan.plan:Plan",
    "Program": "stretto.programs.program:Program",
    "Saving": "stretto.runtime.train:Saving",
    "Serial": "stretto.runtime.runtimes:Serial",
    "Session": "stretto.runtime.session:Session",
    "SparseRegression": "stretto.programs.coordinates:SparseRegression",
    "State": "stretto.state.state:State",
    "Threads": "stretto.runtime.runtimes:Threads",
    "accumulator": "stretto.state.accumulator:accumulator",
    "as_data": "stretto.data.convert:as_data",
    "buffer": "stretto.state.buffer:buffer",
    "dense": "stretto.data.dense:dense",
    "full": "stretto.state.make:full",
    "generate_ratings": "stretto.data.generate:ratings",
    "integers": "stretto.keyed:integers",
    "lasso_path": "stretto.models.linear_path:lasso_path",
    "normal": "stretto.keyed:normal",
    "parallel": "stretto.loops.door:parallel",
    "program": "stretto.programs.program:program",
    "random": "stretto.state.make:random",
    "read": "stretto.data.read:read",
    "run": "stretto.programs.run:run",
    "samples": "stretto.data.ragged:samples",
    "schedule": "stretto:schedule",
    "state": "stretto.state.make:state",
    "text_file": "stretto.data.text:text_file",
    "uniform": "stretto.keyed:uniform",
    "write": "stretto.data.write:write",
    "zeros": "stretto.state.make:zeros",
}

__all__ = [
    "Data",
    "ElasticNet",
    "IdMap",
    "Lasso",
    "LassoCV",
    "LatentDirichletAllocation",
    "LogisticRegression",
    "MatrixFactorization",
    "Plan",
    "Program",
    "Saving",
    "Serial",
    "Session",
    "SparseRegression",
    "State",
    "Threads",
    "accumulator",
    "as_data",
    "buffer",
    "dense",
    "full",
    "generate_ratings",
    "integers",
    "lasso_path",
    "normal",
    "parallel",
    "program",
    "random",
    "read",
    "run",
    "samples",
    "schedule",
    "state",
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
