"""A Lasso that no host may hold: svmlight files of 2 million samples and 1 million features, read by four hosts.

The files are generated: every sample has 125 entries, one in each of 125 ranges of features, the first ranges being
the narrowest, so that some features are common and most are rare; 300 features explain the labels. Four namespace hosts
at 1 Gbit read them, and each keeps its share of the columns. Control groups give each host, Ray included, less memory
than the matrix takes as sparse columns. The driver is on a machine of its own; it keeps the columns of working sets.

`alpha` is 7/√n for features of standard deviation 1, and the fit ends at a duality gap of 2e-5 times the variance of
the labels, below 1e-4 of the objective. A round is one pass over the columns that are left, on the nodes, and the
solution of one working set in the driver. Bytes are those of the arrays that the driver sends and receives. `--scale
20` divides samples and features.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import report
from .cluster_files import digest, peak

NODES, LINK = 4, "1Gbit"
SAMPLES, FEATURES, ENTRIES, RELEVANT = 2_000_000, 1_000_000, 125, 300
DIGITS = 7  # of a feature's number in the files
FILES = 16
BASE = 700 * 10**6  # bytes of a host for Ray, the interpreter and compiled code
SHARE = 0.3  # of the matrix that a host may have beside these

Bytes = NDArray[np.uint8]


# -- the files ---------------------------------------------------------------------------------------------------------


def _digits(numbers: NDArray[np.int64], count: int) -> Bytes:
    """[..., count] decimal digits as text."""
    powers = 10 ** np.arange(count - 1, -1, -1)
    return (numbers[..., None] // powers % 10 + ord("0")).astype(np.uint8)


def write_files(folder: Path, samples: int, features: int, seed: int = 0) -> None:
    """Labels and entries of fixed width, a file at a time."""
    rng = np.random.default_rng(seed)
    bounds = (features * (np.arange(ENTRIES + 1) / ENTRIES) ** 2).astype(np.int64)
    width = np.diff(bounds)
    coef = np.zeros(features)
    where = rng.integers(0, ENTRIES, RELEVANT)
    # Values are 1 to 9, 5 on average and 31.7 squared; each feature explains the same share of the labels.
    coef[bounds[where] + rng.integers(0, width[where])] = (
        rng.choice([-1.0, 1.0], RELEVANT) * np.sqrt(0.9 / RELEVANT) / np.sqrt(31.7 / width[where])
    )
    for number in range(FILES):
        count = samples * (number + 1) // FILES - samples * number // FILES
        with open(folder / f"part-{number:02}.svm", "wb") as file:
            for first in range(0, count, 20_000):
                rows = min(20_000, count - first)
                columns = bounds[:-1] + (rng.random((rows, ENTRIES)) * width).astype(np.int64)
                values = rng.integers(1, 10, (rows, ENTRIES))
                labels = (coef[columns] * values).sum(axis=1) + 0.3 * rng.standard_normal(rows)
                text = np.full((rows, 9 + ENTRIES * (DIGITS + 3) + 1), ord(" "), np.uint8)
                words = "".join(f"{label:9.4f}" for label in np.clip(labels, -999, 999))
                text[:, :9] = np.frombuffer(words.encode(), np.uint8).reshape(rows, 9)
                entries = text[:, 9:-1].reshape(rows, ENTRIES, DIGITS + 3)
                entries[:, :, 1 : 1 + DIGITS] = _digits(columns + 1, DIGITS)
                entries[:, :, 1 + DIGITS] = ord(":")
                entries[:, :, 2 + DIGITS] = _digits(values, 1)[..., 0]
                text[:, 9:-1] = entries.reshape(rows, -1)
                text[:, -1] = ord("\n")
                # A line begins with its label.
                file.writelines(line.lstrip() for line in text.tobytes().splitlines(keepends=True))


# -- one fit, on the driver's machine ----------------------------------------------------------------------------------


@contextmanager
def watching(calls: list[dict[str, Any]]) -> Iterator[None]:
    """Note each call of functions over parts: seconds, bytes to and from the nodes."""
    from stretto.runtime.cluster.hosts.hosts import Hosts
    from stretto.runtime.cluster.parts.calls import HostCall
    from stretto.runtime.cluster.parts.driver import nbytes_of

    ask = Hosts.ask_each

    def noting(hosts: Hosts, what: str, args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        found = ask(hosts, what, args, **more)
        for work in (one[0] for one in args.values()):
            if isinstance(work, HostCall):
                sent = sum(nbytes_of((one[0].own, one[0].shared)) for one in args.values())
                took = time.perf_counter() - began
                name = work.function.__name__
                calls.append({"name": name, "took": took, "sent": sent, "came": nbytes_of(list(found.values()))})
                break
        return found

    patched: Any = Hosts
    patched.ask_each = noting
    try:
        yield
    finally:
        patched.ask_each = ask


def fit(folder: str, where: str) -> dict[str, Any]:
    """Fit on hosts, or on threads of this computer; seconds, bytes and bits."""
    import stretto as st

    runtime: Any = st.Cluster(nodes=NODES, patience=60.0, start_within=300.0) if where == "hosts" else st.Threads()
    calls: list[dict[str, Any]] = []
    samples = int(Path(folder).name.split("-")[1])
    model = st.Lasso(7.0 / np.sqrt(samples), standardize=True, tol=2e-5, runtime=runtime, verbose=1)
    began = time.perf_counter()
    with watching(calls):
        model.fit(folder)
    took = time.perf_counter() - began
    return {
        "took": took,
        "rounds": model.n_iter_,
        "gap": model.dual_gap_,
        "objective": model.objective_,
        "chosen": int(np.count_nonzero(model.coef_)),
        "shape": [samples, model.n_features_in_],
        "bits": digest(model.coef_, np.array([model.intercept_, model.dual_gap_])),
        "calls": calls,
        "driver": peak(),
    }


class Resident:
    """The most memory that each host had while a fit ran."""

    def __init__(self, lab: Any) -> None:
        self.most = [0] * len(lab.workers)
        self._lab, self._end = lab, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._end.wait(0.2):
            self.most = [max(most, host.resident()) for most, host in zip(self.most, self._lab.workers, strict=True)]

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


# -- the page ----------------------------------------------------------------------------------------------------------


def table(told: dict[str, Any], text: int, matrix: int, limit: int, hosts: list[int], here: str) -> str:
    """What was measured."""
    calls: dict[str, list[dict[str, Any]]] = {}
    for call in told["calls"]:
        calls.setdefault(call["name"], []).append(call)
    price = calls.get("price", [])
    each = f"{_mean(price, 'sent') / 1e6:.1f} MB to the nodes, {_mean(price, 'came') / 1e6:.2f} MB back"
    work = calls.get("fetch", [])
    samples, features = told["shape"]
    rows = [
        ["data", f"{samples:,} × {features:,}, {text / 1e9:.2f} GB of text, {matrix / 1e9:.2f} GB as sparse columns"],
        ["memory that a host may have", f"{limit / 1e9:.2f} GB"],
        ["memory that hosts had at most", ", ".join(f"{one / 1e9:.2f}" for one in hosts) + " GB"],
        ["driver: peak of resident memory", f"{told['driver'] / 1e9:.2f} GB"],
        ["rounds, features chosen", f"{told['rounds']}, {told['chosen']:,}"],
        ["duality gap ÷ objective", f"{told['gap'] / told['objective']:.2e}"],
        ["a pass over the columns that are left", each],
        ["seconds of such a pass", f"{_mean(price, 'took'):.2f}"],
        ["columns fetched by the driver", f"{sum(one['came'] for one in work) / 1e6:.1f} MB in {len(work)} calls"],
        ["seconds in which nodes read their columns", f"{sum(one['took'] for one in calls.get('read', [])):.0f}"],
        ["seconds in all, reading and starting included", f"{told['took']:.0f}"],
        ["same bits as on threads of one machine", here],
    ]
    return report.table([f"{NODES} hosts, {LINK}", "measured"], rows)


def _mean(calls: list[dict[str, Any]], name: str) -> float:
    return sum(float(call[name]) for call in calls) / max(1, len(calls))


def main(argv: Sequence[str] = ()) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench lasso_cluster", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=int, default=1, help="divide samples and features by this")
    parser.add_argument("--folder", type=Path, help="where files are kept; a temporary folder unless given")
    parser.add_argument("--compare", action="store_true", help="fit on threads of this computer too, and compare bits")
    asked = parser.parse_args(list(argv))
    from .laboratory import laboratory

    samples, features = SAMPLES // asked.scale, FEATURES // asked.scale
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.folder or Path(scratch)) / f"lasso-{samples}-{features}"
        if not folder.exists():
            folder.mkdir(parents=True)
            write_files(folder, samples, features)
        text = sum(file.stat().st_size for file in folder.iterdir())
        matrix = 8 * samples * ENTRIES + 8 * features  # int32 row numbers, float32 values
        limit = BASE + int(SHARE * matrix)
        print(f"{text / 1e9:.2f} GB of text; {matrix / 1e9:.2f} GB as columns, {limit / 1e9:.2f} a host", flush=True)
        with laboratory(NODES, link=LINK) as lab:
            for host in lab.workers:
                if not host.limit_memory(limit):
                    raise SystemExit("no control groups for memory can be made here")
            with Resident(lab) as seen:
                command = [sys.executable, "-m", "bench.lasso_cluster", str(folder), "hosts"]
                told = _last_line(lab.run(command, timeout=3600).stdout)
        here = "not compared"
        if asked.compare:
            here = "yes" if told["bits"] == fit(str(folder), "threads")["bits"] else "NO"
        command_line = f"lasso_cluster --scale {asked.scale}" if asked.scale > 1 else "lasso_cluster"
        body = table(told, text, matrix, limit, seen.most, here)
        report.save("lasso_cluster", "A Lasso that no host may hold", report.text(__doc__), body, ["ray"], command_line)


def _last_line(said: str) -> dict[str, Any]:
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"it failed:\n{said[-4000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(fit(*sys.argv[1:3])))
