"""Logistic regression with an L1 penalty beside Spark MLlib: same data, same objective, seconds to 0.1 % of the best.

The objective is the mean logistic loss plus λ‖w‖₁, with an intercept, λ a hundredth of the smallest one that leaves no
coefficient: regParam = λ with elasticNetParam = 1 in MLlib, C = 1 / (nλ) here. One NumPy function computes it for both.
"""

from __future__ import annotations

from bench import sets

from . import report
from .spark_compare import page
from .spark_session import CAUTION, require


def main() -> None:
    """Measure and write the page."""
    require()
    if sets.real_data() is None:
        raise SystemExit("the real sets were not found; set STRETTO_DATA to their folder")
    about = f"{report.text(__doc__)}\n\n{CAUTION}"
    title = "Logistic regression with an L1 penalty beside Spark MLlib"
    page("spark_logistic", title, about, ["logistic/a9a", "logistic/imdb"])
