"""Draw pictures of the documentation into docs/images.

python -m tools.pictures              all of them
python -m tools.pictures rotation     the animation alone

`recommendations` and `topic-map` need MovieLens-1M and AP in $STRETTO_DATA, and are left as they are without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from . import rotation, scenes

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
PICTURES: dict[str, Callable[[Path], bool]] = {
    "rotation.svg": rotation.draw,
    "lasso-path.png": scenes.lasso_path,
    "topic-map.png": scenes.topic_map,
    "recommendations.png": scenes.recommendations,
}


def main(names: list[str]) -> int:
    """Draw those that are named, or all."""
    known = {Path(name).stem: name for name in PICTURES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no picture {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    for name in names or known:
        file = known[name]
        drawn = PICTURES[file](IMAGES / file)
        print(IMAGES / file if drawn else f"{file}: not drawn, because its data set was not found; set STRETTO_DATA")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
