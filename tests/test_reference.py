"""Docstrings of public names agree with signatures, have examples, and are the pages of docs/reference."""

from __future__ import annotations

import ast
import doctest
import inspect
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tools import reference
from tools.docstrings import Docstring, parse
from tools.public_names import (
    Name,
    Parameter,
    all_parameters,
    documentation,
    member_doc,
    member_parameters,
    members,
    names,
    show,
    values,
)

import stretto as st

pytest.importorskip("torch")  # the names of st.memory need it
NAMES = names()
PUBLIC = [name for name in NAMES if not name.met]


def problems(doc: Docstring, takes: list[Parameter]) -> list[str]:
    """What a docstring lacks or says wrongly about parameters."""
    if not doc.summary:
        return ["there is no docstring"]
    wrong = []
    items = {item.name: item for item in doc.listed.get("Parameters", [])}
    expected = {one.name: one for one in takes}
    described = {*items, *doc.names("Attributes")}
    wrong += [f"parameter {key} is not documented" for key in expected if key not in described]
    wrong += [f"parameter {key} is documented and does not exist" for key in items if key not in expected]
    for key in items.keys() & expected.keys():
        stated = items[key].default
        if stated is not None and not same(stated, expected[key].default):
            wrong.append(f"parameter {key}: default {stated} is documented, {show(expected[key].default)} is real")
        if not items[key].text:
            wrong.append(f"parameter {key} has no meaning")
    return wrong


def same(stated: str, default: Any) -> bool:
    """Whether a default that is documented is the real one."""
    if default is inspect.Parameter.empty:
        return False
    try:
        return bool(ast.literal_eval(stated) == default)
    except (ValueError, SyntaxError):
        return stated == show(default)


def member_problems(name: Name) -> list[str]:
    if not isinstance(name.value, type):
        return []
    wrong = []
    attributes = name.doc.names("Attributes")
    for key, member in members(name.value):
        if key not in attributes:
            wrong += [f"{key}: {what}" for what in problems(member_doc(member), member_parameters(member))]
    described = {*name.doc.names("Parameters"), *attributes}
    wrong += [f"attribute {key} is not documented" for key in values(name.value) if key not in described]
    return wrong


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.title)
def test_parameters_are_documented(name: Name) -> None:
    takes = [] if name.met and not name.doc.names("Parameters") else all_parameters(name)
    assert problems(name.doc, takes) == []


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.title)
def test_methods_and_attributes_are_documented(name: Name) -> None:
    assert member_problems(name) == []


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.title)
def test_one_entry_for_each_name(name: Name) -> None:
    listed = [*name.doc.names("Parameters"), *name.doc.names("Attributes")]
    assert [key for key in listed if not key.lstrip("*").isidentifier()] == []


@pytest.mark.parametrize("name", PUBLIC, ids=lambda name: name.title)
def test_examples(name: Name) -> None:
    text = name.doc.sections.get("Examples", "")
    examples = doctest.DocTestParser().get_examples(text)
    assert [one for one in examples if not one.options.get(doctest.SKIP)] != [], "no example that runs"


@pytest.mark.parametrize("key", ["add", "average"])
def test_examples_of_values(key: str) -> None:
    text = documentation(getattr(st.tables, key), key)
    test = doctest.DocTestParser().get_doctest(text, {}, key, None, None)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_what_is_wrong_is_found() -> None:
    def scale(x: float, factor: float = 2.0, *, offset: float = 0.0) -> float:
        """Scale.

        Parameters
        ----------
        x : float
            A number.
        factor : float, default 3.0
            How much.
        power : float
            There is none.
        """
        return x * factor + offset

    found = problems(parse(inspect.getdoc(scale) or ""), all_parameters(Name("scale", scale, parse(""))))
    assert found == [
        "parameter offset is not documented",
        "parameter power is documented and does not exist",
        "parameter factor: default 3.0 is documented, 2.0 is real",
    ]


def fitted() -> list[Any]:
    """Every estimator, fitted to a little data."""
    rng = np.random.default_rng(0)
    X, serial = rng.normal(size=(30, 4)), st.Serial()
    ratings = sp.random(20, 10, density=0.4, format="csr", random_state=0)
    return [
        st.Lasso(0.1, runtime=serial).fit(X, X[:, 0]),
        st.ElasticNet(0.1, runtime=serial).fit(X, X[:, 0]),
        st.GroupLasso(0.1, groups=2, runtime=serial).fit(X, X[:, 0]),
        st.MultiTaskLasso(0.1, runtime=serial).fit(X, X[:, :2]),
        st.MultiTaskElasticNet(0.1, runtime=serial).fit(X, X[:, :2]),
        st.PoissonRegressor(0.1, runtime=serial).fit(X, np.arange(30)),
        st.HuberElasticNet(0.1, runtime=serial).fit(X, X[:, 0]),
        st.LassoCV(n_alphas=3, cv=2, runtime=serial).fit(X, X[:, 0] + rng.normal(size=30)),
        st.ElasticNetCV(n_alphas=3, cv=2, runtime=serial).fit(X, X[:, 0] + rng.normal(size=30)),
        st.LogisticRegressionCV(Cs=2, cv=2, runtime=serial).fit(X, X[:, 0] + rng.normal(size=30) > 0),
        st.LogisticRegression(runtime=serial).fit(X, X[:, 0] > 0),
        st.MatrixFactorization(2, max_iter=1, random_state=0, runtime=serial).fit(ratings),
        st.LatentDirichletAllocation(2, max_iter=1, runtime=serial).fit(rng.integers(0, 3, size=(6, 5))),
    ]


SOMETIMES = {"feature_names_in_", "vocabulary_"}  # where the data had names


@pytest.mark.parametrize("model", fitted(), ids=lambda model: type(model).__name__)
def test_fitted_attributes_are_documented(model: Any) -> None:
    listed = parse(inspect.getdoc(type(model)) or "").names("Attributes")
    learned = [key for key in vars(model) if key.endswith("_") and not key.startswith("_")]
    learned += [key for key, member in members(type(model)) if key.endswith("_") and isinstance(member, property)]
    assert sorted(set(learned) - set(listed)) == []
    assert [key for key in listed if key not in SOMETIMES and not hasattr(model, key)] == []


def test_pages_are_up_to_date() -> None:
    assert reference.out_of_date() == [], "run make reference"
