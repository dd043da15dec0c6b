"""Topic models on several nodes: what every argument of the samplers is to the nodes.

Row blocks are documents: their tokens, the topics of these and their counts lie with one node. Column blocks are words:
their counts go round with the visits. All nodes read the totals as they were at the epoch's start; what visits changed
lies with the two blocks of a visit, and the driver merges it when the epoch is over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels.topic_dense import gibbs_dense_worker
from stretto.kernels.topic_mh import Tables, mh_worker
from stretto.kernels.topic_packed import gibbs_packed_worker
from stretto.kernels.topic_rows import Counts, Model, Room, Tokens
from stretto.plan.plan import Logical
from stretto.runtime.cluster.spread import (
    NUMBER,
    SAME,
    SCRATCH,
    WHOLE,
    Spread,
    by_cols,
    by_rows,
    by_visits,
    named_kernel,
)

from .lda_base import Problem, Shape


def spread_lda(problem: Problem, logical: Logical, shape: Shape, tokens: Tokens) -> Spread:
    """For the steps of `sampling_step`."""
    documents, words = logical.rows.bounds, logical.cols.bounds
    runs = by_visits(tokens.run_ptr)
    token_roles = Tokens(
        ptr=SAME,
        doc=by_visits(tokens.ptr),
        topic=by_visits(tokens.ptr, written=True),
        run_ptr=SAME,
        run_word=runs,
        run_length=runs,
        key=SAME,
        row_block=SAME,
        col_block=SAME,
        doc_base=SAME,
        word_base=SAME,
    )
    count_roles = Counts(
        doc_at=by_rows(documents, written=False),
        doc_length=by_rows(documents),
        doc_rows=by_rows(shape.doc_at[documents]),
        word_at=SAME,
        word_length=by_cols(words),
        word_rows=by_cols(shape.word_at[words]),
        total=WHOLE,
        row_moved=by_rows(np.arange(logical.order.rows + 1), fresh=True),
        col_moved=by_cols(np.arange(logical.order.cols + 1), fresh=True),
    )
    rest: Any = (NUMBER,) * (len(Model._fields) - 1)
    roles = (token_roles, count_roles, Model(WHOLE, *rest), Room(*(SCRATCH,) * len(Room._fields)))
    if problem.sampler == "mh":
        tables = Tables(*(SCRATCH,) * len(Tables._fields))
        lengths = by_rows(documents, written=False)
        return Spread(named_kernel(mh_worker), (*roles, tables, NUMBER, lengths, WHOLE, WHOLE))
    if shape.plain:
        return Spread(named_kernel(gibbs_dense_worker), (*roles, NUMBER))
    return Spread(named_kernel(gibbs_packed_worker), roles)
