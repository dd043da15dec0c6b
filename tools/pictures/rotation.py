"""The animation of a rotation: which worker visits which block of the grid, and when.

Times are those of the plan's own list schedule (`stretto.schedule.orders.bound.play_waves`): a visit takes as long as
its block has entries. Readers who ask their system for reduced motion see the end: each block in the colour of its
worker, with its place in that worker's order.
"""

from __future__ import annotations

from pathlib import Path

import stretto as st
from stretto.figures import COLOURS, INK
from stretto.schedule.orders.bound import play_waves

WORKERS, SECONDS, REST = 4, 12.0, 2.0
SIDE, LEFT, TOP = 360, 36, 86
EMPTY = "#eef0f2"


def draw(path: Path) -> bool:
    """Write the animation of a small plan."""
    ratings = st.generate_ratings(40_000, 400, 400, rank=4, seed=1).data
    plan = st.MatrixFactorization(8, random_state=0, n_jobs=WORKERS).plan(ratings)
    path.write_text(animated(plan, WORKERS), encoding="utf-8")
    return True


def animated(plan: object, workers: int) -> str:
    """The SVG text of a plan over a grid of blocks.

    Parameters
    ----------
    plan : GridPlan
        A plan of rotation.
    workers : int
        Workers of the list schedule.
    """
    order = plan.order  # type: ignore[attr-defined]
    visits = play_waves(order, plan.weight, workers, plan.waves)  # type: ignore[attr-defined]
    end = max(stop for *_, stop in visits)
    cell = SIDE / order.cols
    styles, blocks, made = [], [], [0] * workers
    for visit, worker, start, stop in sorted(visits, key=lambda one: one[2]):
        made[worker] += 1
        x, y = LEFT + int(order.col_block[visit]) * cell, TOP + int(order.row_block[visit]) * cell
        colour = COLOURS[worker]
        begin, until = (100 * SECONDS / (SECONDS + REST) * at / end for at in (start, stop))
        styles.append(
            f"@keyframes v{visit}{{0%,{begin:.2f}%{{fill:{EMPTY};fill-opacity:1}}"
            f"{begin + 0.01:.2f}%,{until:.2f}%{{fill:{colour};fill-opacity:1}}"
            f"{until + 0.01:.2f}%,100%{{fill:{colour};fill-opacity:.35}}}}#v{visit}{{animation-name:v{visit}}}"
        )
        blocks.append(
            f'<rect id="v{visit}" class="b" x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
            f'fill="{colour}" fill-opacity=".35"/><text class="n" x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}">'
            f"{made[worker]}</text>"
        )
    return _page(styles, blocks, order.rows, order.cols, workers)


def _page(styles: list[str], blocks: list[str], rows: int, cols: int, workers: int) -> str:
    width, height = LEFT + SIDE + 24, TOP + SIDE + 44
    legend = "".join(
        f'<rect x="{LEFT + 90 * k}" y="{TOP + SIDE + 16}" width="12" height="12" fill="{COLOURS[k]}"/>'
        f'<text x="{LEFT + 90 * k + 18}" y="{TOP + SIDE + 27}">worker {k}</text>'
        for k in range(workers)
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="13" fill="{INK}" role="img" aria-labelledby="t d">',
        f'<title id="t">A rotation: {workers} workers visit a grid of {rows} × {cols} blocks</title>',
        '<desc id="d">A full colour marks the block that a worker visits now, a pale one a block that is done. Blocks '
        "visited at the same time share no row and no column.</desc>",
        "<style>.b{stroke:#fff;stroke-width:1.5}.n{text-anchor:middle;font-size:12px}",
        f"@media (prefers-reduced-motion:no-preference){{.b{{animation:{SECONDS + REST:g}s linear infinite}}",
        *styles, "}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="24" font-size="16">One epoch of matrix factorisation, {workers} workers</text>',
        f'<text x="{LEFT}" y="46">Full colour: visited now; pale: done. Blocks visited at the</text>',
        f'<text x="{LEFT}" y="63">same time share no row and no column.</text>',
        f'<text x="{LEFT}" y="{TOP - 6}">blocks of items →</text>',
        f'<text transform="translate({LEFT - 8},{TOP + 104}) rotate(-90)">← blocks of users</text>',
        *blocks, legend, "</svg>", "",
    ])  # fmt: skip
