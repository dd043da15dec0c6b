"""Costed graphs of the zoo's steps, measured on a GPU and planned anywhere: a laboratory for the planner.

    python -m bench memory_graphs --models seen --out graphs            on a GPU: a file for each model
    python -m bench memory_graphs --plan graphs/*.pickle                on any machine: a table of plans

A file holds the planner's graph of a step with the seconds, workspaces and orders of allocation that were measured, and
what eager takes. Planning needs neither torch nor a GPU, so a change of the planner is judged in minutes. Several
processes may write graphs side by side if STRETTO_TURNS names a folder (`memory_turns`): they measure in turns.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SLACK = 152 << 20  # bytes that libraries and the allocator take beside a plan on an H200, about


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(prog="python -m bench memory_graphs", description=(__doc__ or "").splitlines()[0])
    found.add_argument("--models", default="seen", help="names, separated by commas; all, seen or unseen")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--size", choices=("full", "tiny"), default="full")
    found.add_argument("--out", type=Path, default=Path("runs") / "graphs", help="a folder")
    found.add_argument("--plan", nargs="+", type=Path, metavar="FILE", help="plan the steps in these files instead")
    found.add_argument("--shares", default="1.0,0.5,0.35,0.15", help="budgets as shares of eager's reserved bytes")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Write graphs, or plan those that were written."""
    wanted = parser().parse_args([] if arguments is None else arguments)
    shares = tuple(float(each) for each in wanted.shares.split(","))
    if wanted.plan:
        for path in wanted.plan:
            planned(path, shares)
        return
    from .memory_zoo_options import names_of
    from .zoo import ZOO

    groups = {"seen": True, "unseen": False}
    if wanted.models in groups:
        names: Sequence[str] = [name for name, entry in ZOO.items() if entry.seen is groups[wanted.models]]
    else:
        names = names_of(wanted.models, list(ZOO), "--models")
    wanted.out.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            written(name, wanted, shares)
        except Exception as error:  # the next model may do
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:300]}", flush=True)


def written(name: str, wanted: argparse.Namespace, shares: Sequence[float]) -> None:
    """Measure eager and the operations of one model, and write its graphs."""
    import torch

    from . import zoo
    from .memory_turns import turn
    from .memory_zoo_observe import plain_peak, to_host

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    gpu = wanted.device == "cuda"
    if gpu:
        with turn(still=False):
            eager = plain_step(name, wanted.device, wanted.size)
    else:
        eager = {"reserved": plain_peak(zoo.make(name, "meta", wanted.size))}
    job = zoo.make(name, wanted.device if gpu else "meta", wanted.size)
    if gpu:
        to_host(job)
    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    variants, clocks = _variants(job, device, eager, shares)
    found = {"model": name, "eager": eager, "variants": variants, "clocks": clocks}
    (wanted.out / f"{name}.pickle").write_bytes(pickle.dumps(found))
    nodes = {f"{label} {share:.0%}": len(one["graph"].nodes) for (label, share), one in variants.items()}
    print(f"{name}: {nodes} nodes, eager {eager}, clocks {clocks}", flush=True)
    del job
    if gpu:
        torch.cuda.empty_cache()


def _variants(
    job: Any, device: Any, eager: dict[str, float], shares: Sequence[float]
) -> tuple[dict[Any, Any], dict[str, float]]:
    """Costed graphs by how operations are cut and by budget, since both decide how parameters are updated; and how long
    the parts of planning took."""
    from stretto.memory import planning
    from stretto.memory.capture.trace_step import trace
    from stretto.memory.chunk.chunks import cut
    from stretto.memory.measure.costs import REPLAYED, costed
    from stretto.memory.measure.update_memory import UpdateMemory
    from stretto.memory.operations.fuse import NONE
    from stretto.memory.options import StepSource
    from stretto.memory.run.cuda_device import CudaDevice

    from .memory_turns import metered

    began = time.perf_counter()
    plain = trace(job.step, job.modules, job.optimizers, job.batch, device)
    clocks = {"traced": time.perf_counter() - began, "lifted": 0.0, "measured": 0.0}
    source = StepSource(job.step, job.modules, job.optimizers, job.batch, device)
    memory = UpdateMemory(job.optimizers, CudaDevice(device)) if device.type == "cuda" else None

    def updating(update: Any, sizes: list[int]) -> int:
        return memory.bytes(plain.watched.parameters, update, sizes) if memory is not None else 2 * sum(sizes)

    variants: dict[Any, Any] = {}
    for label, tight in (("whole", 0), ("losses", 1), ("all", 2)):
        for share in shares:
            budget, began = int(share * eager["reserved"]), time.perf_counter()
            traced, notes = cut(plain, "auto" if tight else None, budget, tight=tight)
            if tight and (not notes or any(notes == one["notes"] for (_, at), one in variants.items() if at == share)):
                continue
            captured = planning.lift_traced(
                traced, notes, NONE, job.optimizers, budget, batch_held=source.batch_on_device, record=True
            )
            clocks["lifted"] += time.perf_counter() - began
            began = time.perf_counter()
            with metered():
                graph = costed(captured.lifted, device, call=REPLAYED, updating=updating)
            clocks["measured"] += time.perf_counter() - began
            variants[label, share] = {"graph": graph, "other_bytes": dict(captured.lifted.other_bytes), "notes": notes}
    return variants, clocks


def plain_step(name: str, device: str, size: str) -> dict[str, float]:
    """Seconds and bytes of the plain step."""
    import statistics

    import torch

    from . import zoo

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    job = zoo.make(name, device, size)
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        job.step(job.batch)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    found = {
        "seconds": statistics.median(seconds[3:]),
        "reserved": torch.cuda.max_memory_reserved(),
        "allocated": torch.cuda.max_memory_allocated(),
    }
    del job
    torch.cuda.empty_cache()
    return found


def planned(path: Path, shares: Sequence[float]) -> None:
    """Plan one step for several budgets; a line for each."""
    from stretto.memory.addresses.fragmentation import footprint
    from stretto.memory.addresses.lifetimes import find_lifetimes
    from stretto.memory.addresses.place_plan import make_placed
    from stretto.memory.addresses.placement import peak
    from stretto.memory.addresses.steering import unsteered_bytes
    from stretto.memory.planner.planner import Infeasible, PlannerSettings
    from stretto.memory.planner.program import HostLink
    from stretto.memory.planning import without_update_workspaces

    found = pickle.loads(path.read_bytes())
    whole = found["eager"]["reserved"]
    link = HostLink(53e9, 53e9)
    for (label, share), one in found["variants"].items():
        if share not in shares:
            continue
        graph, workspace = without_update_workspaces(one["graph"])
        held = sum(one["other_bytes"].values()) + workspace + SLACK + int(share * whole) // 64
        computing = sum(node.seconds for node in graph.nodes)
        eager = found["eager"].get("seconds", computing)
        began = time.process_time()
        head = f"{found['model']:20} {label:6} {share:5.0%}"
        try:
            plan = make_placed(graph, PlannerSettings(max(1, int(share * whole) - held), link=link))
        except Infeasible as error:
            print(f"{head} none below {(error.smallest + held) / whole:.0%}: {error.node}", flush=True)
            continue
        costs = plan.costs
        over, least = held + footprint(plan.program) - share * whole, max(1, peak(find_lifetimes(plan.program)))
        print(
            f"{head} {costs.seconds / eager:5.2f}× eager, {costs.seconds / computing:5.2f}× of "
            f"{computing * 1e3:.1f} ms, waits {costs.waited / costs.seconds:4.0%}, "
            f"recomputes {costs.repeated / costs.seconds:4.0%}, copies "
            f"{costs.bytes_in / 2**30:.1f}, {costs.bytes_out / 2**30:.1f} GiB; planned in "
            f"{time.process_time() - began:.1f} s{'; over' if over > 0 else ''}; arena "
            f"{(plan.program.arena or 0) / least:.3f} of the bytes in use, "
            f"{unsteered_bytes(plan.program) / least:.3f} by torch's own choices",
            flush=True,
        )
