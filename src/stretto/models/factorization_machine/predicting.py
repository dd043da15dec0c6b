"""Parameters of a fitted `FactorizationMachine` as a `Machine`, and its scores."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stretto.data.design.design import for_kernels
from stretto.models import checks
from stretto.solvers.factorization_machine.batches import SampleRows
from stretto.solvers.factorization_machine.machine import Machine
from stretto.solvers.softmax.rows import DesignRows

# The estimator, which imports this module: each function says what it reads of it.
MachineModel: TypeAlias = Any

Floats = NDArray[np.float64]


def machine_of(model: MachineModel) -> Machine:
    """The parameters of a fitted model; not copied."""
    fields, k = model._shape
    return Machine(
        k, model._field, fields, for_kernels(model._weights), for_kernels(model._squares), model._bias, model.profile
    )


def scores(model: MachineModel, X: Any) -> Floats:
    """[n] z of X, in the units in which the model was learned."""
    rows = DesignRows.of(X, checked=True)
    rows = rows if rows.sparse else rows.by_entries()
    every = np.arange(rows.shape[0], dtype=np.int64)
    with checks.here(model.runtime, model.n_jobs, type(model).__name__).open() as crew:
        taken = SampleRows.of(rows.parts, every, model._facts().factor, crew, model.profile)
        return machine_of(model).scores(taken, crew)
