"""Every way to fit a matrix factorization to ratings."""

from __future__ import annotations

from typing import Any

SOLVERS: list[dict[str, Any]] = [
    {"solver": "sgd"},
    {"solver": "sgd", "optimizer": "adagrad"},
    {"solver": "sgd", "optimizer": "adarevision"},
    {"solver": "als"},
    {"solver": "als", "linear_solver": "cg"},
    {"solver": "ccd"},
]
