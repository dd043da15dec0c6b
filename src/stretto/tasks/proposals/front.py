"""`st.propose`: measure a task and propose where its states should be."""

from __future__ import annotations

from functools import partial
from typing import Any

from stretto.runtime.runtimes import Serial
from stretto.tasks.run import plan_for, run
from stretto.tasks.tree import Task

from .propose import Proposals, machine_of, proposals_for


def propose(task: Task, runtime: Any = None, *, measure: bool = True) -> Proposals:
    """Propose a placement for every state of a task, by cost. Nothing changes until `apply` of the result is used.

    Compared are even shares of all nodes ("served"), a range of rows for each node ("partitioned"), and a copy for each
    part ("replicated"). A copy is refreshed as a whole in every exchange, through the same nodes, so it never costs
    less than "served" and is only listed.

    With `measure`, one iteration of every unit runs on copies of its states, one part after another in this process, to
    see which rows each part reads and changes. Functions with effects of their own, such as writing files, have them.

    Parameters
    ----------
    task : Task
        The task. It is not run, and its states stay as they are.
    runtime : runtime or None, default None
        Where it would run: nodes, and on `st.Simulated` their link and latency. Otherwise 1 Gbit and 100 µs are
        assumed.
    measure : bool, default True
        Whether accesses are measured. Otherwise every part is assumed to read and change everything.

    Returns
    -------
    Proposals

    Examples
    --------
    >>> import numpy as np, stretto as st
    >>> def step(worker, rows, w):
    ...     w.add(rows, 0.5 * w.read(rows))
    >>> w = st.state(np.ones(16 * 8192))
    >>> task = st.unit(step, np.arange(16 * 8192), w, parts=4, iterations=10)
    >>> (proposal,) = st.propose(task, st.Simulated(nodes=4, threads=1))
    >>> proposal.placement, proposal.changes
    ('partitioned', True)
    """
    plan = plan_for(task, runtime)
    measuring = partial(run, runtime=Serial()) if measure else None
    return proposals_for(task, plan.stages, machine_of(runtime, plan.nodes), measuring)
