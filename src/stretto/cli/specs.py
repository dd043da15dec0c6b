"""Parse `--arg` specifications of loop arguments: `--arg ratings=data:6040x3706:1000000 --arg W=f4:6040x64`.

data:600x400:20000        sparse records (i, j), r, generated
samples:1000x300:6000     ragged records i, (y, features), generated, with this number of entries
dense:100x100             every element of an array
file:ratings.dat          data read from a file
f4:600x16                 a state of zeros; any of NumPy's short type names
buffer:W                  a buffer in front of the argument W
accumulator               one that starts at 0.0
0.01, 3, true, float      a number
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from stretto.errors import DataError

FORMS = (
    "data:ROWSxCOLS:RECORDS, samples:ROWSxCOLS:ENTRIES, dense:SHAPE, file:PATH, f4:SHAPE, buffer:NAME, accumulator, "
)
FORMS += "or a number"


def read_specs(given: Sequence[str]) -> dict[str, Any]:
    """The arguments that `name=SPEC` texts describe."""
    texts: dict[str, str] = {}
    for text in given:
        name, equals, spec = text.partition("=")
        if not equals or not name.isidentifier() or not spec:
            raise DataError(f"--arg {text}: write name=SPEC, where SPEC is {FORMS}")
        texts[name] = spec
    made: dict[str, Any] = {}
    # Buffers last: they need the array they stand before.
    for name, spec in sorted(texts.items(), key=lambda pair: pair[1].startswith("buffer:")):
        made[name] = made_from(name, spec, made)
    return {name: made[name] for name in texts}


def made_from(name: str, spec: str, others: Mapping[str, Any]) -> Any:
    """What one SPEC describes.

    >>> made_from("lr", "0.1", {}), made_from("W", "f4:3x2", {}).shape
    (0.1, (3, 2))
    """
    kind, _, rest = spec.partition(":")
    makers: dict[str, Callable[[], Any]] = {
        "data": lambda: _data(*_counted(rest)),
        "samples": lambda: _samples(*_counted(rest)),
        "dense": lambda: _dense(_shape(rest)),
        "file": lambda: _file(rest),
        "buffer": lambda: _buffer(name, rest, others),
        "accumulator": _accumulator,
        "float": lambda: 0.5,
        "int": lambda: 1,
        "true": lambda: True,
        "false": lambda: False,
    }
    try:
        if kind.lower() in makers:
            return makers[kind.lower()]()
        if rest:
            import stretto as st

            return st.zeros(_shape(rest), np.dtype(kind))
        return int(spec) if re.fullmatch(r"[+-]?\d+", spec) else float(spec)
    except (TypeError, ValueError) as problem:
        why = f" ({problem})" if isinstance(problem, DataError) else ""
        raise DataError(f"--arg {name}={spec} cannot be read{why}; a SPEC is {FORMS}") from problem


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _counted(text: str) -> tuple[tuple[int, ...], int]:
    shape, _, count = text.partition(":")
    return _shape(shape), int(count)


def _data(shape: tuple[int, ...], records: int) -> Any:
    from stretto.data.generate.ratings import ratings

    rows, cols = shape
    return ratings(records, rows, cols).data


def _samples(shape: tuple[int, ...], entries: int) -> Any:
    from scipy.sparse import csr_matrix

    import stretto as st

    rows, cols = shape
    draw = np.random.default_rng(0)
    found = (draw.random(entries, np.float32), (draw.integers(rows, size=entries), draw.integers(cols, size=entries)))
    return st.samples(csr_matrix(found, shape=(rows, cols)), draw.integers(2, size=rows).astype(np.float32))


def _dense(shape: tuple[int, ...]) -> Any:
    import stretto as st

    return st.dense(np.zeros(shape, np.float32))


def _file(path: str) -> Any:
    import stretto as st

    return st.read(path)


def _buffer(name: str, target: str, others: Mapping[str, Any]) -> Any:
    import stretto as st

    if target not in others:
        raise DataError(f"--arg {name}=buffer:{target} needs the array {target}; describe it with another --arg")
    return st.buffer(others[target])


def _accumulator() -> Any:
    import stretto as st

    return st.accumulator(0.0)
