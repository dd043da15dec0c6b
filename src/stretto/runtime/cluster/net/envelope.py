"""Encode frames as ZeroMQ message parts and decode them. Nothing is pickled; contents are checked by `frame_checks`.

    part 0     24 bytes      "st", protocol version, job, host, length of the header, checksum
               header        msgspec: channel, incarnation, source, target, and the numbers of every frame
               small arrays  one after another, each at a multiple of 8 bytes
    part 1 …   large arrays  (16 KiB and more), one each, as stored in memory; very large ones in chunks

The numbers include the lengths of arrays, and the arrays must account for exactly the bytes that arrived. So nothing is
allocated because of a claimed length. The checksum covers part 0 and is seeded with the job's id: a frame of another
job is rejected. Large arrays have no checksum; CURVE protects them, or TCP where encryption is off.

    post = Envelopes(job="7f3a…", host=0)
    parts = post.encode(TABLES, source, target, frames, check)
    letter = post.open(parts)                      # sender, kind, incarnation; raises Malformed
    frames = letter.frames(check)                  # raises Malformed
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from stretto.comm.link import BARE, Frame
from stretto.comm.messages import Message
from stretto.errors import RunError
from stretto.text import show_gib

from .frame_checks import Checker, Malformed, NoCheck
from .serialization import LARGEST, Claims, pack, prove, unpack

PROTOCOL = 1
BIG = 16 << 10  # bytes from which an array has its own part
CHUNK = 64 << 20  # bytes of a part at most
MAX_PART = CHUNK + (1 << 20)  # largest part that a socket accepts: a chunk and a header
MAX_FRAMES = 512  # in one envelope at most; senders stay below it
_MAGIC = b"st"
_PREFIX = struct.Struct("<2sHIIIII")  # magic, protocol, job, host, header length, checksum, parts
_SPACE = b"\0" * 8
_NO_CHECK = NoCheck()
_ITEMSIZE = {"f2": 2, "f4": 4, "f8": 8, "i4": 4, "i8": 8, "u1": 1, "u2": 2, "u4": 4}
_DTYPES = {name: np.dtype(name) for name in _ITEMSIZE}

Buffer = bytes | memoryview | NDArray[Any]
_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**63 - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Head(msgspec.Struct, array_like=True, gc=False):
    channel: _Count
    incarnation: _Count
    source: _Count
    target: _Count
    frames: list[tuple[_Number, ...]]  # sequence, acknowledges, asks; then the numbers of its message, if there is one


def sendable_bytes(frames: Sequence[Frame], source: int, target: int) -> int:
    """Bytes of frames from one node to another.

    Raises
    ------
    RunError
        If one of them has more than a host would accept.
    """
    sizes = [frame.nbytes for frame in frames]
    if max(sizes, default=0) > LARGEST:
        raise RunError(
            f"a message of {show_gib(max(sizes))} from node {source} to node {target}; at most "
            f"{show_gib(LARGEST, 0)} travel at once: tick more often, or use more nodes"
        )
    return sum(sizes)


class Envelopes:
    """Encoder and decoder of one host.

    Parameters
    ----------
    job : str
        An unguessable id, the same on all hosts.
    host : int
        The number of the sending host.
    """

    def __init__(self, job: str, host: int) -> None:
        self.host = host
        self._job = zlib.crc32(job.encode())
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(_Head)

    def encode(
        self, channel: int, source: int, target: int, frames: Sequence[Frame], check: Checker = _NO_CHECK
    ) -> list[Buffer]:
        """Encode frames of one incarnation as the parts of one message. Without frames it is a heartbeat."""
        numbers: list[tuple[int, ...]] = []
        small: list[bytes] = []
        large: list[Buffer] = []
        for frame in frames:
            first = (frame.sequence, frame.acknowledges, int(frame.asks))
            if frame.message is None:
                numbers.append(first)
                continue
            given, arrays = pack(frame.message, check)
            numbers.append(first + given)
            for array in arrays:
                size = array.nbytes
                if size < BIG:
                    small.append(array.tobytes())
                    if size & 7:
                        small.append(_SPACE[size & 7 :])
                elif size <= CHUNK:
                    large.append(array)
                else:
                    raw = array.reshape(-1).view(np.uint8)
                    large += [raw[at : at + CHUNK] for at in range(0, size, CHUNK)]
        incarnation = frames[0].incarnation if frames else 0
        header = self._encoder.encode((channel, incarnation, source, target, numbers))
        length = len(header)
        body = b"".join([header, _SPACE[length & 7 :] if length & 7 else b"", *small])
        checksum = zlib.crc32(body, self._job)
        prefix = _PREFIX.pack(_MAGIC, PROTOCOL, self._job, self.host, length, checksum, len(large))
        return [prefix + body, *large]

    def open(self, parts: Sequence[Any]) -> ReceivedMessage:
        """Validate a message and decode its header. The result holds views of `parts`, so these must not change."""
        first = memoryview(parts[0])
        if len(first) < _PREFIX.size:
            raise Malformed("too short")
        magic, protocol, job, host, length, checksum, large = _PREFIX.unpack_from(first)
        if magic != _MAGIC:
            raise Malformed("not ours")
        if protocol != PROTOCOL:
            raise Malformed("another protocol version")
        if job != self._job:
            raise Malformed("another job")
        body = first[_PREFIX.size :]
        if zlib.crc32(body, self._job) != checksum:
            raise Malformed("wrong checksum")
        start = length + 7 & ~7
        if start > len(body) or large != len(parts) - 1:
            raise Malformed("cut short")
        try:
            head = self._decoder.decode(body[:length])
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise Malformed("no header") from None
        if len(head.frames) > MAX_FRAMES:
            raise Malformed("too many frames")
        return ReceivedMessage(host, head, body[start:], parts)


class ReceivedMessage:
    """A message with a decoded header. `host` is the claimed sender."""

    __slots__ = ("_head", "_parts", "_rest", "channel", "host", "incarnation", "source", "target")

    def __init__(self, host: int, head: _Head, rest: memoryview, parts: Sequence[Any]) -> None:
        self.host, self._head, self._rest, self._parts = host, head, rest, parts
        self.channel, self.incarnation = head.channel, head.incarnation
        self.source, self.target = head.source, head.target

    def __len__(self) -> int:
        return len(self._head.frames)

    def frames(self, check: Checker = _NO_CHECK) -> list[Frame]:
        """Decode and validate all frames; raises Malformed if one is wrong."""
        reader = _Reader(self._rest, self._parts)
        incarnation, source, target = self.incarnation, self.source, self.target
        found = []
        take, rows = reader.take, Claims()
        for numbers in self._head.frames:
            if len(numbers) < 3 or numbers[0] < 0 or numbers[1] < 0 or not 0 <= numbers[2] <= 1:
                raise Malformed("no frame")
            sequence, acknowledges, asks = numbers[:3]
            if (sequence == 0) != (len(numbers) == 3):
                raise Malformed("a message without a number")
            message: Message | None = None
            nbytes = BARE
            if sequence:
                # Links carry anything that has nbytes; their annotations name the messages of tables.
                message = cast(Message, unpack(numbers[3:], take, source, target, check, rows))
                nbytes = message.nbytes
            found.append(Frame(incarnation, source, sequence, acknowledges, message, asks == 1, nbytes))
        reader.end()
        prove(rows, check)
        return found


class _Reader:
    """Reads arrays one after another, as views of the received parts."""

    def __init__(self, rest: memoryview, parts: Sequence[Any]) -> None:
        # One copy of all small arrays makes them aligned and writable, as compiled code requires.
        self._small = bytearray(rest)
        self._at = 0
        self._parts = parts
        self._part = 1

    def take(self, dtype: str, count: int) -> NDArray[Any]:
        size = count * _ITEMSIZE[dtype]
        if not 0 <= size <= LARGEST:
            raise Malformed("sizes that cannot be")
        if size >= BIG:
            return self._large(dtype, size)
        at = self._at
        self._at = at + (size + 7 & ~7)
        if self._at > len(self._small):
            raise Malformed("cut short")
        return np.frombuffer(self._small, _DTYPES[dtype], count, at)

    def _large(self, dtype: str, size: int) -> NDArray[Any]:
        pieces = []
        for at in range(0, size, CHUNK):
            if self._part >= len(self._parts):
                raise Malformed("cut short")
            chunk = np.frombuffer(self._parts[self._part], np.uint8)
            if len(chunk) != min(CHUNK, size - at):
                raise Malformed("an array of another size")
            pieces.append(chunk)
            self._part += 1
        array = (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).view(_DTYPES[dtype])
        return array if array.flags.aligned and array.flags.writeable else array.copy()

    def end(self) -> None:
        if self._at != len(self._small) or self._part != len(self._parts):
            raise Malformed("more than it says")
