"""A thousand hostile arrays and parameters for every estimator, in child processes.

Only our errors, or those of scikit-learn's own validation; no signal, no hang, no silent change: arguments stay as they
are, what a fit gives is finite, and data in an odd layout give what the plain matrix gives, bit for bit. A sample runs
with `make test`, all of them with `make test-full`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import traceback
import warnings
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import hostile_arrays as make
from hostile import Case, faults, run_cases
from hostile_subjects import OBJECTS, OTHERS, SUBJECTS, Results, fitted, learned, used
from stretto.errors import StrettoError

pytestmark = pytest.mark.timeout(1800)  # on a machine that has not compiled yet; a case has its own limit
MEMORY = 4 << 30
DAMAGED, EXTREME = 60, 60  # seeds of each form
# Where scikit-learn validates; an error of Python's own types from anywhere else is foreign.
VALIDATING = (
    "sklearn/utils/validation.py",
    "sklearn/utils/multiclass.py",
    "sklearn/utils/class_weight.py",
    "sklearn/utils/_array_api.py",
    "sklearn/utils/_param_validation.py",
    "sklearn/model_selection/_split.py",
    "sklearn/utils/_set_output.py",
)


ARRAYS = {**make.DENSE, **make.WHOLE, **make.SINGLE, **make.FRAMES}

# --- cases ----------------------------------------------------------------------------------------------------------


def cases_of(subject: str) -> list[Case]:
    """Every case of one estimator: (what to do, arguments)."""
    about = SUBJECTS[subject]
    # A frame with a column for each item may be a table of ratings as well: matrix factorisation refuses it.
    dense = [kind for kind in ARRAYS if kind not in make.FRAMES or not subject.startswith("Matrix")]
    forms = [(form, kind) for form in make.FORMS for kind in (*make.SPARSE, *make.SPARSE_WHOLE)]
    forms += [(form, "canonical") for form in make.OTHER_FORMS]
    found: list[tuple[Any, ...]] = [("dense", kind) for kind in dense]
    found += [("sparse", form, kind) for form, kind in forms]
    found += [("damaged", form, seed) for form in make.FORMS for seed in range(DAMAGED)]
    found += [("extreme", form, seed) for form in ("dense", "csr") for seed in range(EXTREME)]
    found += [("wrong", kind) for kind in make.WRONG]
    if about.data()[1] is not None:
        found += [("target", kind) for kind in (*make.WRONG, *TARGETS)]
        found += [("target values", seed) for seed in range(EXTREME)]
        found += [("weight", kind) for kind in (*make.WRONG, *TARGETS)]
    found += [("parameter", name, kind) for name in about.parameters() for kind in make.VALUES]
    for method in about.uses:
        found += [("use dense", method, kind) for kind in dense]
        found += [("use sparse", method, form, kind) for form, kind in forms]
        found += [("use damaged", method, form, seed) for form in make.FORMS for seed in range(DAMAGED // 3)]
        found += [("use extreme", method, form, seed) for form in ("dense", "csr") for seed in range(EXTREME // 3)]
        found += [("use wrong", method, kind) for kind in make.WRONG]
    if subject.startswith("Matrix"):
        found += [("pairs", method, kind) for method in PAIRS for kind in make.WRONG]
        found += [("value", method, kind) for method in PAIRS for kind in make.VALUES]
    return [Case("/".join(map(str, (subject, *what))), (subject, *what)) for what in found]


def cases_of_objects() -> list[Case]:
    return [
        Case(f"{name}/{parameter}/{kind}", (name, parameter, kind))
        for name, (_, parameters) in OBJECTS.items()
        for parameter in parameters
        for kind in make.VALUES
    ]


# Beside those of make.WRONG, for what has one number a sample.
TARGETS: dict[str, Callable[[Any], Any]] = {
    "short": lambda y: y[:-1],
    "long": lambda y: np.append(y, y[:1]),
    "column": lambda y: y[:, None],
    "two columns of it": lambda y: np.stack([y, y], axis=1),
    "negative": lambda y: -1.0 - np.abs(y),
    "all zero": lambda y: np.zeros(len(y)),
    "one class": lambda y: np.ones(len(y), np.int64),
    "names": lambda y: np.where(y > y.mean(), "a", "b"),
    "objects of it": lambda y: y.astype(object),
    "texts of it": lambda y: y.astype(str),
    "classes with a gap": lambda y: np.where(y > y.mean(), 1.0, np.nan),
    "each its own": lambda y: np.arange(len(y)),
    "strided": lambda y: np.repeat(y, 2)[::2],
    "big-endian": lambda y: y.astype(">f8"),
    "sparse": lambda y: sp.csr_array(np.atleast_2d(y)),
    "huge": lambda y: np.full(len(y), 1e308),
    "tiny": lambda y: np.full(len(y), 5e-324),
    "one": lambda y: y[0],
}
PAIRS = ("predict", "recommend", "similar_items", "recommend n", "similar n")


# --- one case, in a child -------------------------------------------------------------------------------------------


def warm() -> None:
    """Import and compile what the estimators need, outside of the limit: both widths of floats, dense and sparse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, subject in SUBJECTS.items():
            X, y = subject.data()
            forms = [X, X.astype(np.float32), sp.csr_array(X), sp.csr_array(X.astype(np.float32)), sp.coo_array(X)]
            for form in [*forms, make.SPARSE["int64 indices"](sp.csr_array(X))]:
                model = fitted(subject, form)
                for method in subject.uses:
                    used(model, method, form, y)
            if name.startswith("Logistic"):  # how many classes there are decides what is compiled
                for form, target in itertools.product(forms[:3:2], (np.arange(len(X)), X[:, 0], X[:, 0] > 0)):
                    with contextlib.suppress(StrettoError):
                        fitted(subject, form, target)
            plain_model(name, "dense")
            make.WRONG["polars"](X), make.WRONG["arrow"](X)


@cache
def plain_model(subject: str, form: str) -> Any:
    """The model of the plain matrix: float64 in C order, or sorted CSR."""
    about = SUBJECTS[subject]
    X, _ = about.data()
    return fitted(about, X.copy() if form == "dense" else make.sparse_of(X, form))


def attempt(subject: str, what: str, *args: Any) -> list[str]:
    """What is wrong with how one hostile argument is taken; foreign exceptions go through."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = ACTIONS[what](subject, *args)
    # scikit-learn adds up what it looks for infinity in.
    ours = [one for one in seen if issubclass(one.category, RuntimeWarning) and "sklearn" not in one.filename]
    ours = [one for one in ours if "encountered in reduce" not in str(one.message)]
    said = [f"{one.category.__name__}: {one.message} ({Path(one.filename).name}:{one.lineno})" for one in ours]
    if any("UndefinedMetric" in one.category.__name__ for one in seen):  # scikit-learn says that there is no score
        found = [text for text in found if text != "score is not finite"]
    return found + [f"warns of its own arithmetic: {text}" for text in said[:2]]


def tried(action: Callable[[], Results], expect: str, plain: Callable[[], Results], *arguments: Any) -> list[str]:
    """What is wrong with the outcome of an action, and with its arguments afterwards."""
    before = [snapshot(one) for one in arguments]
    wrong: list[str] = []
    try:
        results = action()
    except StrettoError as error:
        if expect in {"same", "close"}:
            wrong.append(f"refused: {error}")
        if len(str(error)) < 20:
            wrong.append(f"says too little: {error}")
    except (ValueError, TypeError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not any(frames[-1].filename.endswith(file) for file in VALIDATING):
            raise
        if expect in {"same", "close"}:
            wrong.append(f"refused by scikit-learn: {error}")
        if expect == "refuse":
            wrong.append(f"refused by scikit-learn, not by us: {error}")
    else:
        if expect == "refuse":
            wrong.append("taken")
        for name, value in results.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                wrong.append(f"{name} is not finite")
        if expect in {"same", "close"}:
            wrong += differences(results, plain(), expect == "same")
    if [snapshot(one) for one in arguments] != before:
        wrong.append("an argument was changed")
    return wrong


def differences(results: Results, plain: Results, bits: bool) -> list[str]:
    wrong = [f"{name} is missing" for name in plain.keys() ^ results.keys()]
    for name in plain.keys() & results.keys():
        own, other = results[name], plain[name]
        if bits and (own.shape != other.shape or own.tobytes() != other.tobytes()):
            wrong.append(f"{name} differs in its bits: {own.ravel()[:3]} for {other.ravel()[:3]}")
        if not bits and not np.allclose(own, other, rtol=1e-4, atol=1e-5):
            wrong.append(f"{name} differs: {own.ravel()[:3]} for {other.ravel()[:3]}")
    return wrong


def snapshot(value: Any) -> Any:
    """What any change of an argument changes."""
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.hasobject else value.tobytes()
        return ("array", value.shape, value.strides, str(value.dtype), value.flags.writeable, repr(content))
    if sp.issparse(value):
        names = ("data", "indices", "indptr", "coords", "offsets", "rows")
        parts = [(name, snapshot(getattr(value, name))) for name in names if hasattr(value, name)]
        return (type(value).__name__, value._shape, parts)
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(snapshot, value)]
    if type(value).__module__.startswith(("pandas", "polars", "pyarrow")):
        return str(value)
    return repr(value) if isinstance(value, (int, float, str, bytes, dict)) else id(value)


def draw_of(*key: Any) -> random.Random:
    return random.Random("/".join(map(str, key)))


def expectation(subject: str, form: str, kind: str) -> str:
    """Whether a layout gives the same bits as the plain matrix."""
    single = kind in make.SINGLE and form == "dense"
    summed = "doubled" in kind  # halves are added up, in whatever order
    return "close" if single or summed else "same"


def fit_dense(subject: str, kind: str) -> list[str]:
    about = SUBJECTS[subject]
    X = ARRAYS[kind](about.data()[0])
    return tried(
        lambda: learned(fitted(about, X)), expectation(subject, "dense", kind),
        lambda: learned(plain_model(subject, "dense")), X,
    )  # fmt: skip


def sparse_form(subject: str, form: str, kind: str) -> Any:
    X = make.sparse_of(SUBJECTS[subject].data()[0], form)
    return {**make.SPARSE, **make.SPARSE_WHOLE}[kind](X)


def fit_sparse(subject: str, form: str, kind: str) -> list[str]:
    about, X = SUBJECTS[subject], sparse_form(subject, form, kind)
    return tried(
        lambda: learned(fitted(about, X)), expectation(subject, form, kind),
        lambda: learned(plain_model(subject, "csr")), X,
    )  # fmt: skip


def fit_damaged(subject: str, form: str, seed: int) -> list[str]:
    about = SUBJECTS[subject]
    X = make.damaged(about.data()[0], form, draw_of(form, seed))
    return tried(lambda: learned(fitted(about, X)), "refuse", dict, X)


def fit_extreme(subject: str, form: str, seed: int) -> list[str]:
    about = SUBJECTS[subject]
    X: Any = make.extreme(about.data()[0], draw_of(form, seed))
    X = X if form == "dense" else sp.csr_array(X)

    def both() -> Results:
        model = fitted(about, X)
        return learned(model) | {method: used(model, method, X, about.data()[1]) for method in about.uses}

    return tried(both, "any", dict, X)


def fit_wrong(subject: str, kind: str) -> list[str]:
    about = SUBJECTS[subject]
    X = make.WRONG[kind](about.data()[0])
    return tried(lambda: learned(fitted(about, X)), "any", dict, X)


def fit_target(subject: str, kind: str) -> list[str]:
    about = SUBJECTS[subject]
    X, y = about.data()
    made = TARGETS[kind](y) if kind in TARGETS else make.WRONG[kind](X)
    return tried(lambda: learned(about.make(**about.given).fit(X, made)), "any", dict, X, made)


def fit_target_values(subject: str, seed: int) -> list[str]:
    about = SUBJECTS[subject]
    X, y = about.data()
    assert y is not None
    made = make.extreme(y.astype(np.float64)[:, None], draw_of("target", seed))[:, 0]
    return tried(lambda: learned(about.make(**about.given).fit(X, made)), "any", dict, X, made)


def fit_weight(subject: str, kind: str) -> list[str]:
    about = SUBJECTS[subject]
    X, y = about.data()
    made = TARGETS[kind](y) if kind in TARGETS else make.WRONG[kind](X)
    return tried(lambda: learned(about.make(**about.given).fit(X, y, sample_weight=made)), "any", dict, X, y, made)


def fit_parameter(subject: str, name: str, kind: str) -> list[str]:
    about, value = SUBJECTS[subject], make.VALUES[kind]
    if name in about.long and isinstance(value, int) and value > 10_000:
        return []  # as long as asked
    X, _ = about.data()
    return tried(lambda: learned(fitted(about, X, **{name: value})), "any", dict, X, value)


def use(subject: str, method: str, form: str, expect: str, X: Any) -> list[str]:
    about = SUBJECTS[subject]
    plain = "dense" if form == "dense" else "csr"
    model, y = plain_model(subject, plain), about.data()[1]
    wanted = about.data()[0] if form == "dense" else make.sparse_of(about.data()[0], "csr")
    return tried(
        lambda: {method: used(model, method, X, y)}, expect, lambda: {method: used(model, method, wanted, y)}, X
    )


def use_dense(subject: str, method: str, kind: str) -> list[str]:
    X = ARRAYS[kind](SUBJECTS[subject].data()[0])
    return use(subject, method, "dense", expectation(subject, "dense", kind), X)


def use_sparse(subject: str, method: str, form: str, kind: str) -> list[str]:
    return use(subject, method, form, expectation(subject, form, kind), sparse_form(subject, form, kind))


def use_damaged(subject: str, method: str, form: str, seed: int) -> list[str]:
    X = make.damaged(SUBJECTS[subject].data()[0], form, draw_of(form, seed, "use"))
    return use(subject, method, form, "refuse", X)


def use_extreme(subject: str, method: str, form: str, seed: int) -> list[str]:
    X: Any = make.extreme(SUBJECTS[subject].data()[0], draw_of(form, seed, "use"))
    return use(subject, method, form, "any", X if form == "dense" else sp.csr_array(X))


def use_wrong(subject: str, method: str, kind: str) -> list[str]:
    return use(subject, method, "dense", "any", make.WRONG[kind](SUBJECTS[subject].data()[0]))


def use_value(subject: str, method: str, kind: str) -> list[str]:
    return ask_model(subject, method, make.VALUES[kind])


def use_pairs(subject: str, method: str, kind: str) -> list[str]:
    return ask_model(subject, method, make.WRONG[kind](SUBJECTS[subject].data()[0]))


def ask_model(subject: str, method: str, value: Any) -> list[str]:
    model = plain_model(subject, "dense")

    def ask() -> Results:
        if method == "recommend n":
            return {"items": np.asarray(model.recommend([0, 1], value)[0])}
        if method == "similar n":
            return {"items": np.asarray(model.similar_items([0, 1], value)[0])}
        found = getattr(model, method)(value)
        return {"items": np.asarray(found if method == "predict" else found[0])}

    return tried(ask, "any", dict, value)


ACTIONS: dict[str, Callable[..., list[str]]] = {
    "dense": fit_dense,
    "sparse": fit_sparse,
    "damaged": fit_damaged,
    "extreme": fit_extreme,
    "wrong": fit_wrong,
    "target": fit_target,
    "target values": fit_target_values,
    "weight": fit_weight,
    "parameter": fit_parameter,
    "use dense": use_dense,
    "use sparse": use_sparse,
    "use damaged": use_damaged,
    "use extreme": use_extreme,
    "use wrong": use_wrong,
    "pairs": use_pairs,
    "value": use_value,
}


def attempt_object(name: str, parameter: str, kind: str) -> list[str]:
    """The same for a runtime or a schedule, which is only made."""

    def made() -> Results:
        OBJECTS[name][0](**{parameter: make.VALUES[kind]})
        return {}

    return tried(made, "any", dict)


def attempt_elsewhere(name: str, what: str, key: Any) -> list[str]:
    """The same for what is no fit, or no matrix to fit."""
    data, action = OTHERS[name]
    A = data()[0]
    if what == "damaged":
        X = make.damaged(A, make.FORMS[key % 3], draw_of(name, key))
    else:
        X = make.extreme(A, draw_of(name, key)) if what == "extreme" else make.WRONG[key](A)

    def given() -> Results:
        action(X)
        return {}

    return tried(given, "refuse" if what == "damaged" else "any", dict, X)


def cases_elsewhere() -> list[Case]:
    kinds: list[tuple[str, Any]] = [("damaged", seed) for seed in range(40)]
    kinds += [("extreme", seed) for seed in range(40)]
    kinds += [("wrong", kind) for kind in make.WRONG]
    return [Case(f"{name}/{what}/{key}", (name, what, key)) for name in OTHERS for what, key in kinds]


def warm_elsewhere() -> None:
    warm()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data, action in OTHERS.values():
            with contextlib.suppress(StrettoError):
                action(data()[0])
                action(sp.csr_array(data()[0]))


# --- tests ----------------------------------------------------------------------------------------------------------


def wrong_among(function: Callable[..., Any], cases: list[Case], warm: Callable[[], Any] | None) -> list[str]:
    verdicts = run_cases(function, cases, warm=warm, memory=MEMORY)
    wrong = faults(verdicts)
    wrong += [f"{v.case.name}: {'; '.join(v.value)}" for v in verdicts if v.outcome == "returned" and v.value]
    return wrong


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile once, before child processes are started that have to start within a limit."""
    warm()


def check(function: Callable[..., Any], cases: list[Case], warm: Callable[[], Any] | None = None) -> None:
    wrong = wrong_among(function, cases, warm)
    assert not wrong, f"{len(wrong)} of {len(cases)} cases:\n" + "\n".join(wrong[:20])


def some(cases: list[Case], share: int) -> list[Case]:
    """One in `share` of the cases, the same ones every time."""
    return [case for case in cases if zlib.crc32(case.name.encode()) % share == 0]


@pytest.mark.usefixtures("compiled")
def test_some_hostile_arrays() -> None:
    check(attempt, [case for name in SUBJECTS for case in some(cases_of(name), 60)], warm)


def test_hostile_parameters_of_runtimes_and_schedules() -> None:
    check(attempt_object, cases_of_objects())


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_every_hostile_array_elsewhere() -> None:
    warm_elsewhere()
    check(attempt_elsewhere, cases_elsewhere(), warm_elsewhere)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
def test_every_hostile_array() -> None:
    cases = {name: cases_of(name) for name in SUBJECTS}
    assert min(map(len, cases.values())) > 1000
    check(attempt, [case for own in cases.values() for case in own], warm)
