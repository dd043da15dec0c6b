"""Thirty models, each at several shares of the memory that eager takes: does the budget hold, are results eager's?

    python -m bench memory_zoo                                  every model at 100, 50, 35 and 15 %
    python -m bench memory_zoo --models vit_l,llama --peers all
    python -m bench memory_zoo --device cpu --size tiny         the same on a CPU, where bytes are planned, not measured
    python -m bench memory_zoo --page a.jsonl b.jsonl           the table and the picture from what runs wrote

Every model runs in a process of its own, which appends a JSON line to --out after every measurement; a run that is
killed keeps what it has. Budgets are shares of the bytes that eager *reserves* from the device; "reserved" is what
`torch.cuda.max_memory_reserved` reports over all steps, recording included. Ours begins with the parameters on the
host, eager and peers with everything on the device. Steps are seeded alike; losses, and parameters and buffers after
the last step, are compared with eager's, and eager's with those of a second run of eager, since not all of its kernels
give the same bits twice. Seconds are the median of `--steps` steps after three; TF32 is off.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import report

SPACE = 90  # GiB of the device, and of the host, that models share if several are measured at a time
DEFAULT = Path("runs") / "memory_zoo.jsonl"


def parser() -> argparse.ArgumentParser:
    """The options of this measurement."""
    found = argparse.ArgumentParser(prog="python -m bench memory_zoo", description=(__doc__ or "").splitlines()[0])
    found.add_argument("--models", default="all", help="names, separated by commas; all, seen or unseen")
    found.add_argument("--shares", default="1.0,0.5,0.35,0.15", help='budgets as shares of eager\'s bytes; "" for none')
    found.add_argument("--peers", default="none", help="names, separated by commas; all or none")
    found.add_argument("--steps", type=int, default=5, help="steps that are timed, after three that are not")
    found.add_argument("--time-limit", type=float, default=90.0, help="seconds for a model, all its methods together")
    found.add_argument("--seconds", type=float, default=float("inf"), help="seconds for the whole run")
    found.add_argument("--compile", action="store_true", help="also ours with compile=True")
    found.add_argument("--cap", action="store_true", help="ours fails where the allocator would exceed the budget")
    found.add_argument("--chunks", choices=("auto", "none"), default="auto", help="chunks= of ours")
    found.add_argument("--jobs", type=int, default=1, help="models at a time: they plan together and measure in turns")
    found.add_argument("--size", choices=("full", "tiny"), default="full")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--out", type=Path, default=DEFAULT, help="a file of JSON lines, which is appended to")
    found.add_argument("--page", nargs="+", type=Path, metavar="FILE", help="write the page from these files instead")
    found.add_argument("--note", default="", help="what a reader of the page must know")
    found.add_argument("--here", action="store_true", help="measure in this process, not in one for each model")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or write the page."""
    wanted = parser().parse_args([] if arguments is None else arguments)
    if wanted.page:
        from .memory_zoo_page import publish

        rows = [json.loads(line) for path in wanted.page for line in path.read_text().splitlines()]
        publish(rows, report.RESULTS, wanted.note)
        return
    import torch

    if wanted.device == "cuda" and not torch.cuda.is_available():
        print("memory_zoo: no CUDA device here; nothing measured (--device cpu --size tiny tries the script)")
        return
    try:
        models, options = chosen(wanted)
    except ValueError as error:
        raise SystemExit(f"memory_zoo: {error}") from None
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if wanted.here:
        from .memory_zoo_one import measure

        measure(models, options, wanted.out)
    else:
        apart(models, wanted)
    print(f"memory_zoo: {len(models)} models in {time.monotonic() - began:.0f} s; see {wanted.out}", flush=True)


def chosen(wanted: argparse.Namespace) -> tuple[tuple[str, ...], Any]:
    """Names of models, and what is measured of each."""
    from .memory_zoo_options import PEERS, Options, names_of, shares_of
    from .zoo import ZOO

    groups = {"seen": True, "unseen": False}
    if wanted.models in groups:
        models = tuple(name for name, entry in ZOO.items() if entry.seen is groups[wanted.models])
    else:
        models = names_of(wanted.models, list(ZOO), "--models")
    options = Options(
        device=wanted.device,
        size=wanted.size,
        shares=shares_of(wanted.shares),
        peers=names_of(wanted.peers, list(PEERS), "--peers"),
        timed=wanted.steps,
        compiles=wanted.compile,
        cap=wanted.cap,
        chunks=None if wanted.chunks == "none" else wanted.chunks,
        seconds=wanted.time_limit,
        sharing=wanted.jobs > 1,
    )
    return models, options


def apart(models: Sequence[str], wanted: argparse.Namespace) -> None:
    """A process for each model, `--jobs` of them at a time."""
    from .memory_side_by_side import Job, run
    from .zoo import ZOO

    given = [f"--{name.replace('_', '-')}={value}" for name, value in vars(wanted).items() if _handed_on(name, value)]
    given += ["--here", *(f"--{name}" for name in ("compile", "cap") if getattr(wanted, name))]
    given += [f"--out={wanted.out.absolute()}"]
    each = max(1, SPACE // wanted.jobs)
    jobs = {
        # One that takes much of the device leaves less of it to others. A process that hangs is ended a little later
        # than it would have ended itself.
        name: Job(
            "memory_zoo",
            name,
            max(each, ZOO[name].gib) if wanted.jobs > 1 else SPACE,
            options=(*given, f"--models={name}"),
            limit=wanted.time_limit + 30,
        )
        for name in models
    }
    logs = wanted.out.parent / f"{wanted.out.stem}-logs"
    with tempfile.TemporaryDirectory(prefix="turns-") as turns:
        run(jobs, logs, Path(turns), wanted.seconds, SPACE)
    for name in models:
        ended = (logs / name / "log").read_text(errors="replace").splitlines()
        print("\n".join(line for line in ended if line.startswith(f"{name} ") or "ended" in line), flush=True)


def _handed_on(name: str, value: Any) -> bool:
    """Whether an option goes to the process of a model as it is."""
    return name not in ("models", "out", "page", "note", "here", "compile", "cap", "seconds") and value is not None
