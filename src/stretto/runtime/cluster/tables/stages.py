"""Stages on a cluster: one job over tables after another, on hosts that stay.

Each stage is a new incarnation. So whatever of an earlier stage is still on its way, reads and ticks included, is
ignored by everyone; and no update is lost, because a stage ends only when all of its updates have reached the shards.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from stretto.runtime.cluster.hosts.hosts import Hosts
from stretto.runtime.stages.sessions import StagePlace
from stretto.runtime.tables.job import TableJob, TableOutcome

from .driver import SentData, TableDriver


class ClusterStages:
    """An open session of stages on hosts."""

    virtual = False

    def __init__(self, hosts: Hosts, threads: int) -> None:
        self._hosts = hosts
        self.nodes, self.threads = hosts.nodes, threads
        self._sent = SentData()
        self._one = threading.Lock()  # hosts run one job at a time

    def run(self, job: TableJob, place: StagePlace, moved: int) -> tuple[TableOutcome, float]:
        """Run a stage on some of the hosts."""
        stage = replace(job, homes=place.homes(job.workers))
        with self._one:
            began = time.perf_counter()
            driver = TableDriver(self._hosts, stage, dict(place.workers_by_node), self._sent)
            outcome = driver.run()
            return outcome, max(0.0, time.perf_counter() - began - driver.working_seconds)
