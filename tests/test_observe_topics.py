"""The topic browser: what is written into the file, and what a real browser makes of it.

The browser is Chromium (`browser.py`). Where there is none these tests are skipped; under `make test-full` that is a
failure.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import Browser
from stretto.errors import DataError, RunError
from stretto.models.topics.analysis.browser import TopicBrowser
from stretto.observe.topics import TopicView
from stretto.observe.topics_page import MAP, MAPPED, circles, curve, page, payload, positions, write_topics

NASTY = "</script><b>bold</b><script>window.ran = 1</script>"
QUOTES = """"'><img src=x onerror="window.ran = 2">&lt;"""


def make_view(topics: int = 6, each: int = 8, /, **changes: Any) -> TopicView:
    """A view with words of its own for each topic (`w3_0` is topic 3's first) and `common`, last in every other one."""
    rng = np.random.default_rng(topics)
    near = min(3, topics - 1)
    weights = np.sort(rng.uniform(0.001, 0.1, (topics, each)), axis=1)[:, ::-1]
    filled: dict[str, Any] = {
        "title": "Letters",
        "words": [
            [f"w{k}_{i}" for i in range(each - 1)] + ["common" if k % 2 else f"w{k}_last"] for k in range(topics)
        ],
        "weights": weights.astype(np.float32),
        "tokens": 1000 + 100 * ((np.arange(topics, dtype=np.int64) * 7) % topics),
        "similar": (np.arange(topics)[:, None] + 1 + np.arange(near)).astype(np.int32) % topics,
        "similarity": np.tile(np.linspace(0.9, 0.3, near, dtype=np.float32), (topics, 1)),
        "documents": [[f"letter {k}", "letter of all"] for k in range(topics)],
        "shares": np.tile(np.array([0.8, 0.25], np.float32), (topics, 1)),
        "facts": {"documents": "1,234", "sampler": "sparse"},
        "history": [(1, -9.5), (2, -8.75), (3, -8.5)],
        "coherence": np.linspace(-0.1, 0.4, topics).astype(np.float32),
        "places": rng.normal(size=(topics, 2)),
    }
    return TopicView(**(filled | changes))


class Parsed(HTMLParser):
    """The elements of a page, and the text inside each script and style."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.text = ""
        self.feed(raw.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append((tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:
            self.raw[-1] = (self.raw[-1][0], self.raw[-1][1] + data)
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(next(text for tag, text in self.raw if tag == "script")))


# What is written


def test_the_page_is_whole_and_its_references_lead_somewhere() -> None:
    raw = page(make_view())
    parsed = Parsed(raw)
    assert raw.startswith(b"<!doctype html>")
    assert b"{{" not in raw
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in parsed.elements:
        for name in ("aria-labelledby", "aria-controls", "aria-describedby", "for"):
            assert attributes.get(name) is None or attributes[name] in ids, attributes
    wanted = [name for name in re.findall(r'\bat\("([\w-]+)"\)', raw.decode()) if name not in ids]
    assert wanted == []
    for shown in ("Letters", "documents", "1,234", "sampler", "sparse"):
        assert shown in parsed.text


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    raw = page(make_view()).decode()
    for _, attributes in Parsed(raw.encode()).elements:
        assert not {"src", "href", "srcset", "action", "style", "onclick", "onload"} & set(attributes)
    assert set(re.findall(r"\w+://[^\"'\s]*", raw)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "@import" not in raw
    assert "url(" not in raw


def test_the_policy_admits_our_script_and_style_and_nothing_else() -> None:
    parsed = Parsed(page(make_view()))
    policy = next(a["content"] for _, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    hashes = {"sha256-" + base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for _, t in parsed.raw}
    assert len(re.findall("sha256-", policy)) == 2
    assert set(re.findall(r"'(sha256-[^']*)'", policy)) <= hashes
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_scripts_only_set_text() -> None:
    folder = resources.files("stretto.observe").joinpath("assets")
    for name in ("topics.js", "topics-map.js"):
        script = folder.joinpath(name).read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
            assert word not in script


def test_words_from_outside_stay_words() -> None:
    plain = Parsed(page(make_view(2, 2)))
    view = make_view(
        2,
        2,
        title=NASTY + "{{data}}",
        words=[[NASTY, QUOTES], ["<!--", "\u2028 ]]> \\u003c"]],
        documents=[[NASTY, QUOTES], ["{{script}}", "]]>"]],
        facts={NASTY: QUOTES, "{{title}}": NASTY},
    )
    parsed = Parsed(page(view))
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in plain.elements]
    data = parsed.data
    assert [[data["vocabulary"][i] for i in row] for row in data["words"]] == view.words
    assert [[data["names"][i] for i in row] for row in data["documents"]] == view.documents
    assert NASTY in parsed.text
    assert QUOTES in parsed.text
    assert "{{title}}" in parsed.text


def test_each_word_and_name_stands_once_and_numbers_are_short() -> None:
    view = make_view(6)
    data = payload(view)
    assert sorted(data["vocabulary"]) == sorted({word for row in view.words for word in row})
    assert data["names"].count("letter of all") == 1
    assert [[data["vocabulary"][i] for i in row] for row in data["words"]] == view.words
    np.testing.assert_allclose(data["weights"], view.weights, rtol=0.005)
    assert max(len(repr(value)) for row in data["weights"] for value in row) <= 7
    assert data["tokens"] == view.tokens.tolist()


def test_short_lists_take_as_many_numbers() -> None:
    view = make_view(2, 3, words=[["a"], ["b", "c", "d"]], documents=[[], ["one"]])
    data = payload(view)
    assert [len(row) for row in data["weights"]] == [1, 3]
    assert [len(row) for row in data["shares"]] == [0, 1]


def test_halves_of_characters_and_undefined_coherence_are_shown_as_such() -> None:
    view = make_view(2, 2, title="\udce9t\udce9", words=[["caf\udce9", "naïve"], ["東京", "b"]])
    view = dataclasses.replace(view, coherence=np.array([np.nan, 0.123456], np.float32))
    parsed = Parsed(page(view))
    assert [parsed.data["vocabulary"][i] for i in (0, 1, 2)] == ["caf?", "naïve", "東京"]
    assert parsed.data["coherence"] == [None, 0.123]
    assert "?t?" in parsed.text


def test_ten_thousand_topics_stay_a_few_megabytes() -> None:
    raw = page(make_view(10_000, 20))
    assert len(raw) < 6_000_000
    assert Parsed(raw).data["map"] is None


def test_the_curve_rises_with_the_likelihood() -> None:
    drawn = curve([(1, -9.5), (5, float("nan")), (11, -8.0), (21, -8.5), (31, -float("inf"))])
    found = re.search(r'points="([^"]*)"', drawn)
    assert found is not None
    x, y = np.array([[float(v) for v in pair.split(",")] for pair in found[1].split()]).T
    assert x.tolist() == [4.0, 110.0, 216.0]
    assert y[0] == 60.0
    assert y[1] == 4.0
    assert y[1] < y[2] < y[0]
    assert "−9.500 after epoch 1, −8.500 after epoch 21" in drawn
    assert curve([(1, -9.5), (2, float("nan"))]) == ""
    assert len(curve([(epoch, -9 + epoch / 1e5) for epoch in range(5000)])) < 5000


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("words", [], "at least one topic"),
        ("weights", np.zeros((5, 8), np.float32), r"weights has shape \[5, 8\]"),
        ("weights", np.zeros((6, 7), np.float32), r"words\[0\] has 8 entries and weights\[0\] has 7"),
        ("weights", np.full((6, 8), np.nan, np.float32), "weights holds NaN"),
        ("tokens", np.zeros((6, 1), np.int64), r"tokens has shape \[6, 1\]"),
        ("similarity", np.zeros((6, 2), np.float32), "similar and similarity have the shapes"),
        ("similar", np.full((6, 3), 6, np.int32), r"similar\[0\] is \[6, 6, 6\]"),
        ("similar", np.full((6, 3), 4, np.int32), r"similar\[4\] is \[4, 4, 4\]"),
        ("documents", [["a"]] * 5, "documents has 5 lists"),
        ("documents", [["a"]] * 5 + [["a", "b", "c"]], r"documents\[5\] has 3 entries"),
        ("coherence", np.zeros(5, np.float32), r"coherence has shape \[5\]"),
        ("places", np.zeros((5, 2)), r"places has shape \[5, 2\]"),
        ("names", ["a"] * 5, "names has 5 entries"),
        ("relevant", [[]] * 5, "relevant has 5 lists"),
    ],
)
def test_what_does_not_fit_together_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_view(**{field: value})


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "topics.html"
    assert write_topics(str(path), make_view(2)) == path
    assert path.read_bytes() == page(make_view(2))
    write_topics(path, make_view(3))
    assert path.read_bytes() == page(make_view(3))
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(RunError, match=r"folder\.html: the topic browser cannot be written"):
        write_topics(tmp_path / "folder.html", make_view(2))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder.html", "new"]
    assert [entry.name for entry in path.parent.iterdir()] == ["topics.html"]


# The map


@pytest.mark.parametrize("topics", [1, 2, 3, 40, 200])
def test_circles_lie_on_the_map_and_off_each_other(topics: int) -> None:
    rng = np.random.default_rng(topics)
    radii = circles(rng.zipf(1.6, topics).clip(max=5000))
    places = positions(rng.normal(size=(topics, 2)), radii)
    assert (places >= radii[:, None]).all()
    assert (places <= np.array(MAP) - radii[:, None]).all()
    far = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    overlap = radii[:, None] + radii[None] - far
    np.fill_diagonal(overlap, 0)
    assert overlap.max() < 1.0


def test_circles_that_do_not_overlap_keep_their_distances() -> None:
    given = np.array([[0.0, 0.0], [1.0, 0.0], [0.2, 0.3], [0.7, -0.2]])
    places = positions(given, np.full(4, 5.0, np.float32))
    np.testing.assert_array_equal(places, positions(given, np.full(4, 5.0, np.float32)))
    far, before = (np.hypot(*(p[:, None] - p[None]).transpose(2, 0, 1)) for p in (places, given))
    scale = far[0, 1] / before[0, 1]
    assert scale > 400
    np.testing.assert_allclose(far, scale * before, rtol=1e-4, atol=1e-3)


def test_sizes_go_with_tokens_and_many_topics_have_no_map() -> None:
    radii = circles(np.array([400, 100, 0] + [50] * 100))
    assert radii[0] == pytest.approx(2 * radii[1])
    assert radii[2] == 2.5
    assert circles(np.zeros(3)).tolist() == [2.5] * 3
    assert payload(make_view(MAPPED + 1, 1))["map"] is None
    assert len(payload(make_view(6))["map"]) == 6


# A real browser


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Browser]:
    """A page of twelve topics, open; afterwards the console must be silent and nothing but the file asked for."""
    path = write_topics(tmp_path / "topics.html", make_view(12))
    browser.open(path)
    yield browser
    assert browser.problems == []
    assert {url.partition("#")[0] for url in browser.requests} == {path.as_uri()}


VIEW = make_view(12)
BY_SIZE = sorted(range(12), key=lambda k: (-VIEW.tokens[k], k))


def numbers(browser: Browser) -> list[int]:
    return [int(text) for text in browser.texts(".row .number")]


def test_a_page_opens_with_the_largest_topic(opened: Browser) -> None:
    assert numbers(opened) == BY_SIZE
    assert opened.texts("#name") == [f"Topic {BY_SIZE[0]}"]
    assert opened.texts("#words button") == VIEW.words[BY_SIZE[0]]
    assert opened.texts("#documents .name") == VIEW.documents[BY_SIZE[0]]
    assert opened.texts("#documents .amount") == ["80.0 %", "25.0 %"]
    assert f"{VIEW.tokens[BY_SIZE[0]]:,} tokens" in opened.texts("#about")[0]
    assert opened.js("document.querySelectorAll('#map circle').length") == 12
    shown = opened.js("[...document.querySelectorAll('#words .bar span')].map((e) => e.getBoundingClientRect().width)")
    weights = VIEW.weights[BY_SIZE[0]]
    np.testing.assert_allclose(np.array(shown) / shown[0], weights / weights[0], atol=0.02)


def test_searching_a_word_finds_its_topics_and_their_shares(opened: Browser) -> None:
    opened.press("/")
    opened.type("COMM")
    holding = [k for k in range(12) if "common" in VIEW.words[k]]
    counts = {k: float(VIEW.weights[k][-1]) * int(VIEW.tokens[k]) for k in holding}
    best = sorted(holding, key=lambda k: -counts[k])
    assert numbers(opened) == best
    assert opened.texts(".row mark") == ["common"] * len(best)
    shares = [float(text.removesuffix(" %")) / 100 for text in opened.texts(".row .amount")]
    np.testing.assert_allclose(shares, [counts[k] / sum(counts.values()) for k in best], atol=0.002)
    found = opened.js("[...document.querySelectorAll('#map circle.found')].map((e) => Number(e.dataset.topic))")
    assert sorted(found) == holding
    assert "In 6 of 12 topics: “common”." in opened.texts("#status")[0]
    opened.press("Escape")
    assert numbers(opened) == BY_SIZE
    assert opened.js("document.querySelectorAll('#map circle.found, #map circle.aside').length") == 0


def test_searching_by_number_and_for_what_is_not_there(opened: Browser) -> None:
    opened.click("#search")
    opened.type("#11")
    assert numbers(opened) == [11]
    assert opened.texts("#status") == ["Topic 11"]
    opened.press("Escape")
    opened.type("nowhere")
    assert numbers(opened) == []
    assert opened.texts("#status") == ["No topic has this among its words"]
    assert opened.js("document.querySelector('#next').disabled")


def test_topics_are_chosen_by_mouse_and_have_links(opened: Browser) -> None:
    opened.click("#row-5")
    assert opened.texts("#name") == ["Topic 5"]
    assert opened.texts("#words button") == VIEW.words[5]
    assert opened.js("location.hash") == "#topic-5"
    assert opened.js("document.querySelector('#row-5').getAttribute('aria-selected')") == "true"
    opened.click("#similar li:nth-child(2) button")
    assert opened.texts("#name") == [f"Topic {VIEW.similar[5, 1]}"]
    opened.click("#map circle[data-topic='2']")
    assert opened.texts("#name") == ["Topic 2"]
    assert opened.js("document.querySelectorAll('#map line').length") == 3
    opened.js("history.back()")
    opened.wait(f"location.hash === '#topic-{VIEW.similar[5, 1]}'")
    assert opened.texts("#name") == [f"Topic {VIEW.similar[5, 1]}"]
    opened.js("history.back()")
    opened.wait("location.hash === '#topic-5'")
    assert opened.texts("#name") == ["Topic 5"]
    opened.click("#words li:last-child button")
    assert opened.js("document.querySelector('#search').value") == VIEW.words[5][-1]


def test_the_keyboard_leads_through_the_list(opened: Browser) -> None:
    opened.press("ArrowDown")
    opened.press("ArrowRight")
    assert opened.texts("#name") == [f"Topic {BY_SIZE[2]}"]
    opened.press("ArrowUp")
    assert opened.js("location.hash") == f"#topic-{BY_SIZE[1]}"
    opened.press("/")
    assert opened.js("document.activeElement.id") == "search"
    assert opened.js("document.activeElement.value") == ""
    opened.press("ArrowDown")
    assert opened.texts("#name") == [f"Topic {BY_SIZE[2]}"]
    opened.js("document.querySelector('#list').focus()")
    opened.press("End")
    assert opened.js("document.querySelector('#list').getAttribute('aria-activedescendant')") == f"row-{BY_SIZE[-1]}"


def test_arrow_keys_go_from_circle_to_circle(opened: Browser) -> None:
    spots = np.array(opened.js("JSON.parse(document.getElementById('data').textContent).map"))[:, :2]
    here = BY_SIZE[0]
    opened.js("document.querySelector('#map').focus()")
    for key, way in (("ArrowLeft", (-1, 0)), ("ArrowDown", (0, 1)), ("ArrowRight", (1, 0)), ("ArrowUp", (0, -1))):
        move = spots - spots[here]
        along = move @ np.array(way)
        aside = np.abs(move @ np.array(way[::-1]))
        far = np.where((along > 0) & (aside <= along), np.hypot(*move.T), np.inf)
        here = int(far.argmin()) if np.isfinite(far.min()) else here
        opened.press(key)
        assert opened.texts("#name") == [f"Topic {here}"]
    assert opened.js("document.activeElement.id") == "map"


def test_words_are_ordered_by_relevance(browser: Browser, tmp_path: Path) -> None:
    words = [("the", 0.5, 0.5), ("tea", 0.2, 0.02), (NASTY, 0.1, 0.001)]
    view = make_view(
        2, 2, words=[["the", "tea"], ["the", "a"]], relevant=[words, [("the", 0.6, 0.5), ("a", 0.2, 0.2)]],
        weights=np.array([[0.5, 0.2], [0.6, 0.2]], np.float32),
    )  # fmt: skip
    browser.open(write_topics(tmp_path / "relevance.html", view), "#topic-0")
    assert browser.texts("#words button") == ["the", "tea"]
    for weight in (0.0, 0.5, 0.9, 1.0):
        browser.js(f"(relevance.value = {weight}, relevance.dispatchEvent(new Event('input')))")
        score = {word: weight * np.log(p) + (1 - weight) * np.log(p / share) for word, p, share in words}
        assert browser.texts("#words button") == sorted(score, key=lambda word: -score[word])[:2]
        assert browser.texts("#relevance-value") == [f"λ = {weight:.1f}"]
    browser.js("relevance.focus()")
    browser.press("ArrowLeft")
    assert browser.texts("#name") == ["Topic 0"]  # the key moves the slider
    assert browser.js("[typeof window.ran, document.querySelectorAll('b, img').length]") == ["undefined", 0]
    assert browser.problems == []
    browser.open(write_topics(tmp_path / "without.html", make_view(2)))
    assert browser.js("document.querySelector('#relevance-row').hidden")


def test_names_are_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    view = make_view(3, names=["tea, cup", NASTY, "topic 2"], tokens=np.array([500, 300, 10]))
    browser.open(write_topics(tmp_path / "names.html", view), "#topic-1")
    assert browser.texts("#name") == [f"Topic 1: {NASTY}"]
    assert "tea" in browser.texts("#map text.word")
    browser.press("ArrowDown")
    assert browser.texts("#name") == ["Topic 2"]
    assert browser.js("[typeof window.ran, document.querySelectorAll('b, img').length]") == ["undefined", 0]
    assert browser.problems == []


def test_a_notebooks_frame_shows_the_browser(browser: Browser, tmp_path: Path) -> None:
    view = make_view(4, title=NASTY, words=[[NASTY, QUOTES]] * 4, weights=np.full((4, 2), 0.1, np.float32))
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><body>{TopicBrowser(view)._repr_html_()}</body>", encoding="utf-8")
    # Its sandbox keeps the frame apart; without it the test can look inside, and the page's own policy still holds.
    opening = path.read_text(encoding="utf-8").replace('sandbox="allow-scripts" ', "")
    (tmp_path / "open.html").write_text(opening, encoding="utf-8")
    browser.open(path)
    assert browser.js("document.querySelector('iframe').contentDocument") is None
    assert browser.problems == []
    browser.open(tmp_path / "open.html")
    inside = "document.querySelector('iframe').contentDocument"
    browser.wait(f"{inside}.querySelectorAll('.row').length === 4")
    assert browser.js(f"{inside}.querySelector('h1').textContent") == NASTY
    browser.js(
        f"{inside}.querySelector('#map circle[data-topic=\"2\"]').dispatchEvent(new Event('click', {{bubbles: true}}))"
    )
    assert browser.js(f"{inside}.querySelector('#name').textContent") == "Topic 2"
    assert browser.js("typeof window.ran") == "undefined"
    assert browser.problems == []


def test_the_list_is_sorted_as_asked(opened: Browser) -> None:
    def sort_by(value: str) -> None:
        opened.js(f"(sort.value = '{value}', sort.dispatchEvent(new Event('change')))")

    sort_by("number")
    assert numbers(opened) == list(range(12))
    sort_by("coherence")
    assert numbers(opened) == list(range(11, -1, -1))
    assert opened.texts(".row .amount")[0] == "0.40"
    opened.click("#reverse")
    assert numbers(opened) == list(range(12))
    assert opened.texts(".row .amount")[0] == "−0.10"
    opened.click("#reverse")
    sort_by("size")
    assert numbers(opened) == BY_SIZE


def test_words_from_outside_do_not_run(browser: Browser, tmp_path: Path) -> None:
    view = make_view(
        2,
        2,
        title=NASTY,
        words=[[NASTY, QUOTES], [QUOTES, NASTY]],
        documents=[[NASTY, QUOTES], []],
        facts={NASTY: QUOTES},
    )
    browser.open(write_topics(tmp_path / "nasty.html", view), "#topic-0")
    assert browser.texts("#words button") == [NASTY, QUOTES]
    assert browser.texts("#documents .name") == [NASTY, QUOTES]
    assert browser.texts("h1") == [NASTY]
    assert browser.js("document.title") == NASTY
    browser.click("#words button")
    browser.js("document.querySelector('#map circle').dispatchEvent(new Event('pointerover', {bubbles: true}))")
    assert NASTY in browser.texts("#tip")[0]
    assert browser.js("[typeof window.ran, document.querySelectorAll('b, img').length]") == ["undefined", 0]
    assert browser.problems == []
    # And had one become an element after all, the page's own policy would not let it run.
    browser.js("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 3'}))")
    assert browser.js("typeof window.ran") == "undefined"
    assert len(browser.problems) == 1


def test_ten_thousand_topics_scroll_and_search(browser: Browser, tmp_path: Path) -> None:
    view = make_view(10_000, 10, tokens=np.arange(10_000, 0, -1))
    browser.open(write_topics(tmp_path / "many.html", view), "#topic-9000")
    assert browser.texts("#name") == ["Topic 9000"]
    assert 9000 in numbers(browser)
    assert len(numbers(browser)) < 60
    browser.js("(list.scrollTop = list.scrollHeight, 0)")
    assert numbers(browser)[-1] == 9999
    assert browser.js("document.querySelector('#map-section').hidden")
    browser.press("/")
    browser.type("w7777_3")
    assert numbers(browser) == [7777]
    assert browser.problems == []


@pytest.mark.parametrize("topics", [1, 12])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(browser: Browser, tmp_path: Path, topics: int) -> None:
    long = make_view(topics, title="x" * 200, documents=[["y" * 300]] * topics)
    browser.open(write_topics(tmp_path / "phone.html", long), width=360, height=740)
    assert browser.js("document.documentElement.scrollWidth") <= 360
    browser.click("#row-0")
    top = browser.js("document.querySelector('#topic').getBoundingClientRect().top")
    assert -1 <= top < 740 - 200  # the topic chosen has come into sight
    assert browser.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(browser: Browser, tmp_path: Path, scheme: str) -> None:
    browser.prefers(scheme)
    browser.open(write_topics(tmp_path / "scheme.html", make_view(3)))
    names = ["paper", "raised", "tint", "track", "found-tint", "ink", "soft"]
    asked = f"{json.dumps(names)}.map((n) => getComputedStyle(document.documentElement).getPropertyValue('--' + n))"
    colours = dict(zip(names, browser.js(asked), strict=True))
    light = {name: luminance(colour) for name, colour in colours.items()}
    assert (light["paper"] > light["ink"]) == (scheme == "light")
    for text in ("ink", "soft"):
        for ground in names[:5]:
            low, high = sorted((light[text], light[ground]))
            if (text, ground) != ("soft", "found-tint"):  # never together
                assert (high + 0.05) / (low + 0.05) >= 4.5, (text, ground)
    browser.page.emulate_media(color_scheme="null")


def luminance(colour: str) -> float:
    """Of #rrggbb, as the accessibility guidelines (WCAG 2) define it."""
    parts = np.array([int(colour.strip()[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))
