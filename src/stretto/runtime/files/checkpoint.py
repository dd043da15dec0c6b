"""Write, find and verify checkpoints: a checkpoint exists completely or not at all (atomic rename, digests).

    checkpoints/
      checkpoint-000011/
      checkpoint-000012/
        arrays.safetensors     the arrays
        manifest.json          what must be in that file (bytes, sha256, dtypes, shapes), and the caller's meta

`save` writes both files into a hidden folder next to the others, flushes them to disk, and only then renames the
folder. The rename is the moment at which the new checkpoint exists: a crash before it leaves the old ones, a crash
after it leaves the new one as well. Old ones are removed afterwards.

`latest` verifies everything: a checkpoint whose size, digest or manifest is wrong is reported, and the previous one is
used.

    save(folder, {"W": W, "H": H, "finished": finished}, {"step": 12, "epoch": 12, "fingerprint": plan.fingerprint})
    found = latest(folder, fingerprint=plan.fingerprint)
    W, epoch = found.arrays["W"], found.meta["epoch"]
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from stretto.errors import CheckpointError, OtherPlan
from stretto.observe.events import CheckpointRejected, Listener
from stretto.observe.folder_lock import FolderLock
from stretto.runtime.files import array_file, manifest
from stretto.text import show_mib

_ARRAYS, _MANIFEST = "arrays.safetensors", "manifest.json"
_NAME = re.compile(r"checkpoint-(\d{6,})")
_HIDDEN = ".unfinished-"  # being written or removed: never read, deleted by the next save


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint. `meta` is what was saved, with tuples turned into lists."""

    path: Path
    arrays: dict[str, NDArray[Any]]
    meta: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.meta["step"])


class Files:
    """All changes to the disk go through this class, so that a test can make any of them fail."""

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def open(self, path: Path) -> BinaryIO:
        return open(path, "xb", buffering=0)

    def write(self, file: BinaryIO, data: memoryview) -> None:
        done = 0
        while done < len(data):  # the operating system may write less than requested
            done += file.write(data[done:])

    def fsync(self, file: BinaryIO) -> None:
        os.fsync(file.fileno())

    def fsync_folder(self, path: Path) -> None:
        if os.name == "nt":  # Windows neither needs nor allows it
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def rmtree(self, path: Path) -> None:
        shutil.rmtree(path)


_DISK = Files()


@contextlib.contextmanager
def writing(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Lock a checkpoint folder for one run: RunError if another process writes to it."""
    folder = None if folder is None else Path(folder)
    lock, made = None, folder is not None and not folder.exists()
    if folder is not None:
        with contextlib.suppress(OSError):  # a failing disk is reported when something is saved
            folder.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(folder, "the checkpoints of this run")
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()
        if folder is not None and made:
            with contextlib.suppress(OSError):  # not empty: something was saved
                folder.rmdir()


def save(
    folder: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    *,
    keep: int = 2,
    files: Files = _DISK,
) -> Path:
    """Write a checkpoint into `folder` and return its path; the newest `keep` remain.

    Raises CheckpointError when writing fails; existing checkpoints are then unchanged.

    Parameters
    ----------
    folder : path
        Of the checkpoints.
    arrays : mapping of str to array
        What to save.
    meta : mapping
            JSON values (numbers, text, lists, dicts; non-finite floats and NumPy scalars too), with "step", the count
        of saves or epochs so far. The checkpoint is named after it, or after the newest existing one plus one if that
        is larger (a run that was resumed from an earlier step), so that a higher number always means written later.
    keep : int
        Checkpoints that remain.
    files : Files
        Access to the disk.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: at least one checkpoint must be kept")
    if not isinstance(meta.get("step"), (int, np.integer)) or meta["step"] < 0:
        raise ValueError(f"meta['step'] must be a whole number from 0 on, got {meta.get('step')!r}")
    folder = Path(folder)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    packed = manifest.pack(dict(meta))
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            files.fsync_folder(folder.parent)
        _sweep(folder, files)
        there = _numbers(folder)
        number = max(int(meta["step"]), there[-1] + 1 if there else 0)
        path = folder / _name(number)
        hidden = folder / f"{_HIDDEN}{path.name}"
        files.make_folder(hidden)
        _write(hidden, arrays, packed, files)
        files.fsync_folder(hidden)
        files.rename(hidden, path)
        files.fsync_folder(folder)
    except OSError as error:
        _sweep(folder, files)  # free the space on a full disk
        size = sum(array.nbytes for array in arrays.values())
        raise CheckpointError(
            f"could not save a checkpoint of {show_mib(size)} in {folder}: {error.strerror or error}; "
            f"free some disk space or name another folder. The checkpoints that it already has are unchanged"
        ) from error
    _prune(folder, keep, files)
    return path


def latest(
    folder: str | os.PathLike[str],
    fingerprint: str | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    report: Listener | None = None,
) -> Checkpoint:
    """Read and verify the newest usable checkpoint of `folder`.

    Parameters
    ----------
    folder : path
        Of the checkpoints.
    fingerprint : str or None
        A checkpoint of another plan is an error and not skipped: an older one would be no better.
    settings : mapping or None
            The settings that the fingerprint covers, by name; compared with the "settings" of the checkpoint's meta to
        say what differs.
    report : function or None
        Receives a `CheckpointRejected` event for each damaged checkpoint, which is skipped.
    """
    folder = Path(folder)
    try:
        numbers = _numbers(folder)
    except OSError as error:
        raise CheckpointError(
            f"no checkpoints in {folder}: {error.strerror or error}; name the folder a run saved its checkpoints in"
        ) from error
    if not numbers:
        raise CheckpointError(
            f"no checkpoints in {folder}: it holds no {_name(0)[:-6]}… folder; train with checkpoints on first"
        )
    rejected = []
    for number in reversed(numbers):
        path = folder / _name(number)
        try:
            found = load(path)
        except CheckpointError as error:
            rejected.append(str(error))
            if report is not None:
                report(CheckpointRejected(str(path), str(error)))
            continue
        theirs = found.meta.get("fingerprint")
        if fingerprint is not None and theirs != fingerprint:
            found_in, here = dict(found.meta.get("settings") or {}), dict(settings or {})
            differences = differing(found_in, here) if found_in and here else ()
            what = "; ".join(differences) or (
                "the data differ, or a setting that can change a number (seed, width, profile, size or rule of the "
                "model)"
            )
            raise OtherPlan(
                f"{path} was saved under plan {_short(theirs)}, this is plan {_short(fingerprint)}: {what}. Resume "
                "with what it was saved with, or start anew in another folder",
                differences,
            )
        return found
    raise CheckpointError(
        f"none of the {len(numbers)} checkpoints in {folder} is usable: "
        + "; ".join(rejected)
        + ". Restore one from a copy, or "
        "start anew in another folder"
    )


def differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that differ between a checkpoint and a run, in words.

    >>> differing({"seed": 1, "rank": 8}, {"seed": 2, "rank": 8})
    ('seed is 1 in the checkpoint and 2 in this run',)
    """
    words = []
    for name in (*theirs, *(name for name in ours if name not in theirs)):
        then, now = (_value(settings, name) for settings in (theirs, ours))
        if then != now:
            words.append(f"{name} is {then} in the checkpoint and {now} in this run")
    return tuple(words)


def _value(settings: Mapping[str, Any], name: str) -> str:
    if name not in settings:
        return "not set"
    value = settings[name]
    return value if isinstance(value, str) else repr(value)


def any_saved(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a checkpoint, valid or not."""
    try:
        return bool(_numbers(Path(folder)))
    except OSError:
        return False


def load(path: str | os.PathLike[str]) -> Checkpoint:
    """Read and verify one checkpoint folder; CheckpointError says what is wrong with it."""
    path = Path(path)
    try:
        contents = manifest.parse((path / _MANIFEST).read_bytes())
        expected = contents["arrays"]
        digest = hashlib.sha256()
        with open(path / _ARRAYS, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != expected["bytes"]:
                raise CheckpointError(
                    f"{path} is damaged: {_ARRAYS} has {size} bytes, {expected['bytes']} were written"
                )
            arrays = array_file.read(file, size, digest.update, mapped=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error} ({error.filename})") from error
    except array_file.DamagedFile as error:
        raise CheckpointError(f"{path} is damaged: {_ARRAYS}: {error}") from error
    except manifest.BadManifest as error:
        raise CheckpointError(f"{path} cannot be used: {_MANIFEST}: {error}") from error
    if digest.hexdigest() != expected["sha256"]:
        raise CheckpointError(f"{path} is damaged: the bytes of {_ARRAYS} are not those that were written")
    return Checkpoint(path, arrays, manifest.unpack(contents["meta"]))


def size(path: str | os.PathLike[str]) -> int:
    """Bytes of a checkpoint on disk."""
    return sum(entry.stat().st_size for entry in os.scandir(path))


def interval_seconds(save_seconds: float, mean_time_to_failure: float = 86_400.0, nodes: int = 1) -> float:
    """Seconds between saves that minimise the lost time: √(2·T_save·T_fail/N) (Young's rule).

    A longer interval loses more work in a failure, a shorter one spends more time on saving.

    >>> interval_seconds(2.0, mean_time_to_failure=10_000)
    200.0
    """
    if not (save_seconds >= 0 and mean_time_to_failure > 0 and nodes >= 1):
        raise ValueError(
            f"need save_seconds ≥ 0, failure time > 0, nodes ≥ 1; got {save_seconds}, {mean_time_to_failure}, {nodes}"
        )
    return math.sqrt(2.0 * save_seconds * mean_time_to_failure / nodes)


def _write(hidden: Path, arrays: Mapping[str, NDArray[Any]], meta: Any, files: Files) -> None:
    digest, count = hashlib.sha256(), 0
    with files.open(hidden / _ARRAYS) as file:

        def sink(data: memoryview) -> None:
            nonlocal count
            files.write(file, data)
            digest.update(data)
            count += len(data)

        array_file.write(sink, arrays)
        files.fsync(file)
    contents = {
        "arrays": {"file": _ARRAYS, "bytes": count, "sha256": digest.hexdigest()},
        "shapes": {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()},
        "meta": meta,
    }
    with files.open(hidden / _MANIFEST) as file:
        files.write(file, memoryview(manifest.dump(contents)))
        files.fsync(file)


def _name(number: int) -> str:
    return f"checkpoint-{number:06d}"


def _numbers(folder: Path) -> list[int]:
    """The numbers of the existing checkpoints, ascending."""
    found = (_NAME.fullmatch(entry.name) for entry in os.scandir(folder) if entry.is_dir())
    return sorted(int(match[1]) for match in found if match)


def _sweep(folder: Path, files: Files) -> None:
    """Remove unfinished checkpoints of earlier saves; errors are ignored, they only cost disk space."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(_HIDDEN):
                files.rmtree(Path(entry.path))


def _prune(folder: Path, keep: int, files: Files) -> None:
    """Remove all but the newest `keep`. They are hidden first, so that a partly removed one is never read.

    The new checkpoint is complete by now. An old one that cannot be removed only costs disk space and does not stop a
    run.
    """
    for number in _numbers(folder)[:-keep]:
        with contextlib.suppress(OSError):
            hidden = folder / f"{_HIDDEN}{_name(number)}"
            files.rename(folder / _name(number), hidden)
            files.rmtree(hidden)


def _short(fingerprint: object) -> str:
    return str(fingerprint)[:12] if fingerprint else "without a fingerprint"
