"""HTML page of the topic browser: markup, numbers, and the circles of the map.

The page is assembled from `assets/`: a frame, a style and two scripts. This module writes header, facts and curve as
plain HTML. The scripts draw everything else from one block of JSON, in which every word and every document name occurs
once and topics refer to them by number: 10,000 topics stay a few megabytes.

Text from outside cannot inject code (`markup`), and the scripts only set text.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stretto.errors import RunError
from stretto.observe.files import replace
from stretto.observe.markup import asset, escape, fill, json_block, policy
from stretto.observe.topics import TopicView

MAPPED = 500  # topics; beyond it circles are too small to point at
MAP = (600.0, 440.0)
_COVERED = 0.2  # of the map, by all circles together
_PUSHES = 80
_CURVE = (220.0, 64.0)
_POINTS = 200  # of the curve


def page(view: TopicView) -> bytes:
    """The whole file, in UTF-8."""
    style, script = asset("topics.css"), asset("topics-map.js") + asset("topics.js")
    parts = {
        "policy": policy(script, style),
        "title": escape(view.title),
        "facts": "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in view.facts.items()
        ),
        "curve": curve(view.history),
        "style": style,
        "script": script,
        "data": json_block(payload(view)),
    }
    return fill(asset("topics.html"), parts)


def payload(view: TopicView) -> dict[str, Any]:
    """What the scripts are given. Numbers keep three digits: more cannot be seen."""
    lists = [[word for word, *_ in row] for row in view.relevant or ()]
    vocabulary, both = _numbered([*view.words, *lists])
    words, relevant = both[: len(view.words)], both[len(view.words) :]
    names, documents = _numbered(view.documents)
    coherence = None if view.coherence is None else _short(view.coherence)
    spots = None
    if view.places is not None and len(view.words) <= MAPPED:
        radii = circles(view.tokens)
        spots = np.column_stack((positions(view.places, radii), radii))
        spots = spots.astype(np.float64).round(1).tolist()
    return {
        "vocabulary": vocabulary,
        "words": words,
        "weights": _rows(view.weights, words),
        "tokens": np.asarray(view.tokens).tolist(),
        "similar": np.asarray(view.similar).tolist(),
        "similarity": [_short(row) for row in view.similarity],
        "names": names,
        "documents": documents,
        "shares": _rows(view.shares, documents),
        "coherence": coherence,
        "relevant": relevant,
        "likely": [_short(np.array([p for _, p, _ in row])) for row in view.relevant or ()],
        "overall": [_short(np.array([share for *_, share in row])) for row in view.relevant or ()],
        "titles": None if view.names is None else [_text(name) for name in view.names],
        "map": spots,
        "size": MAP,
    }


def curve(history: Sequence[tuple[int, float]]) -> str:
    """The log-likelihood per token against epochs, as a small SVG; nothing when there are fewer than two points.

    >>> curve([(1, -9.0)])
    ''
    """
    points = [(epoch, value) for epoch, value in history if math.isfinite(value)]
    if len(points) < 2:
        return ""
    if len(points) > _POINTS:
        points = [points[round(place)] for place in np.linspace(0, len(points) - 1, _POINTS)]
    (width, height), pad = _CURVE, 4.0
    epochs, values = np.array(points, dtype=np.float64).T
    across = (epochs - epochs.min()) / (np.ptp(epochs) or 1.0)
    up = (values - values.min()) / (np.ptp(values) or 1.0)
    x, y = pad + across * (width - 2 * pad), height - pad - up * (height - 2 * pad)
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    first, last = points[0], points[-1]
    begun, reached = (f"{value:.3f}".replace("-", "\N{MINUS SIGN}") for value in (first[1], last[1]))
    caption = f"Log-likelihood per token: {begun} after epoch {first[0]}, {reached} after epoch {last[0]}"
    return (
        f'<figure class="curve"><svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{caption}">'
        f'<polyline points="{line}"/><circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="3"/></svg>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def circles(tokens: ArrayLike) -> NDArray[np.float32]:
    """Radii [K] whose areas go with tokens [K]; none is too small to be pointed at."""
    share = np.asarray(tokens, dtype=np.float64)
    share = share / (share.sum() or 1.0)
    return np.clip(np.sqrt(share * _COVERED * MAP[0] * MAP[1] / math.pi), 2.5, 48.0).astype(np.float32)


def positions(places: ArrayLike, radii: NDArray[np.float32]) -> NDArray[np.float32]:
    """Centres of the circles [K, 2] on `MAP`: places [K, 2], moved and scaled alike in both directions.

    Circles of these radii [K] that would overlap are then pushed off each other.
    """
    given, whole = np.asarray(places, np.float32), np.array(MAP, np.float32)
    wide = np.ptp(given, axis=0)
    inner = whole - 2 * radii.max() - 8
    scale = min(float(room / w) for room, w in zip(inner, np.maximum(wide, 1e-9), strict=True))
    middle = given.min(axis=0) + wide / 2
    return _apart((given - middle) * np.float32(scale) + whole / 2, radii)


def _apart(place: NDArray[np.float32], radii: NDArray[np.float32]) -> NDArray[np.float32]:
    """Push circles that overlap away from each other, each by half, and keep them on the map."""
    need = radii[:, None] + radii[None, :] + 2
    np.fill_diagonal(need, 0)
    low, high = radii[:, None] + 2, np.array(MAP, np.float32) - radii[:, None] - 2
    for _ in range(_PUSHES):
        far = np.maximum(_between(place), 1e-6)
        short = np.maximum(need - far, 0)
        if not short.any():
            break
        place = np.clip(place + _moved(place, 0.5 * short / far), low, high)
    return np.clip(place, low, high)


def _between(place: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances [K, K] between places [K, 2]."""
    x, y = place.T
    far: NDArray[np.float32] = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)
    return far


def _moved(place: NDArray[np.float32], force: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where each is driven [K, 2]: by force[i, j] away from j, along the line between them."""
    move: NDArray[np.float32] = place * force.sum(axis=1, keepdims=True) - force @ place
    return move


def _numbered(lists: Sequence[Sequence[str]]) -> tuple[list[str], list[list[int]]]:
    """Every text once, and the lists with numbers in place of texts."""
    places: dict[str, int] = {}
    numbers = [[places.setdefault(_text(name), len(places)) for name in names] for names in lists]
    return list(places), numbers


def _text(name: str) -> str:
    return name if name.isascii() else name.encode("utf-8", "replace").decode()


def _rows(numbers: NDArray[Any], lists: list[list[int]]) -> list[list[float | None]]:
    """Rows of numbers, as long as the lists they stand beside."""
    return [_short(row[: len(names)]) for row, names in zip(numbers, lists, strict=True)]


def _short(row: NDArray[Any]) -> list[float | None]:
    """Three digits each; what is not finite becomes None, JSON's null."""
    return [float(f"{value:.3g}") if math.isfinite(value) else None for value in np.asarray(row).tolist()]


def write_topics(path: str | os.PathLike[str], view: TopicView) -> Path:
    """Write the topic browser of `view` to `path`, whole or not at all, and return the path.

    write_topics("runs/first/topics.html", view)
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, page(view))
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(
            f"{path}: the topic browser cannot be written ({reason}); check the folder, its permissions and the free "
            "space"
        ) from error
    return path
