"""The samplers draw what the mathematics says: every test compares the compiled worker's own draws with exact chances.

Thousands of copies of one state are sampled in one pass; the seeds are fixed, so a test passes always or never.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from stretto.kernels.numeric.alias import alias_draw, fill_alias
from stretto.kernels.topics.dense import FEWEST_PAIRED
from stretto.kernels.topics.layout import measure_worker, spread_worker
from stretto.kernels.topics.metropolis_hastings import prior_table
from stretto.kernels.topics.packed import draw
from stretto.kernels.topics.rows import (
    Tokens,
    TopicCounts,
    begin_visit,
    make_rooms,
    open_word,
    room_of,
    token_bits,
)
from stretto.models.topics import problem
from stretto.models.topics.count_layout import CountLayout
from stretto.models.topics.job import epoch_seed
from stretto.runtime.blocks.pass_control import start
from stretto.runtime.runtimes import Threads
from stretto.schedule.orders.rotation import independent
from topic_jobs import (
    Copies,
    State,
    check_counts,
    copies_of,
    corpus,
    frequencies,
    lda_on,
    made_state,
    misfit,
    run_passes,
)
from topic_jobs import problem as topic_problem


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small corpora are cut as large ones are."""
    monkeypatch.setattr(problem, "FEWEST_TOKENS", 256)


Array = NDArray[Any]
LEAST = 1e-3  # the smallest p-value that passes

STATES: dict[str, State] = {
    "plain documents, two topics": made_state(2, doc_topics=2, word_topics=2),
    "plain documents, five topics": made_state(5, doc_topics=3, word_topics=2),
    "plain documents, whole chunks": made_state(64, doc_topics=9, word_topics=40),
    "plain documents, a packed word": made_state(70, doc_topics=20, word_topics=10),
    "plain documents, a plain word": made_state(130, doc_topics=30, word_topics=100),
    "plain documents, most topics": made_state(256, doc_topics=3, word_topics=5),
    "plain documents, first": made_state(70, doc_topics=20, word_topics=30, first=True),
    "plain documents, first of all": made_state(20, doc_topics=0, word_topics=0, first=True),
    "packed, two topics": made_state(2, doc_topics=2, word_topics=2, packed=True),
    "packed, five topics": made_state(5, doc_topics=3, word_topics=2, packed=True),
    "packed, one group and a bit, a plain word": made_state(70, doc_topics=50, word_topics=60, packed=True),
    "packed, whole groups": made_state(128, doc_topics=16, word_topics=12, packed=True),
    "packed, three groups, a packed word": made_state(130, doc_topics=17, word_topics=20, packed=True),
    "packed, chunks of groups": made_state(1100, doc_topics=40, word_topics=20),
    "packed, chunks of groups, a plain word": made_state(1100, doc_topics=40, word_topics=900),
    "packed, a long document": made_state(300, doc_topics=290, word_topics=30, doc_tokens=40),
    "packed, a word of its own": made_state(300, doc_topics=1, word_topics=0, doc_tokens=1),
    "packed, first": made_state(1100, doc_topics=40, word_topics=20, first=True),
    "packed, first, a plain word": made_state(300, doc_topics=20, word_topics=250, first=True),
    "packed, first of all": made_state(300, doc_topics=0, word_topics=0, first=True),
}


@pytest.mark.parametrize("name", STATES)
def test_a_topic_is_drawn_from_the_exact_conditional(name: str) -> None:
    state = STATES[name]
    assert misfit(frequencies(state, 40_000), state.conditional()) > LEAST


@pytest.mark.parametrize(
    ("topics", "packed"), [(20, False), (100, False), (20, True), (200, True), (1100, True)], ids=str
)
def test_the_part_that_all_documents_share_is_drawn_exactly(topics: int, packed: bool) -> None:
    """With large alpha nearly every draw is one of them, in all groups; half of the topics are ruled out."""
    state = made_state(topics, doc_topics=4, word_topics=topics // 2, packed=packed)
    alpha = np.where(np.arange(topics) % 2, state.alpha * 30, 0)
    state = replace(state, alpha=alpha, n_k=state.n_k + np.arange(topics))
    assert misfit(frequencies(state, 50_000), state.conditional()) > LEAST


@numba.njit(_nrt=False)  # type: ignore[untyped-decorator] # like the kernels whose parts it calls
def _draws(tokens: Any, counts: Any, model: Any, rooms: Any, old: Any, random: Any, found: Any) -> None:
    room = room_of(rooms, 0)
    begin_visit(tokens, counts, model, room, 0)
    open_word(counts, model, room, 0, 0, 0)
    for j in range(random.shape[0]):
        found[draw(counts, model, room, 0, old, random[j])[0]] += 1


@pytest.mark.parametrize("topics", [70, 1100])
def test_topics_far_rarer_than_the_steps_of_a_random_number_are_drawn_in_proportion(topics: int) -> None:
    """The first 24 bits say which part is drawn from. Where they leave one number for the shared part, the others
    must still tell its topics apart.
    """
    state = made_state(topics, doc_topics=20, word_topics=40, packed=True)
    copies = copies_of(state, 1)
    random = np.random.default_rng(topics).integers(0, 2**40, 50_000, dtype=np.uint64)
    found = np.zeros(topics, np.int64)
    _draws(*copies.step(0, first=False).args, state.old, random, found)
    shared = state.alpha * state.weights()
    assert misfit(found, shared / shared.sum()) > LEAST


def test_the_draws_of_one_state_leave_it_consistent() -> None:
    for state in (STATES["plain documents, a packed word"], STATES["packed, three groups, a packed word"]):
        copies = copies_of(state, 500)
        new = copies.sample(1, first=False)[:, 0]
        assert len(set(new.tolist())) > 10
        moved = copies.counts.row_moved - (state.n_k // 3)
        for copy, k in enumerate(new.tolist()):
            expected = np.zeros(state.topics, np.int64)
            expected[state.old] -= 1
            expected[k] += 1
            assert np.array_equal(moved[copy], expected)


_AHEAD = """
import ctypes, mmap, sys
import numpy as np
from stretto.models.topics import problem
problem.FEWEST_TOKENS = 256
from topic_jobs import copies_of, made_state

copies = copies_of(made_state(300, doc_topics=3, word_topics=5, sampler=sys.argv[1]), 9)
pages = mmap.mmap(-1, 64 * mmap.PAGESIZE)
memory = np.frombuffer(pages, np.int64)
first = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + mmap.PAGESIZE
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(first), 63 * mmap.PAGESIZE, 0) == 0
at = memory[: mmap.PAGESIZE // 8][-9:]  # nothing can be read behind it
at[:] = copies.counts.doc_at
copies.counts = copies.counts._replace(doc_at=at)
copies.tokens.doc[9:] = 20_000
copies.sample(1, first=False)
print("went well")
"""


@pytest.mark.parametrize("sampler", ["sparse", "mh"])
def test_looking_ahead_stays_inside_the_documents(sampler: str) -> None:
    """The tokens ahead may be those of another visit: counted from this one's documents they lie anywhere."""
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", _AHEAD, sampler], cwd=here, capture_output=True, text=True, check=False
    )
    assert done.stdout == "went well\n", f"exit status {done.returncode}: {done.stderr}"


# --- two words at a time ----------------------------------------------------------------------------------------------


def pairs(K: int, documents: int, *, shared: bool) -> tuple[Copies, Array]:
    """(one visit with `documents` tokens of word 0 and of word 1, the words' weights [2, K]).

    shared: a document has a token of each word; else each token has a document of its own. Words and topics have so
    many tokens that their counts stay as they are.
    """
    random = np.random.default_rng(K)
    words, totals = random.integers(1 << 16, 1 << 18, (2, K)), random.integers(1 << 22, 1 << 23, K)
    alpha = random.random(K) + 0.2
    D = documents if shared else 2 * documents
    shape = CountLayout(K, True, np.full(D, 2 if shared else 1), words.sum(axis=1))
    assert shape.word_plain.all()
    doc = np.tile(np.arange(documents), 2) if shared else np.arange(D)
    topic = random.integers(0, K, 2 * documents)
    rows = np.zeros((D, shape.width), np.uint16)
    np.add.at(rows, (doc, topic), 1)
    zero = np.zeros(1, np.int64)
    tokens = Tokens(
        np.array([0, 2 * documents]), doc.astype(np.uint16), topic.astype(np.uint16), np.array([0, 2]),
        np.array([0, 1], np.uint16), np.full(2, documents, np.int32), *[zero] * 5,
    )  # fmt: skip
    counts = TopicCounts(
        shape.doc_at[:-1].copy(), np.zeros(D, np.int32), rows.ravel(), shape.word_at[:-1].copy(),
        np.full(2, -1, np.int32), words.astype(np.uint32).ravel(), totals.astype(np.int64),
        np.zeros((1, K), np.int32), np.zeros((1, K), np.int32),
    )  # fmt: skip
    which = topic_problem(K, alpha=alpha, beta=0.01)
    weights = (words + 0.01) / (totals + 0.01 * 2)
    return Copies(which, shape, tokens, counts, 1), weights


def test_a_pair_of_tokens_in_two_documents_is_drawn_by_the_weights_of_its_two_words() -> None:
    copies, weights = pairs(17, 20_000, shared=False)
    topics = copies.sample(1, first=False)[0].reshape(2, -1)
    share = weights * np.array(copies.which.alpha)
    for word in range(2):
        assert misfit(np.bincount(topics[word], minlength=17), share[word] / share[word].sum()) > LEAST


def test_the_second_token_of_a_pair_in_one_document_sees_the_first() -> None:
    """A document of two tokens: the first is drawn from the second's present topic, the second from the first's new."""
    K = 3
    copies, weights = pairs(K, 30_000, shared=True)
    alpha, before = np.array(copies.which.alpha), np.array(copies.tokens.topic).reshape(2, -1)
    first, second = copies.sample(1, first=False)[0].reshape(2, -1)
    by_word = [(alpha + np.eye(K)) * weights[word] for word in range(2)]  # row: the other token's topic
    by_word = [share / share.sum(axis=1, keepdims=True) for share in by_word]
    for k in range(K):
        assert misfit(np.bincount(first[before[1] == k], minlength=K), by_word[0][k]) > LEAST
        assert misfit(np.bincount(second[first == k], minlength=K), by_word[1][k]) > LEAST


@pytest.mark.parametrize("lengths", [(4000, 90, 1), (1, 1, 3000), (2000, 2000), (5000,)], ids=str)
def test_counts_agree_with_the_topics_whatever_the_words_of_a_visit(lengths: tuple[int, ...]) -> None:
    X = np.zeros((50, len(lengths)), np.int64)
    for word, tokens in enumerate(lengths):
        X[:, word] = np.bincount(np.arange(tokens) % 50, minlength=50)
    with lda_on(Threads(1), topic_problem(20), corpus(X)) as (job, crew):
        assert np.diff(job.laid.tokens.ptr).max() > FEWEST_PAIRED or len(job.plan.order) > 1
        run_passes(job, crew, 4)
        check_counts(job)


# --- Metropolis-Hastings --------------------------------------------------------------------------------------------


def turn(state: State, proposal: Array, share: Array) -> Array:
    """[K, K] one proposal, accepted or not: chances to go from row to column."""
    ratio = (share[None, :] * proposal[:, None]) / (share[:, None] * proposal[None, :])
    step = np.broadcast_to(proposal, ratio.shape) * np.minimum(1, ratio)
    np.fill_diagonal(step, 0)
    np.fill_diagonal(step, 1 - step.sum(axis=1))
    return np.asarray(step)


def turns(state: State) -> Array:
    """[K, K] one proposal of the word and one of the document."""
    share, documents = state.conditional(), state.without()[0] + state.alpha
    word = turn(state, state.weights() / state.weights().sum(), share)
    return np.asarray(word @ turn(state, documents / documents.sum(), share))


CHAINS: dict[str, State] = {
    "two topics, a table": made_state(2, doc_topics=2, word_topics=2, sampler="mh"),
    "a packed word, searched": made_state(20, doc_topics=6, word_topics=3, sampler="mh"),
    "a plain word, searched": made_state(20, doc_topics=6, word_topics=20, word_tokens=9, sampler="mh"),
    "many entries, searched": made_state(70, doc_topics=30, word_topics=50, word_tokens=9, sampler="mh"),
    "a packed word, a table": made_state(20, doc_topics=6, word_topics=4, sampler="mh", run=12),
    "a plain word, a table": made_state(20, doc_topics=6, word_topics=20, sampler="mh", run=45, word_tokens=9),
    "a word that occurs once": made_state(20, doc_topics=6, word_topics=0, sampler="mh"),
    "a document of one token": made_state(20, doc_topics=1, doc_tokens=1, word_topics=5, sampler="mh"),
}


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", CHAINS)
def test_proposals_and_acceptance_have_their_exact_chances(name: str, steps: int) -> None:
    """Where a token goes in `steps` pairs of proposals, its own topic left out of all counts."""
    state = replace(CHAINS[name], steps=steps)
    expected = np.linalg.matrix_power(turns(state), steps)[state.old]
    assert misfit(frequencies(state, 40_000), expected) > LEAST


@pytest.mark.parametrize("name", [name for name, state in CHAINS.items() if state.run == 1])
def test_a_token_visits_topics_in_proportion_to_the_conditional(name: str) -> None:
    """Pass after pass with all else frozen. The chain must not remember where it came from, which a proposal from
    counts that hold the token itself does.
    """
    state = CHAINS[name]
    copies = copies_of(state, 10_000)
    for seed in range(40):
        topics = copies.sample(seed, first=False)[:, 0]
    assert misfit(np.bincount(topics, minlength=state.topics), state.conditional()) > LEAST


@pytest.mark.parametrize(("run", "words"), [(1, 30), (40, 30), (1, 3)])
def test_a_first_topic_follows_the_conditional_after_many_proposals(run: int, words: int) -> None:
    state = made_state(30, doc_topics=20, word_topics=words, first=True, sampler="mh", steps=40, run=run)
    assert misfit(frequencies(state, 6_000), state.conditional()) > LEAST


def test_one_pair_of_proposals_gives_a_first_topic_by_word_and_document() -> None:
    state = made_state(12, doc_topics=5, word_topics=6, first=True, sampler="mh")
    begin = state.weights() / state.weights().sum()
    assert misfit(frequencies(state, 60_000), begin @ turns(state)) > LEAST


# --- alias tables ---------------------------------------------------------------------------------------------------


@numba.njit  # type: ignore[untyped-decorator]
def _alias_draws(n: Any, chance: Any, other: Any, random: Any, found: Any) -> None:
    for j in range(random.shape[0]):
        found[alias_draw(n, chance, other, random[j])] += 1


def table_of(weights: Array) -> tuple[Array, Array]:
    n = len(weights)
    chance, other, left = np.zeros(n, np.float32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    fill_alias(weights.astype(np.float32), np.float32(weights.sum()), chance, other, left)
    return chance, other


@pytest.mark.parametrize("n", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("kind", ["even", "uneven", "some nothing", "one has nearly all"])
def test_an_alias_table_holds_exactly_its_weights(n: int, kind: str) -> None:
    random = np.random.default_rng(n)
    weights = random.random(n) + 0.01 if kind != "even" else np.ones(n)
    if kind == "some nothing":
        weights[: n // 2] = 0
    if kind == "one has nearly all":
        weights[-1] = 1000 * n
    chance, other = table_of(weights)
    held = chance.astype(np.float64) / n
    np.add.at(held, other, (1 - chance.astype(np.float64)) / n)
    np.testing.assert_allclose(held, weights / weights.sum(), atol=1e-4 / n)
    assert np.all((chance >= 0) & (chance <= 1))


def test_draws_from_a_table_follow_its_weights_and_no_slot_is_ever_left() -> None:
    weights = np.array([3.0, 0.0, 1.0, 0.5, 7.0])
    chance, other = table_of(weights)
    random = np.random.default_rng(5).integers(0, 2**64, 200_000, dtype=np.uint64)
    random[:4] = [0, 2**64 - 1, 2**32 - 1, 2**64 - 2**32]  # the ends of both halves
    found = np.zeros(5, np.int64)
    _alias_draws(5, chance, other, random, found)
    assert misfit(found, weights / weights.sum()) > LEAST
    assert np.array_equal(prior_table(weights)[0], chance)


# --- random numbers -------------------------------------------------------------------------------------------------


@numba.njit  # type: ignore[untyped-decorator]
def _bits_of(seed: Any, visits: Any, places: Any, out: Any) -> None:
    for key in range(visits):
        for place in range(places):
            out[key * places + place] = token_bits(seed, key, place)


def test_no_two_tokens_visits_or_epochs_share_their_random_bits() -> None:
    found = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0), (-1, 0), (0, 10), (1, 11), (11, 1)):
        out = np.zeros(1024 * 60, np.uint64)
        _bits_of(epoch_seed(seed, epoch), 1024, 60, out)
        found.append(out)
    assert len(np.unique(np.concatenate(found))) == 7 * 1024 * 60
    # Neighbours in every direction are unrelated: bits agree half of the time.
    grid = np.stack(found).reshape(7, 1024, 60)
    for axis in range(3):
        same = ~(np.take(grid, range(1, grid.shape[axis]), axis) ^ np.take(grid, range(grid.shape[axis] - 1), axis))
        assert abs(np.bitwise_count(same).mean() / 64 - 0.5) < 1e-3


# --- layout ---------------------------------------------------------------------------------------------------------


def test_entries_become_runs_of_words_by_document_and_stored_zeros_vanish() -> None:
    doc = np.array([2, 0, 1, 0, 2, 1, 0], np.uint16)
    word = np.array([1, 1, 0, 3, 3, 2, 4], np.uint16)
    count = np.array([2, 1, 0, 1, 3, 0, 2], np.float32)  # words 0 and 2 have zeros alone
    ptr, words_in, docs_in = np.array([0, 7, 7]), np.array([5, 5]), np.array([3, 3])
    tokens, runs, longest = (np.zeros(2, np.int64) for _ in range(3))
    two = independent(2)
    script = np.arange(2)
    out = np.full(2, np.nan)
    measure_worker.exact(
        start(two, np.diff(ptr), script=script).words, 0, out, ptr, words_in, word, count, tokens, runs, longest
    )
    assert tokens.tolist() == [9, 0]
    assert runs.tolist() == [3, 0]
    assert longest.tolist() == [4, 0]
    token_ptr, run_ptr = np.array([0, 9, 9]), np.array([0, 3, 3])
    docs, run_word, run_length = np.full(10, 77, np.uint16), np.full(4, 77, np.uint16), np.full(4, 77, np.int32)
    args = (ptr, docs_in, words_in, doc, word, count, token_ptr, run_ptr, docs, run_word, run_length)
    spread_worker.exact(start(two, np.diff(ptr), script=script).words, 0, out, *args)
    assert run_word.tolist() == [1, 3, 4, 77]
    assert run_length.tolist() == [3, 4, 2, 77]
    assert docs.tolist() == [0, 2, 2, 0, 2, 2, 2, 0, 0, 77]
    assert out.tolist() == [9, 0]


@pytest.mark.parametrize("topics", [1, 63, 64, 65, 1023, 1024])
def test_rooms_hold_one_topic_more_than_there_are(topics: int) -> None:
    """Padding names topic K, and its weight, zero, is read."""
    rooms = make_rooms(2, topics, 48, 30)
    for array in (rooms.weight, rooms.bare, rooms.seen, rooms.count):
        assert array.shape[1] > topics
        assert not array.any()
    assert rooms.listed.shape[1] >= topics + 30
    assert rooms.mass.shape[1] * 64 > topics
