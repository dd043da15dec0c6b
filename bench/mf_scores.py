"""Test RMSE of factorisation by SGD with its defaults on nine sets: dense, sparse, small, of several units.

Rank 64, 20 and 40 epochs, everything else by default: steps that fall with the ratings of a row, penalties by the noise
of the ratings. Beside it the former default (`schedule="polynomial"`) and the best of our five penalties for each
rating, chosen on the test part as for the peers, each of which has its best of some penalties, in units of the standard
deviation: LIBMF (best iteration of 20, its last one in parentheses) of four; cmfrec (ALS with biases, 15 iterations) of
six, three of them for each rating; Surprise's SVD (without implicit feedback, 20 epochs) of three. A peer starts no
further setting once it has used 60 s of processor time on a set. LIBMF is measured where `mf-train` is on the path or
named in MF_TRAIN=label=path,…; the others where they are installed.

The default was chosen on the sets marked "chosen" and others that are not in this table, and corrected on the rest, see
docs/decisions/2026-11-18-adaptive-steps.md. All but MovieLens-1M and Epinions are generated: low rank with decaying
weights, biases, noise. The last table is the time of a fit of one epoch on the set of 0.4 million ratings, and what of
it is not the epoch: fingerprint, plan, layout, first factors, factors in the user's order.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import stretto as st
from stretto.observe.events import EpochDone, Event

from . import report, sets
from .libmf import curve_of, peers, write_text
from .mf_sets import CHOSEN, SHAPES, all_sets, drawn

RANK, EPOCHS = 64, (20, 40)
PENALTIES, PEER_PENALTIES = (0.02, 0.035, 0.05, 0.065, 0.1), (0.02, 0.035, 0.05, 0.1)
CMFREC = ((0.1, True), (30.0, False), (0.2, True), (0.05, True), (10.0, False), (3.0, False))  # (λ, for each rating)
SURPRISE = (0.05, 0.02, 0.1)
REPEATS, PEER_LIMIT = 9, 60.0  # seconds of processor time for a peer on a set


def errors(train: st.Data, test: st.Data, epochs: int, **settings: Any) -> list[float]:
    """Our test RMSE after each epoch."""
    model = st.MatrixFactorization(RANK, max_iter=epochs, random_state=0, duplicates="keep", **settings)
    model.fit(train, validation=test)
    return [epoch["test_rmse"] for epoch in model.history_]


def within_limit(settings: tuple[Any, ...]) -> Iterator[Any]:
    """The settings that a peer starts within its time, at least one."""
    began = sum(os.times()[:4])
    for setting in settings:
        if setting is not settings[0] and sum(os.times()[:4]) - began > PEER_LIMIT:
            return
        yield setting


def rmse(test: st.Data, predicted: NDArray[Any]) -> float:
    """Root mean squared error; predictions are not clipped to the range of the ratings."""
    return float(np.sqrt(np.mean((test.values - predicted) ** 2)))


def libmf_error(program: str, train: st.Data, test: st.Data, scale: float) -> str:
    """LIBMF's best and last RMSE of its best penalty."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(train, folder / "train.txt")
        write_text(test, folder / "test.txt")
        for penalty in within_limit(PEER_PENALTIES):
            curve = curve_of(program, 1, penalty * scale, folder)
            found.append((min(curve), curve[-1], penalty))
    best, last, penalty = min(found)
    return f"{best:.4f} ({last:.4f}) at {penalty:g}"


def cmfrec_error(train: st.Data, test: st.Data, scale: float) -> str:
    """The RMSE of cmfrec at its best penalty."""
    from cmfrec import CMF

    entries = sp.coo_array((train.values, (train.rows, train.cols)), shape=train.shape)
    found = []
    for penalty, weighted in within_limit(CMFREC):
        settings = {"k": RANK, "lambda_": penalty * scale, "scale_lam": weighted, "niter": 15, "random_state": 0}
        model = CMF(method="als", use_float=True, nthreads=1, verbose=False, **settings).fit(entries)
        # Predictions by hand, so that rows without ratings are predicted by what is known, as by every other peer.
        parts = model.A_[test.rows] * model.B_[test.cols]
        known = np.where(np.isfinite(parts).all(axis=1), parts.sum(axis=1), 0.0)
        biases = (np.nan_to_num(bias)[index] for bias, index in (
            (model.user_bias_, test.rows), (model.item_bias_, test.cols)))  # fmt: skip
        found.append((rmse(test, model.glob_mean_ + known + sum(biases)), penalty, weighted))
    best, penalty, weighted = min(found)
    return f"{best:.4f} at {penalty:g}{' a rating' if weighted else ''}"


def surprise_error(train: st.Data, test: st.Data, scale: float) -> str:
    """The RMSE of Surprise's SVD at its best penalty."""
    from surprise import SVD, Trainset

    (users, m), (items, n) = (
        (np.unique(index, return_inverse=True)[1].tolist(), len(np.unique(index))) for index in (train.rows, train.cols)
    )
    by_user: dict[int, list[tuple[int, float]]] = {user: [] for user in range(m)}
    by_item: dict[int, list[tuple[int, float]]] = {item: [] for item in range(n)}
    for user, item, rating in zip(users, items, train.values.tolist(), strict=True):
        by_user[user].append((item, rating))
        by_item[item].append((user, rating))
    span = (float(train.values.min()), float(train.values.max()))
    entries = Trainset(by_user, by_item, m, n, len(train), span, {}, {})
    at = [np.full(size, -1) for size in train.shape]
    at[0][train.rows], at[1][train.cols] = users, items
    u, i = at[0][test.rows], at[1][test.cols]
    found = []
    for penalty in within_limit(SURPRISE):
        model = SVD(RANK, n_epochs=20, reg_all=penalty * scale, random_state=0).fit(entries)
        with np.errstate(all="ignore"):
            both = np.einsum("ij,ij->i", model.pu[u], model.qi[i])
            biases = np.where(u >= 0, model.bu[u], 0.0) + np.where(i >= 0, model.bi[i], 0.0)
            predicted = entries.global_mean + biases + np.where((u >= 0) & (i >= 0), both, 0.0)
        error = rmse(test, predicted)
        found.append((error if np.isfinite(error) else np.inf, penalty))
    best, penalty = min(found)
    return f"{best:.4f} at {penalty:g}" if np.isfinite(best) else "diverged"


def installed(error: Callable[..., str], *data: Any) -> str:
    """The result of a peer, where it is installed."""
    with contextlib.suppress(ImportError):
        return error(*data)
    return "not measured"


def set_up() -> str:
    """Table of the time of a fit of one epoch, by kind of input and threads."""
    data = drawn(SHAPES["0.4 M, 1–10"], 5)
    csr = sp.csr_array((data.values, (data.rows, data.cols)), shape=data.shape)
    rows = []
    for name, X in (("CSR", csr), ("COO", csr.tocoo()), ("st.Data", data)):
        for threads in (1, 2):
            model = st.MatrixFactorization(RANK, max_iter=1, random_state=0, n_jobs=threads)
            model.fit(X)
            clocks = []
            for _ in range(REPEATS):
                passes: list[float] = []

                def note(event: Event, passes: list[float] = passes) -> None:
                    if isinstance(event, EpochDone):
                        passes.append(event.seconds)

                began = time.perf_counter(), time.process_time()
                model.fit(X, session=st.Session(listeners=[note]))
                wall, used = time.perf_counter() - began[0], time.process_time() - began[1]
                clocks.append((wall, used, wall - passes[0]))
            rows.append([name, threads, *(f"{1e3 * median:.0f}" for median in np.median(clocks, axis=0))])
    return report.table(["input", "threads", "fit of one epoch, ms", "processor time, ms", "of it set-up, ms"], rows)


def main() -> None:
    """Measure every set."""
    programs = peers()
    program = next(
        (path for label, path in programs.items() if "avx" in label.lower()), next(iter(programs.values()), None)
    )
    rows = []
    for name, make in all_sets().items():
        train, test = replace(make(), row_ids=None, col_ids=None).split(sets.TEST_SHARE, seed=0)
        scale = float(np.std(train.values))
        ours = [errors(train, test, epochs) for epochs in EPOCHS]
        former = [errors(train, test, epochs, schedule="polynomial") for epochs in EPOCHS]
        best = min((min(errors(train, test, EPOCHS[0], l2_regularization=p * scale)), p) for p in PENALTIES)
        data = (train, test, scale)
        others = ["not measured" if program is None else libmf_error(program, *data)]
        others += [installed(peer, *data) for peer in (cmfrec_error, surprise_error)]
        shown = [f"{curve[-1]:.4f}" for curve in (*ours, *former)]
        use = "chosen" if name in CHOSEN else "judged"
        rows.append([name, use, f"{scale:.2f}", *shown, f"{best[0]:.4f} at {best[1]:g}", *others])
        print(rows[-1], flush=True)
    columns = ["set", "default", "standard deviation", "default, 20 epochs", "40 epochs", "former, 20 epochs"]
    columns += ["40 epochs", "our best penalty", "LIBMF's best penalty", "cmfrec's", "Surprise's"]
    body = f"{report.table(columns, rows)}\n\n{set_up()}"
    report.save("mf_scores", "Test RMSE of factorisation with its defaults", report.text(__doc__), body, ("scipy",))
