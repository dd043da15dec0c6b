"""Loops over a skewed block as they are compiled: constant steps, and indices that advance with the innermost loop.

The canonical form, in `worker_source`, computes every index from the new coordinates. Here the part that stays the same
along the innermost loop is computed before it, and steps are constants, so that the compiler sees unit strides.
"""

from __future__ import annotations

from .scalars import SourceBuilder
from .visit_form import VisitForm


def skewed(sheet: SourceBuilder, indices: list[str], form: VisitForm) -> None:
    """Write the loops over the new coordinates; the last one is limited so that old coordinates stay in the block."""
    for d in range(len(indices)):
        sheet.write(f"start{d}, extent{d} = box[{d}, 0], box[{d}, 2]")
    sheet.write("low, high = lo[g, 1], hi[g, 1]")
    sheet.write("for y0 in range(lo[g, 0], hi[g, 0]):")
    sheet.depth += 1
    sheet.write("first, past = low, high")
    for d, (from_first, factor) in zip(form.pair, form.inverse, strict=True):
        sheet.write(f"a{d} = {_times(from_first, 'y0')}")
        if factor == 0:
            sheet.write(f"past = past if 0 <= a{d} < extent{d} else first")
        elif factor > 0:  # 0 <= a + factor * y < extent, rounded upwards: -(-x // factor)
            sheet.write(f"first, past = max(first, -(a{d} // {factor})), min(past, -((a{d} - extent{d}) // {factor}))")
        else:
            low, high = f"-((extent{d} - 1 - a{d}) // {-factor})", f"a{d} // {-factor} + 1"
            sheet.write(f"first, past = max(first, {low}), min(past, {high})")
    for d in form.pair:
        sheet.write(f"from{d} = start{d} + {_times(form.steps[d], f'a{d}')}")
    sheet.write("for y1 in range(first, past):")
    sheet.depth += 1
    for d, (_, factor) in zip(form.pair, form.inverse, strict=True):
        along = form.steps[d] * factor
        sheet.write(f"{indices[d]} = from{d}" + (f" + {_times(along, 'y1')}" if along else ""))
    for d, index in enumerate(indices):
        if d not in form.pair:
            sheet.write(f"for c{d} in range(extent{d}):")
            sheet.depth += 1
            sheet.write(f"{index} = start{d} + {_times(form.steps[d], f'c{d}')}")


def _times(factor: int, what: str) -> str:
    return "0" if factor == 0 else what if factor == 1 else f"({factor}) * {what}"
