"""`BasePlan`, the base class of all plans: printing in a terminal or a notebook, and running.

plan = model.plan(X)
plan                    # one line, or a table and a picture in a notebook
print(plan)             # the text of plan.explain()
plan.run(runtime=…)     # run this very plan
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from stretto.errors import PlanError

Runner = Callable[..., Any]

_NAMES = 14  # width of the column of names in the text of `explain`
_STYLE = "text-align:left;vertical-align:top;padding:1px 12px 1px 0;white-space:pre-wrap"


class BasePlan(ABC):
    """Base class of plans. `runner` runs the plan; it is None for a plan that has run already."""

    runner: Runner | None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A short hash of everything that can change a number."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The plan in a few words, without its fingerprint."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What the fingerprint is made of, by name."""

    @abstractmethod
    def explain(self) -> str:
        """The plan in words: a heading, then one fact a line."""

    @abstractmethod
    def draw(self, path: str | None = None, workers: int | None = None) -> str:
        """The plan as SVG text.

        Parameters
        ----------
        path : str or None, default None
            File to write it to (.svg or .png).
        workers : int or None, default None
            Workers to colour by; None for those of the plan.
        """

    def run(self, *, runtime: Any = None, **how: Any) -> Any:
        """Run this plan.

        Parameters
        ----------
        runtime : runtime or None, default None
            Where to run; None: where the plan was made for.
        **how
            What else the front end takes, such as `session=` of estimators.

        Returns
        -------
        object
            The fitted estimator; of a loop None; of tables and programs their result.

        Raises
        ------
        PlanError
            If the data or the parameters have changed since the plan was made, so that it would be another plan.
        """
        if self.runner is None:
            raise PlanError(
                f"plan {self.fingerprint}: run() needs a plan that was made from data and has not run; make one with "
                "model.plan(X), loop.plan(…) or st.tables.plan(…)"
            )
        return self.runner(runtime, **how)

    def __repr__(self) -> str:
        return f"<plan {self.fingerprint}: {self.title}>"

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        """A table of facts, and the picture of `draw`, for notebooks."""
        return as_html(self)


def as_html(plan: BasePlan) -> str:
    """Self-contained HTML: the lines of `explain` as a table, and the picture below it."""
    rows: list[tuple[str, list[str]]] = []
    for line in plan.explain().splitlines():
        name, text = line[:_NAMES].strip(), line[_NAMES:]
        if line and not line.startswith("  "):
            rows.append(("", [line]))
        elif name:
            rows.append((name, [text]))
        elif text and rows:
            rows[-1][1].append(text)  # it goes on below itself, indented as it is
    try:
        picture = f'<div style="max-width:640px">{plan.draw()}</div>'
    except PlanError as refused:
        picture = f'<p style="color:gray">{escape(str(refused))}</p>'
    table = "\n".join(_row(name, "\n".join(map(escape, texts))) for name, texts in rows)
    return f'<div class="stretto-plan">\n<table style="border:0">\n{table}\n</table>\n{picture}\n</div>'


def _row(name: str, text: str) -> str:
    if not name:
        return f'<tr><th colspan="2" style="{_STYLE}">{text}</th></tr>'
    return f'<tr><th style="{_STYLE}">{escape(name)}</th><td style="{_STYLE}">{text}</td></tr>'


def refuse_changed(made: BasePlan, now: BasePlan, again: str) -> None:
    """Raise PlanError if data or parameters have changed since a plan was made. again: how to make a new plan."""
    if made.fingerprint == now.fingerprint:
        return
    before, after = made.settings, now.settings
    changed = [
        f"{name} was {before.get(name)!r} and is {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    what = "; ".join(changed) or "the order of its blocks differs"
    raise PlanError(
        f"plan {made.fingerprint} cannot run: the data or the parameters have changed since it was made ({what}), and "
        f"this would be plan {now.fingerprint}; make a new plan with {again}"
    )
