"""A thousand malformed files and more, through every reader: only our errors, no signal, no hang, no silent change.

What a reader returns must be what a plain Python reader finds in the file (`plain_reader`), or be an error. A sample
runs with `make test`, all of them with `make test-full`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostile import Case, faults, run_cases
from malformed import KINDS, Made, made
from plain_reader import Plain
from stretto.data import Data, Info, inspect, iter_triples, read, scan
from stretto.data.reading.report import BadLinesWarning
from stretto.errors import StrettoError

SEEDS = 45  # of every kind: more than 1,500 files
MEMORY = 2 << 30


def warm() -> None:
    """Import and compile what the readers need, outside of the limit."""
    for kind in ("tabs", "text", "quoted", "svmlight", "lda-c", "mm real", "npz", "npz, scipy", "parquet"):
        attempt(kind, 0, 0)


def attempt(kind: str, seed: int, mutations: int) -> list[str]:
    """What is wrong with how one file is read; exceptions that are not ours go through."""
    file = made(kind, seed, mutations)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.name)
        path.write_bytes(file.content)
        before = path.stat()
        whole = outcome(lambda: read(path, cache=False, duplicates="keep"))
        walked = outcome(lambda: walk(path))
        streamed = outcome(lambda: list(iter_triples(path)))
        info = outcome(lambda: inspect(path))
        skipped, warned = outcome_and_warnings(path)
        after = path.stat()
        wrong = []
        if (before.st_mtime_ns, before.st_size, before.st_ino) != (after.st_mtime_ns, after.st_size, after.st_ino):
            wrong.append("the file was changed")
        if path.read_bytes() != file.content or os.listdir(folder) != [file.name]:
            wrong.append("the folder is not as it was")
    wrong += judge_whole(file, whole, mutations)
    wrong += judge_skipped(file, skipped, warned)
    if isinstance(whole, Data):
        wrong += agree(whole, walked, streamed, info)
    elif isinstance(walked, Data):
        wrong.append(f"read refuses what scan takes: {whole}")
    if isinstance(info, Info) and isinstance(skipped, Data) and info.description.nnz != len(skipped):
        wrong.append(f"info counts {info.description.nnz} records, reading without bad lines {len(skipped)}")
    return wrong


def outcome(action: Any) -> Any:
    """What an action returns, or the error of ours that it raises."""
    try:
        return action()
    except StrettoError as error:
        if not str(error).strip():
            raise AssertionError("an error without a word") from error
        return error


def walk(path: Path) -> Data:
    found = scan(path)
    parts = list(found.chunks())
    rows, cols, values = (np.concatenate([part[k] for part in parts]) if parts else np.empty(0, int) for k in range(3))
    assert found.row_counts.sum() == found.col_counts.sum() == found.nnz == len(values)
    return Data.from_arrays(
        rows, cols, values, found.shape, labels=found.labels, row_ids=found.row_ids, col_ids=found.col_ids
    )


def outcome_and_warnings(path: Path) -> tuple[Any, int]:
    """Reading without bad lines, and how many were warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = outcome(lambda: read(path, cache=False, duplicates="keep", on_error="skip"))
    said = [str(one.message) for one in seen if issubclass(one.category, BadLinesWarning)]
    return found, int(said[0].partition(": ")[2].split()[0]) if said else 0


def outside(data: Data) -> list[tuple[Any, Any, float]]:
    rows = data.rows if data.row_ids is None else data.row_ids.decode(data.rows)
    cols = data.cols if data.col_ids is None else data.col_ids.decode(data.cols)
    return list(zip(rows.tolist(), cols.tolist(), data.values.tolist(), strict=True))


def expected(file: Made, data: Data) -> list[Plain]:
    """What the file may be taken to hold; nothing where nobody can say."""
    if file.reference is None:
        return []
    kinds = tuple(ids is not None and ids.is_text for ids in (data.row_ids, data.col_ids))
    return file.reference(file.plain, (kinds[0], kinds[1]))


def judge_whole(file: Made, found: Any, mutations: int) -> list[str]:
    if not isinstance(found, Data):
        return [f"a good file is refused: {found}"] if not mutations and not file.strict else []
    if file.strict:
        return [f"read as {outside(found)[:5]}"]
    wrong = []
    for plain in expected(file, found):
        bad = f"line {plain.bad[0]} is bad, and nobody said so: {outside(found)[:5]}" if plain.bad else ""
        differs = compared("read", found, plain)
        if not bad and not differs:
            return []
        wrong.append(bad or differs)
    return wrong[:1]


def judge_skipped(file: Made, found: Any, warned: int) -> list[str]:
    if not isinstance(found, Data):
        return []
    if file.strict:
        return [f"read without bad lines as {outside(found)[:5]}"]
    wrong = []
    for plain in expected(file, found):
        differs = compared("read without bad lines", found, plain)
        if not differs and warned != len(plain.bad):
            differs = f"{len(plain.bad)} lines are bad ({plain.bad[:5]}), {warned} were warned of"
        if not differs:
            return []
        wrong.append(differs)
    return wrong[:1]


def compared(action: str, found: Data, plain: Plain) -> str:
    got = outside(found)
    if got != plain.records:
        pairs = zip(got, plain.records, strict=False)
        first = next(((k, a, b) for k, (a, b) in enumerate(pairs) if a != b), "the end")
        return f"{action}: {len(got)} records for {len(plain.records)}, which differ at {first}"
    if plain.shape is not None and found.shape != plain.shape:
        return f"{action}: shape {found.shape} for {plain.shape}"
    if found.labels is not None and found.labels.tolist() != plain.labels:
        return f"{action}: labels {found.labels.tolist()[:5]} for {plain.labels[:5]}"
    return ""


def agree(whole: Data, walked: Any, streamed: Any, info: Any) -> list[str]:
    wrong = []
    if not isinstance(walked, Data) or outside(walked) != outside(whole) or walked.shape != whole.shape:
        wrong.append(f"scan differs: {walked}")
    if isinstance(streamed, StrettoError) or sum(len(part[2]) for part in streamed) != len(whole):
        wrong.append(f"iter_triples differs: {streamed}")
    if not isinstance(info, Info) or info.bad_lines or info.description.nnz != len(whole):
        wrong.append(f"info differs: {info}")
    return wrong


def run(cases: list[Case]) -> None:
    verdicts = run_cases(attempt, cases, warm=warm, memory=MEMORY)
    wrong = faults(verdicts)
    wrong += [f"{v.case.name}: {'; '.join(v.value)}" for v in verdicts if v.outcome == "returned" and v.value]
    assert not wrong, f"{len(wrong)} of {len(cases)} files:\n" + "\n".join(wrong[:20])


def cases(seeds: range) -> list[Case]:
    return [Case(f"{kind}/{seed}", (kind, seed, 1 + seed % 3)) for kind in KINDS for seed in seeds]


def test_good_files_and_some_malformed_ones() -> None:
    good = [Case(f"{kind}/{seed}, as it is", (kind, seed, 0)) for kind in KINDS for seed in range(2)]
    run(good + cases(range(6)))


@pytest.mark.slow
def test_every_malformed_file() -> None:
    every = cases(range(6, 6 + SEEDS))
    assert len(every) >= 1000
    run(every)
