"""Elastic nets beside Spark MLlib: the same data, the same objective, seconds to within 0.1 % of the best value known.

The penalty is that of `st.ElasticNet(l1_ratio=0.5)` at a hundredth of the smallest one that leaves no coefficient;
`reproductions/spark_objectives.py` derives MLlib's regParam and elasticNetParam from it. One NumPy function computes
the objective of both from coefficients and intercept. MLlib gets the number of iterations, Stretto the loosest of its
tolerances, that reaches the objective; a user would know neither. IMDB's target is the stars of a review, its features
log(1 + count); the generated set is dense, with correlated features.
"""

from __future__ import annotations

from bench import sets

from . import report
from .flexps_plot import Panel, draw
from .spark_compare import page
from .spark_session import CAUTION, require


def main() -> None:
    """Measure and write the page and its plot."""
    require()
    keys = ["net/generated"] if sets.real_data() is None else ["net/blog", "net/imdb", "net/generated"]
    if len(keys) == 1:
        print("the real sets were not found; set STRETTO_DATA to their folder to include them")
    about = f"{report.text(__doc__)}\n\n{CAUTION}"
    made = page("spark_elastic_net", "Elastic nets beside Spark MLlib", about, keys)
    panels = [
        Panel(
            one.problem.title,
            "seconds of the fit",
            "share above the best objective",
            {name: [(x, max(y, 1e-9)) for x, y in points] for name, points in one.curves.items()},
            "xy",
        )
        for one in made
    ]
    draw("elastic-net", panels, "alt")
