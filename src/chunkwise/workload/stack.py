"""How far back a reused block lies: the LRU stack distance, exactly and vectorised.

A cache of C blocks that drops the least recently used one holds a block if
fewer than C different blocks were touched since. For an access at t whose last
touch was at p, that number is the accesses between them minus those that
repeat a block inside the stretch: (t - p - 1) - #{j < t : previous(j) > p}.
"""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def first_touches(ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return for each access whether its id was never touched before."""
    # By hand and not with np.unique: this one peaks at three arrays of this size.
    order = np.argsort(ids)
    ordered = ids[order]
    runs = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ids)])
    del ordered
    first = np.zeros(len(ids), dtype=np.bool_)
    if len(ids):
        first[np.minimum.reduceat(order, runs)] = True
    return first


def previous_touch(ids: npt.NDArray[np.uint64]) -> Ints:
    """Return for each access the position of the same id's last one, or -1."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    same = ordered[1:] == ordered[:-1]
    del ordered
    previous = np.full(len(ids), -1, dtype=np.int64)
    previous[order[1:][same]] = order[:-1][same]
    return previous


def distances(previous: Ints) -> tuple[Ints, Ints]:
    """Return the positions of all reuses, and how many other ids were touched in between."""
    reuses = np.flatnonzero(previous >= 0)
    touched = previous[reuses]
    return reuses, reuses - touched - 1 - larger_before(touched)


def larger_before(values: Ints) -> Ints:
    """Return for each of these different numbers how many before it are larger.

    From the highest bit down: among numbers that agree in all higher bits, one
    with this bit 0 has as many larger ones before it as there are with bit 1.
    """
    found = np.zeros(len(values), dtype=np.int64)
    if len(values) < 2:
        return found
    # Kept grouped by the bits done so far and, in a group, in the original order.
    value, index = values.copy(), np.arange(len(values))
    for bit in range(int(values.max()).bit_length() - 1, -1, -1):
        one = (value >> bit) & 1
        ones_before = np.cumsum(one) - one
        heads = np.flatnonzero(np.diff(value >> (bit + 1), prepend=-1))
        sizes = np.diff(heads, append=len(value))
        ones_before -= np.repeat(ones_before[heads], sizes)
        zero = one == 0
        found[index[zero]] += ones_before[zero]
        head = np.repeat(heads, sizes)
        zeros = np.repeat(np.add.reduceat(zero.astype(np.int64), heads), sizes)
        offset = np.arange(len(value)) - head
        place = head + np.where(zero, offset - ones_before, zeros + ones_before)
        moved, where = np.empty_like(value), np.empty_like(index)
        moved[place], where[place] = value, index
        value, index = moved, where
    return found
