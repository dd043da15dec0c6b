"""Measurements on the laboratory of `tests/cluster`: a cluster of namespaces with Ray in it, on this computer.

    with laboratory(hosts=4, link="100Mbit") as lab:
        found = drive(lab, "ratings", budget="50Mbit")       # bench.cluster_jobs on host 0; bytes are the kernel's

Skipped, with the reason, where namespaces are not allowed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))  # where the laboratory is at home

from lab import Lab  # noqa: E402
from machines import missing  # noqa: E402

HOSTS = 4


@contextmanager
def laboratory(hosts: int = HOSTS, link: str = "1Gbit", slots: int = 2) -> Iterator[Lab]:
    """Hosts, and a machine apart for the driver, with Ray running; SystemExit with the reason where that cannot be."""
    reason = missing()
    if reason:
        raise SystemExit(f"no laboratory: {reason}")
    with Lab(hosts=hosts, link=link, slots=slots, apart=True) as lab:
        seconds = lab.start_ray()
        print(f"{hosts} hosts with {lab.cpus:g} CPUs each on {link}, Ray after {seconds:.0f} s", flush=True)
        for note in lab.notes:
            print(note, flush=True)
        yield lab


def drive(
    lab: Lab, job: str, timeout: float = 400.0, module: str = "bench.cluster_jobs", **options: Any
) -> dict[str, Any]:
    """Run a job of `bench.cluster_jobs` on host 0. Its report, and by host: bytes, and the most in any second."""
    env = {name: os.environ[name] for name in ("STRETTO_DATA", "STRETTO_CACHE") if name in os.environ}
    with lab.sample() as looks:
        done = lab.run([sys.executable, "-m", module, job, json.dumps(options)], env=env, timeout=timeout)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{job} {options} failed:\n{done.stdout[-3000:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    hosts = [machine.number for machine in lab.workers]
    told["kernel_bytes"] = [looks.total(host) for host in hosts]
    told["kernel_most"] = [looks.most(host) for host in hosts]
    said = {name: value for name, value in options.items() if name not in ("folder", "looks")}
    print(f"  {job} {said}: {told['took']:.2f} s, {sum(told['kernel_bytes']) / 1e6:.1f} MB", flush=True)
    return told
