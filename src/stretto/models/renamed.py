"""Renamed parameters and attributes of estimators: `set_params` and pickles accept the former names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from stretto.deprecation import current_parameters

# Former names of parameters and attributes, as in models, run records and pickles of earlier versions.
FORMER = {
    "rank": "n_components",
    "epochs": "max_iter",
    "reg": "l2_regularization",
    "bias_reg": "bias_l2_regularization",
    "row_factors_": "user_factors_",
    "col_factors_": "item_factors_",
    "row_bias_": "user_bias_",
    "col_bias_": "item_bias_",
    "row_ids_": "user_ids_",
    "col_ids_": "item_ids_",
}


def under_current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Rename what an earlier version stored to the current names; no warning, since no user typed the former ones.

    >>> under_current_names({"rank": 8, "width": 4})
    {'n_components': 8, 'width': 4}
    """
    return {FORMER.get(name, name): value for name, value in stored.items()}


class RenamedParameters:
    """Mixin for an estimator whose `__init__` has parameters decorated with `deprecated_parameter`."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters of this estimator by name, as scikit-learn does.

        Parameters
        ----------
        **params : object
            Names and values; former names work and warn.
        """
        current = current_parameters(type(self).__init__, params)
        super().set_params(**current)  # type: ignore[misc]
        return self

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(under_current_names(state))  # type: ignore[misc]
