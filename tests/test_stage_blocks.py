"""Which block is read next, and who reads which: the pure decisions behind data that are read while training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from stretto.errors import PlanError
from stretto.schedule.stages.block_window import BlockRead, BlockWindow
from stretto.schedule.stages.file_assigner import BlockPlace, FileAssigner, assign_parts, cut_evenly


def test_what_a_part_waits_for_is_read_first_then_what_is_needed_soonest() -> None:
    window = BlockWindow([3, 3], ahead=2)
    window.expect(0, 0)
    window.expect(1, 2)
    assert window.next() == BlockRead(0, 0)
    window.want(0, 2)
    assert window.next() == BlockRead(0, 2)
    assert window.next() == BlockRead(1, 2)
    window.arrived(0, 2, 10)
    window.taken(0, 2)
    assert [window.next(), window.next(), window.next()] == [BlockRead(0, 1), BlockRead(1, 0), None]


def test_nothing_is_read_ahead_after_a_stop() -> None:
    window = BlockWindow([4], ahead=4)
    window.expect(0, 0)
    window.stop()
    assert window.next() is None
    window.want(0, 3)
    assert window.next() == BlockRead(0, 3)


def test_space_is_made_by_the_block_that_is_needed_last() -> None:
    window = BlockWindow([4], ahead=1, memory=20)
    for block in (0, 1):
        window.want(0, block)
        assert window.next() == BlockRead(0, block)
        window.arrived(0, block, 10)
        window.taken(0, block)
    assert window.next() == BlockRead(0, 2, drops=((0, 1),))  # block 0 is needed before block 1


@given(some.data())
def test_every_block_that_is_asked_for_arrives(data: some.DataObject) -> None:
    """Parts use their blocks in turn while readers end in any order."""
    counts = data.draw(some.lists(some.integers(1, 4), min_size=1, max_size=3))
    sizes = {(p, b): data.draw(some.integers(1, 9)) for p, count in enumerate(counts) for b in range(count)}
    memory = data.draw(some.none() | some.integers(1, 30))
    ahead = data.draw(some.integers(1, 4))
    window = BlockWindow(counts, ahead, memory)
    position = dict.fromkeys(range(len(counts)), 0)
    present: set[tuple[int, int]] = set()
    reading: list[tuple[int, int]] = []
    waiting: dict[int, int] = {}
    reads = dict.fromkeys(sizes, 0)

    def drop(gone: tuple[tuple[int, int], ...]) -> None:
        for key in gone:
            present.remove(key)
            assert waiting.get(key[0]) != key[1]  # what a part waits for stays

    for part in position:
        window.expect(part, 0)
    for _ in range(data.draw(some.integers(1, 60))):
        act = data.draw(some.sampled_from(["read", "end", "use"]))
        part = data.draw(some.sampled_from(sorted(position)))
        if act == "read" and len(reading) < 3:
            found = window.next()
            if found is None:
                # Somebody waits only for what is being read.
                assert all(key in present or key in reading for key in waiting.items())
                continue
            assert found.key not in present
            assert found.key not in reading
            if found.key not in waiting.items():
                distance = (found.block - position[found.part]) % counts[found.part]
                assert distance < ahead
            drop(found.drops)
            reading.append(found.key)
            reads[found.key] += 1
        elif act == "end" and reading:
            key = reading.pop(data.draw(some.integers(0, len(reading) - 1)))
            present.add(key)
            drop(window.arrived(*key, sizes[key]))
        elif act == "use":
            block = position[part]
            if part not in waiting:
                window.want(part, block)
                waiting[part] = block
            if (part, block) in present:
                del waiting[part]
                position[part] = (block + 1) % counts[part]
                gone = window.taken(part, block)
                for key in gone:
                    present.remove(key)
        assert window.present == present
        if memory is None:
            assert max(reads.values()) <= 1
        else:
            assert window.nbytes <= memory or all(key in waiting.items() for key in present)


places = some.lists(
    some.builds(BlockPlace, some.integers(1, 100), some.frozensets(some.integers(0, 3), max_size=3)),
    min_size=1,
    max_size=12,
)


@given(places, some.lists(some.integers(0, 3), max_size=40))
def test_the_assigner_gives_every_block_once_and_local_ones_first(
    blocks: list[BlockPlace], requests: list[int]
) -> None:
    assigner, left = FileAssigner(blocks), set(range(len(blocks)))
    for node in [*requests, *[0] * len(blocks)]:
        found = assigner.next(node)
        if found is None:
            assert not left
            continue
        assert found in left
        local = {block for block in left if node in blocks[block].nodes}
        assert found in local or not local
        anywhere = {block for block in left if not blocks[block].nodes}
        if not local and not anywhere:  # from the node that has most left
            loads = {n: sum(blocks[b].nbytes for b in left if n in blocks[b].nodes) for n in range(4)}
            assert any(loads[other] == max(loads.values()) for other in blocks[found].nodes)
        left.remove(found)
    assert not left


@given(places, some.integers(1, 6))
def test_parts_own_every_block_once(blocks: list[BlockPlace], parts: int) -> None:
    if parts > len(blocks):
        with pytest.raises(PlanError, match="give parts= this number or less"):
            assign_parts(blocks, parts)
        return
    found = assign_parts(blocks, parts)
    assert found == assign_parts(blocks, parts)
    assert len(found.blocks) == parts
    assert all(found.blocks)
    assert sorted(block for some in found.blocks for block in some) == list(range(len(blocks)))
    assert all(list(some) == sorted(some) for some in found.blocks)
    assert list(found.nodes) == sorted(found.nodes)


@given(
    some.lists(some.builds(BlockPlace, some.integers(1, 100), some.integers(0, 3).map(lambda n: frozenset({n})))),
    some.integers(1, 6),
)
def test_what_only_one_node_has_belongs_to_parts_of_that_node(blocks: list[BlockPlace], parts: int) -> None:
    nodes = {node for block in blocks for node in block.nodes}
    if parts > len(blocks) or parts < len(nodes):
        with pytest.raises(PlanError, match=r"give parts="):
            assign_parts(blocks, parts, remote=False)
        return
    found = assign_parts(blocks, parts, remote=False)
    for node, mine in zip(found.nodes, found.blocks, strict=True):
        assert all(node in blocks[block].nodes for block in mine)


@given(some.lists(some.integers(1, 100), min_size=1, max_size=30), some.integers(1, 10))
def test_even_cuts_differ_by_less_than_their_largest_blocks(sizes: list[int], parts: int) -> None:
    parts = min(parts, len(sizes))
    found = cut_evenly(sizes, parts)
    assert [k for mine in found for k in mine] == list(range(len(sizes)))
    assert all(found)
    for mine in found:
        total = sum(sizes[k] for k in mine)
        assert len(mine) == 1 or total <= sum(sizes) / parts + 1.5 * max(sizes)
