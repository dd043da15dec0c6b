"""Array declarations of the topic model samplers: how each argument is partitioned.

Row blocks are documents: their tokens, topic assignments and topic counts are owned. Column blocks are words: their
topic counts rotate. All visits read the topic totals of the epoch's start. The changes of a visit are stored with its
two blocks and merged at the end of the epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stretto.kernels.topics.dense import gibbs_dense_worker
from stretto.kernels.topics.metropolis_hastings import Tables, mh_worker
from stretto.kernels.topics.packed import gibbs_packed_worker
from stretto.kernels.topics.rows import SamplerScratch, Tokens, TopicCounts, TopicModel
from stretto.plan.arrays import StepSpec, by_cols, by_rows, by_visits, constant, number, per_worker, replicated
from stretto.plan.kernel_reference import named_kernel
from stretto.plan.plan import Logical
from stretto.runtime.blocks.layout import index_type
from stretto.schedule.orders.order import Ints

from .count_layout import CountLayout


def spec_lda(sampler: str, logical: Logical, shape: CountLayout, tokens: Ints, runs: Ints) -> StepSpec:
    """Declarations for the steps of `sampling_step`. tokens, runs [V]: of each visit."""
    documents, words, order = logical.rows.bounds, logical.cols.bounds, logical.order
    ptr, run_ptr = (np.concatenate([[0], np.cumsum(counts)]) for counts in (tokens, runs))

    def of_visits(name: str, at: Any, dtype: Any, *, written: bool = False) -> Any:
        return by_visits(name, at, written=written, dtype=np.dtype(dtype).str, shape=(int(at[-1]),))

    def of_rows(name: str, bounds: Any, dtype: Any, **more: Any) -> Any:
        return by_rows(name, bounds, dtype=np.dtype(dtype).str, shape=(int(bounds[-1]),), **more)

    def of_cols(name: str, bounds: Any, dtype: Any) -> Any:
        return by_cols(name, bounds, dtype=np.dtype(dtype).str, shape=(int(bounds[-1]),))

    token_arrays = Tokens(
        ptr=constant("ptr"),
        doc=of_visits("doc", ptr, index_type(logical.rows)),
        topic=of_visits("topic", ptr, shape.topic_dtype, written=True),
        run_ptr=constant("run_ptr"),
        run_word=of_visits("run_word", run_ptr, index_type(logical.cols)),
        run_length=of_visits("run_length", run_ptr, np.int32),
        key=constant("key"),
        row_block=constant("row_block"),
        col_block=constant("col_block"),
        doc_base=constant("doc_base"),
        word_base=constant("word_base"),
    )
    changed: dict[str, Any] = {"dtype": "<i4", "fresh": True}
    count_arrays = TopicCounts(
        doc_at=of_rows("doc_at", documents, np.int64, written=False),
        doc_length=of_rows("doc_length", documents, np.int32),
        doc_rows=of_rows("doc_rows", shape.doc_at[documents], shape.doc_dtype),
        word_at=constant("word_at"),
        word_length=of_cols("word_length", words, np.int32),
        word_rows=of_cols("word_rows", shape.word_at[words], np.uint32),
        total=replicated("total", dtype="<i8", shape=(shape.totals,)),
        row_moved=by_rows("row_moved", np.arange(order.rows + 1), shape=(order.rows, shape.totals), **changed),
        col_moved=by_cols("col_moved", np.arange(order.cols + 1), shape=(order.cols, shape.totals), **changed),
    )
    numbers: Any = (number(name) for name in TopicModel._fields[2:])
    model = TopicModel(replicated("alpha"), replicated("early"), *numbers)
    rooms = SamplerScratch(*(per_worker(name) for name in SamplerScratch._fields))
    arguments = (token_arrays, count_arrays, model, rooms)
    if sampler == "mh":
        tables = Tables(*(per_worker(f"table_{name}") for name in Tables._fields))
        lengths = of_rows("doc_tokens", documents, np.int32, written=False)
        rest = (tables, number("steps"), lengths, replicated("prior_chance"), replicated("prior_other"))
        return StepSpec("mh", named_kernel(mh_worker), (*arguments, *rest))
    if shape.plain:
        return StepSpec("gibbs", named_kernel(gibbs_dense_worker), (*arguments, number("width")))
    return StepSpec("gibbs", named_kernel(gibbs_packed_worker), arguments)
