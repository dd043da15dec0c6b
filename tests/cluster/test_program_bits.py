"""Programs and estimators on namespace hosts have the bits of every other runtime; the whole table is a benchmark."""

from __future__ import annotations

import pytest
from lab import Lab


@pytest.mark.slow
def test_a_sample_of_all_cells_has_the_same_bits(cluster: Lab) -> None:
    from bench.program_bits import on_laboratory

    found = on_laboratory(cluster, 11)
    assert len(found["rows"]) > 5
    for what, how, bits in found["rows"]:
        assert len(set(bits.values())) == 1, (what, how, bits)
