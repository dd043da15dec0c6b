"""Read and write named arrays in one file in the safetensors format, as a stream.

The format is eight bytes with the length of a JSON header, the header (name, dtype, shape and offset of every array),
then the arrays' bytes one after the other. Any safetensors reader opens the file. This module streams it because a
checkpoint is taken while the arrays fill memory: only arrays that are not contiguous are copied, one at a time. Every
byte passes through the caller's function exactly once, so that a digest needs no second pass over the disk.

    with open("factors.safetensors", "wb") as file:
        write(file.write, {"W": np.zeros((3, 2), "f4"), "seen": np.zeros(5, bool)})

Fixed-width types that safetensors does not have (bytes, text, dates) are stored as raw bytes with one more axis, and
the header records their dtype.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]

_CODES = {
    "?": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "u2": "U16",
    "i2": "I16",
    "f2": "F16",
    "u4": "U32",
    "i4": "I32",
    "f4": "F32",
    "u8": "U64",
    "i8": "I64",
    "f8": "F64",
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
_BY_DTYPE = {dtype: code for code, dtype in _DTYPES.items()}
_RAW_KINDS = "SUMm"  # bytes, text, datetime, timedelta: fixed width, no pointers inside
_CHUNK = 8 << 20
_LARGE = 64 << 20  # larger arrays are mapped when they are read
_NOTES = "__metadata__"  # the one key safetensors reserves; text to text


class DamagedFile(Exception):
    """The file does not match its header; for callers of this module only."""


def write(
    sink: Callable[[memoryview], object], arrays: Mapping[str, NDArray[Any]], about: Mapping[str, str] | None = None
) -> None:
    """Send header and arrays to `sink`, chunk by chunk. The same arrays in any order give the same bytes.

    Wide types come first, so that every array starts at a multiple of its item size and the file can be mapped into
    memory.

    Parameters
    ----------
    sink : function(memoryview)
        Called with every byte.
    arrays : mapping of str to array
        The arrays.
    about : mapping of str to str or None, default None
        Texts for the metadata of the file, under names that no array has.
    """
    ordered = sorted(arrays, key=lambda name: (-_plain(arrays[name].dtype)[1].itemsize, name))
    header: dict[str, object] = {}
    notes: dict[str, str] = dict(about or {})
    place = 0
    for name in ordered:
        if name == _NOTES:
            raise ValueError(f"an array cannot be named {_NOTES!r}; rename it")
        array = arrays[name]
        code, dtype = _plain(array.dtype)
        shape = list(array.shape)
        if array.dtype.kind in _RAW_KINDS:
            notes[name] = array.dtype.newbyteorder("<").str
            shape.append(array.dtype.itemsize)
        end = place + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [place, end]}
        place = end
    if notes:
        header[_NOTES] = dict(sorted(notes.items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    sink(memoryview(len(text).to_bytes(8, "little") + text))
    for name in ordered:
        little = arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False)
        raw = _bytes(np.ascontiguousarray(little))
        for start in range(0, len(raw), _CHUNK):
            sink(raw[start : start + _CHUNK])
            let_go(arrays[name], start, start + _CHUNK)


def copy_in(array: NDArray[Any], values: NDArray[Any]) -> None:
    """array[...] = values, chunk by chunk, so that two mapped files are never both in memory."""
    if array.shape != values.shape or not (array.flags.c_contiguous and values.flags.c_contiguous):
        array[...] = values
        return
    into, out_of = array.reshape(-1), values.reshape(-1)
    for start in range(0, into.size, _CHUNK // 8):
        stop = start + _CHUNK // 8
        into[start:stop] = out_of[start:stop]
        let_go(array, start * array.itemsize, stop * array.itemsize)
        let_go(values, start * values.itemsize, stop * values.itemsize)


def let_go(array: NDArray[Any], first: int, last: int) -> None:
    """Release bytes first to last of an array that is mapped from a file: they need not stay in memory."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or mapped.mode == "c" or not array.flags.c_contiguous:
        return
    whole: Any = mapped.base
    begin = array.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
    start = (begin + first) // mmap.PAGESIZE * mmap.PAGESIZE
    whole.madvise(mmap.MADV_DONTNEED, start, min(begin + last, len(whole)) - start)


def read(file: BinaryIO, size: int, seen: Callable[[memoryview], object], *, mapped: bool = False) -> Arrays:
    """Read the arrays of an open file of `size` bytes.

    Parameters
    ----------
    file, size : file and int
        The header is checked against `size` first, so that a damaged one cannot cause a large allocation.
    seen : function(memoryview)
        Called with every byte that is read.
    mapped : bool
        Large arrays are read-only and stay in the file, which must not change while they are used.
    """
    prefix = _take(file, 8, seen)
    length = int.from_bytes(prefix, "little")
    if length > size - 8:
        raise DamagedFile(f"its header claims {length} bytes, the file has {size}")
    places, notes = _header(bytes(_take(file, length, seen)), size - 8 - length)
    arrays: Arrays = {}
    for name, (dtype, shape) in places.items():
        true, place = notes.get(name), file.tell()
        length = math.prod(shape) * dtype.itemsize
        if mapped and length >= _LARGE and true is None:
            # `seen` gets every byte; the array itself is mapped, and its pages are read when they are used.
            passing = memoryview(bytearray(_CHUNK))
            for start in range(0, length, _CHUNK):
                _fill(file, passing[: min(_CHUNK, length - start)], seen)
            arrays[name] = np.memmap(file, dtype, "r", place, shape)
            file.seek(place + length)
            continue
        array = np.empty(shape, dtype)
        raw = _bytes(array)
        for start in range(0, len(raw), _CHUNK):
            piece = raw[start : start + _CHUNK]
            _fill(file, piece, seen)
        arrays[name] = array if true is None else _retype(array, true)
    return arrays


def _header(text: bytes, body: int) -> tuple[dict[str, tuple[np.dtype[Any], tuple[int, ...]]], dict[str, str]]:
    """Names with dtype and shape in file order, and the notes; the arrays must fill `body` bytes without a gap."""
    try:
        header = json.loads(text)
        notes = header.pop(_NOTES, {})
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        places = {}
        place = 0
        for name, entry in entries:
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            end = place + math.prod(shape) * dtype.itemsize
            if min(shape, default=0) < 0 or entry["data_offsets"] != [place, end]:
                raise DamagedFile(f"its header gives array {name!r} an impossible place")
            places[name] = (dtype, shape)
            place = end
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFile(f"its header cannot be read ({error})") from error
    if place != body:
        raise DamagedFile(f"its header describes {place} bytes of arrays, the file has {body}")
    return places, notes


def _bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, without a copy."""
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _take(file: BinaryIO, count: int, seen: Callable[[memoryview], object]) -> bytearray:
    taken = bytearray(count)
    _fill(file, memoryview(taken), seen)
    return taken


def _fill(file: BinaryIO, piece: memoryview, seen: Callable[[memoryview], object]) -> None:
    done = 0
    while done < len(piece):
        got = file.readinto(piece[done:])  # type: ignore[attr-defined]
        if not got:
            raise DamagedFile("it ends too early")
        done += got
    seen(piece)


def _plain(dtype: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
    """The safetensors code under which a dtype is stored, and the dtype of that code."""
    if dtype.kind in _RAW_KINDS and dtype.itemsize:
        return "U8", _DTYPES["U8"]
    code = _BY_DTYPE.get(dtype.newbyteorder("<"))
    if code is None:
        raise TypeError(
            f"arrays of dtype {dtype} cannot be kept; convert to numbers, booleans or fixed-width text first"
        )
    return code, _DTYPES[code]


def _retype(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Raw bytes of shape (..., w) as an array of shape (...) of the w-byte type called `name`."""
    try:
        dtype = np.dtype(name)
        if dtype.kind not in _RAW_KINDS or dtype.itemsize != array.shape[-1]:
            raise TypeError(f"{name} does not fit")
    except (TypeError, ValueError, IndexError) as error:
        raise DamagedFile(f"its header names a type that cannot be ({error})") from error
    return (
        np.frombuffer(array.data, dtype).reshape(array.shape[:-1]) if array.size else np.empty(array.shape[:-1], dtype)
    )
