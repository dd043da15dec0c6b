"""Operations on cached rows by key: index lookup, read, add, install; for caches and update buffers.

An index maps keys to slots: index_keys [size] int64 and index_slots [size] int32, −1 where empty, by open addressing
with linear probing; the size is a power of two, at least twice the number of entries. Where every row has a fixed
place from the start, a row's slot is its key and no index is needed.

Columns of a cache: values [slots, width], through [slots] int64 (−1: not held), shard [slots] int32, witness [slots, W]
int32. Those of an update buffer (slip): see `pending_changes`. W may be 0, and an unused array may be empty.

locks [a power of two] int64: a thread that changes or copies a shared row holds lock slot & (size − 1) meanwhile, and
never two locks at once. Empty where nothing is shared, and for reads in exact runs: no other value is written to a row
that may be read before the reader ends its clock.
"""

from __future__ import annotations

import numpy as np
from numba.core import cgutils
from numba.core.types import Array, int64
from numba.extending import intrinsic

from stretto.kernels.core.atomics import claim, load, rest, store
from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.numeric.vector_memory import ahead

_ODD = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_SPINS = 64  # attempts to take a lock before the thread yields
BINS = 32  # bins of a histogram of staleness
_AHEAD, _LINES = 6, 8  # prefetch distance in rows, and cache lines of each row


@intrinsic
def _elsewhere(typingctx, like, address):
    """Array view with the type and shape of `like` at an address. It has no owner: use it inside the call only."""
    if not (isinstance(like, Array) and like.layout == "C"):
        return None

    def codegen(context, builder, signature, args):
        array = context.make_array(like)(context, builder, value=args[0])
        array.data = builder.inttoptr(args[1], array.data.type)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()

    return like(like, int64), codegen


@merged
def hold(locks, i):
    """Take lock i."""
    while not claim(locks, i):
        spins = 0
        while load(locks, i) != 0:
            spins += 1
            if spins % _SPINS == 0:
                rest()


@merged
def _start(key, mask):
    """Return where the search for a key begins."""
    x = np.uint64(key)
    x = (x ^ (x >> _HALF)) * _ODD
    return np.int64(x >> _HALF) & mask


@merged
def home(index_keys, index_slots, key):
    """Return the position of a key in an index, or the empty position that it would take."""
    mask = index_keys.shape[0] - 1
    at = _start(key, mask)
    while index_slots[at] >= 0 and index_keys[at] != key:
        at = (at + 1) & mask
    return at


@merged
def find(index_keys, index_slots, key):
    """Return the slot of a key, −1 if it has none."""
    return index_slots[home(index_keys, index_slots, key)]


@merged
def put(index_keys, index_slots, key, slot):
    """Set the slot of a key. The index must not be full."""
    at = home(index_keys, index_slots, key)
    index_keys[at] = key
    index_slots[at] = slot


@kernel
def find_all(index_keys, index_slots, wanted, out):
    """out[i] = find(wanted[i]), safe while another thread is in `place`: its new keys are found or not.

    Returns how many were not found.
    """
    mask = index_keys.shape[0] - 1
    missing = 0
    for i in range(wanted.shape[0]):
        at = _start(wanted[i], mask)
        slot = load(index_slots, at)  # read before the key: `place` writes the key first
        while slot >= 0 and index_keys[at] != wanted[i]:
            at = (at + 1) & mask
            slot = load(index_slots, at)
        out[i] = slot
        missing += slot < 0
    return missing


@kernel
def rehash(index_keys, index_slots, old_keys, old_slots):
    """Copy all entries of an index into another one."""
    index_slots[:] = -1
    for at in range(old_keys.shape[0]):
        if old_slots[at] >= 0:
            put(index_keys, index_slots, old_keys[at], old_slots[at])


@kernel
def place(index_keys, index_slots, keys, count, wanted, out):
    """out[i] = the place of wanted[i], the next free one if it has none; return how many are in use now.

    keys [places]: the key at each place. There must be enough free places for all keys.
    """
    for i in range(wanted.shape[0]):
        at = home(index_keys, index_slots, wanted[i])
        if index_slots[at] < 0:
            index_keys[at] = wanted[i]
            keys[count] = wanted[i]
            store(index_slots, at, np.int32(count))
            count += 1
        out[i] = index_slots[at]
    return count


@kernel
def place_marked(index_keys, index_slots, keys, marks, before, count, wanted, wanted_marks, out):
    """`place` for pairs of a key and a mark; a key may have several places, in a linked list.

    The index maps a key to its last place, and before [places] maps a place to the one before it, −1 at the first.
    marks [places]: the mark at each place.
    """
    for i in range(wanted.shape[0]):
        at = home(index_keys, index_slots, wanted[i])
        p = np.int64(index_slots[at])
        while p >= 0 and marks[p] != wanted_marks[i]:
            p = before[p]
        if p < 0:
            p = count
            count += 1
            before[p] = index_slots[at]
            keys[p] = wanted[i]
            marks[p] = wanted_marks[i]
            index_keys[at] = wanted[i]
            index_slots[at] = p
        out[i] = p
    return count


@merged
def _fresh(slot, through, shard, known, need, own):
    """Whether a row is held and valid through `need`, by itself or (unless `own`) by its shard's last report."""
    if slot < 0:
        return False
    # Acquire-load: `install` stores it with release after the row, which exact runs read without a lock.
    at = load(through, slot)
    return at >= 0 and (at >= need or (not own and known[shard[slot]] >= need))


@kernel
def read(slots, through, shard, known, need, own, values, out, witness, seen, locks, used, clock, ages):
    """Copy rows to out [n, width], and their witness to seen [n, W] unless that is empty.

    Returns False, with nothing written, if a row is not held or not valid through `need`.

    known [shards] int64: the last clock that each shard reported. used [slots]: when each row was last used, unless
    empty. ages [BINS]: histogram of clock − the clock that a row is valid through.
    """
    for i in range(slots.shape[0]):
        if not _fresh(slots[i], through, shard, known, need, own):
            return False
    width, columns, mask = values.shape[1], seen.shape[1], locks.shape[0] - 1
    # A single number is read atomically without a lock.
    locked = mask >= 0 and (width > 1 or columns > 0)
    age, run = 0, 0  # run length of rows of one age: counting each row takes a third of the time
    for i in range(slots.shape[0]):
        s = slots[i]
        c = through[s]
        if not own:
            c = max(c, known[shard[s]])
        c = min(max(clock - c, 0), BINS - 1)
        if c != age:
            ages[age] += run
            age, run = c, 0
        run += 1
        if used.shape[0] > 0:
            used[s] = clock
        if locked:
            hold(locks, s & mask)
        for k in range(width):
            out[i, k] = values[s, k]
        for k in range(columns):
            seen[i, k] = witness[s, k]
        if locked:
            store(locks, s & mask, 0)
    ages[age] += run
    return True


@kernel
def unmet(slots, through, shard, known, need, own, out):
    """out[: returned] = the i for which the row at slots[i] is not held or not valid through `need`."""
    count = 0
    for i in range(slots.shape[0]):
        if not _fresh(slots[i], through, shard, known, need, own):
            out[count] = i
            count += 1
    return count


@kernel
def change(places, deltas, worker, into, counts, changed, slots, own, values, through, witness, locks):
    """Add deltas [n, width] to a slip at `places`, and if `own` to the cached rows that are held; in their order.

    worker: whose column of the witness grows by one for each row (where W > 0).
    """
    width, mask, counted = into.shape[1], locks.shape[0] - 1, counts.shape[1] > 0
    line = 64 // into.itemsize
    first = min(width, _LINES * line)
    for i in range(places.shape[0]):
        p = places[i]
        s = slots[i]
        if i + _AHEAD < places.shape[0]:  # prefetch both rows
            for k in range(0, first, line):
                ahead(into, places[i + _AHEAD] * width + k)
            if own:
                for k in range(0, first, line):
                    ahead(values, slots[i + _AHEAD] * width + k)
        if mask >= 0:
            hold(locks, s & mask)
        for k in range(width):
            into[p, k] += deltas[i, k]
        changed[p] = 1
        if counted:
            counts[p, worker] += 1
        if own and s >= 0 and through[s] >= 0:
            for k in range(width):
                values[s, k] += deltas[i, k]
            if counted:
                witness[s, worker] += 1
        if mask >= 0:
            store(locks, s & mask, 0)


@kernel
def add_found(index_keys, index_slots, rows, counts, wanted, out, seen):
    """out[i] += rows[place of wanted[i]] where it has one; seen [n, W] likewise from counts, unless empty."""
    width, columns = out.shape[1], seen.shape[1]
    for i in range(wanted.shape[0]):
        p = find(index_keys, index_slots, wanted[i])
        if p >= 0:
            for k in range(width):
                out[i, k] += rows[p, k]
            for k in range(columns):
                seen[i, k] += counts[p, k]


@kernel
def add_to_held(index_keys, index_slots, rows, counts, wanted, slots, through, values, witness):
    """values[slots[i]] += rows[place of wanted[i]] where it has one and the row is held; witness likewise."""
    width, columns = values.shape[1], witness.shape[1]
    for i in range(wanted.shape[0]):
        s = slots[i]
        p = find(index_keys, index_slots, wanted[i])
        if p >= 0 and s >= 0 and through[s] >= 0:
            for k in range(width):
                values[s, k] += rows[p, k]
            for k in range(columns):
                witness[s, k] += counts[p, k]


@kernel
def install(
    index_keys,
    index_slots,
    keys,
    slots,
    fresh,
    seen,
    now,
    reply,
    values,
    through,
    witness,
    locks,
    slips,
    log_keys,
    log_slots,
    before,
    numbers,
    logged,
    counted,
    number,
):
    """Put fresh [n, width] rows that are valid through `now` into the cache; return how many were not held before.

    slots [n] are those of the keys; unless the index is empty they are searched for and written here.

    Unless the index of the log is empty, the log entries of a row's key with a number above `number` are added to it
    (see `pending_changes.log`): changes that were sent and are not in the row.

    A row without a slot is skipped, and so is a row that is neither held nor requested (`reply`). The changes of the
    shared slips are added too: slips [k, 3] int64 are addresses of their `places` (as long as through), deltas (the
    shape of values) and witness (that of witness). They are read while the row's lock is held, so that no concurrent
    change is lost.
    """
    width, columns, mask = values.shape[1], seen.shape[1], locks.shape[0] - 1
    search, flying = index_keys.shape[0] > 0, log_keys.shape[0] > 0
    arrived = 0
    for i in range(slots.shape[0]):
        if search:
            slots[i] = find(index_keys, index_slots, keys[i])
        s = slots[i]
        if s < 0 or (through[s] < 0 and not reply):
            continue
        if mask >= 0:
            hold(locks, s & mask)
        for k in range(width):
            values[s, k] = fresh[i, k]
        for k in range(columns):
            witness[s, k] = seen[i, k]
        if flying:
            entry = np.int64(find(log_keys, log_slots, keys[i]))
            while entry >= 0 and numbers[entry] > number:
                for k in range(width):
                    values[s, k] += logged[entry, k]
                for k in range(columns):
                    witness[s, k] += counted[entry, k]
                entry = before[entry]
        for j in range(slips.shape[0]):
            p = _elsewhere(through, slips[j, 0])[s]
            if p >= 0:
                deltas = _elsewhere(values, slips[j, 1])
                for k in range(width):
                    values[s, k] += deltas[p, k]
                counts = _elsewhere(witness, slips[j, 2])
                for k in range(columns):
                    witness[s, k] += counts[p, k]
        if through[s] < 0:
            arrived += 1
        store(through, s, max(through[s], now))
        if mask >= 0:
            store(locks, s & mask, 0)
    return arrived
