
// The browser: a list to search and sort, and the topic chosen from it. Whatever is shown of words and documents is set
// as text, never as HTML.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const [search, sort, reverse, list, rows, relevance] = ["search", "sort", "reverse", "list", "rows", "relevance"].map(at);
  const topics = data.tokens.length;
  const tokens = data.tokens.reduce((sum, count) => sum + count, 0);
  const largest = data.tokens.reduce((most, count) => Math.max(most, count), 1);
  const plain = (text) => text.normalize("NFC").toLowerCase();
  const vocabulary = data.vocabulary.map(plain);
  const bySize = [...data.tokens.keys()].sort((a, b) => data.tokens[b] - data.tokens[a] || a - b);
  const rank = new Map(bySize.map((topic, index) => [topic, index + 1]));
  const integer = new Intl.NumberFormat("en");
  const narrow = matchMedia("(max-width: 48rem)");

  let chosen = -1;
  let order = bySize; // topics in the order of the list
  let place = new Map(); // where in the list each of them is
  let found = null; // {ids, shares} while something is searched for
  let before = "size"; // the order before the search

  function make(tag, name, ...content) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(...content.map((part) => (part instanceof Node ? part : String(part))));
    return made;
  }

  function percent(share) {
    const hundredths = 100 * share;
    if (hundredths === 0) return "0 %";
    if (hundredths < 0.001) return "< 0.001 %";
    if (hundredths >= 99.95) return "100 %";
    return `${hundredths >= 1 ? hundredths.toFixed(1) : hundredths.toPrecision(2)} %`;
  }

  function bar(share, name = "bar") {
    const fill = make("span");
    fill.style.width = `${Math.min(100, 100 * share)}%`;
    const made = make("span", name, fill);
    made.setAttribute("aria-hidden", "true");
    return made;
  }

  const word = (id) => data.vocabulary[id];
  const first = (topic, count) => data.words[topic].slice(0, count).map(word).join(", ");
  const describe = (topic) => `Topic ${topic}: ${first(topic, 4)}`;
  const title = (topic) => (data.titles ? data.titles[topic] : "");
  const mark = (topic) => (data.titles ? title(topic).split(", ")[0] : first(topic, 1));
  const share = (topic) => (tokens ? data.tokens[topic] / tokens : 0);
  const coherence = (topic) => (data.coherence ? data.coherence[topic] : null);
  const signed = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));

  // The words that begin with the query, or hold it when none does; the topics that have them among their words, and how
  // the tokens of those words divide among these topics. A topic's own number finds it too.
  function find(query) {
    if (!query) return null;
    const ids = new Set();
    vocabulary.forEach((text, id) => text.startsWith(query) && ids.add(id));
    if (!ids.size) vocabulary.forEach((text, id) => text.includes(query) && ids.add(id));
    const shares = new Map();
    let total = 0;
    data.words.forEach((held, topic) => {
      const weights = data.weights[topic].filter((_, index) => ids.has(held[index]));
      if (!weights.length) return;
      const count = data.tokens[topic] * weights.reduce((sum, weight) => sum + weight);
      shares.set(topic, count);
      total += count;
    });
    for (const [topic, count] of shares) shares.set(topic, total ? count / total : 0);
    const number = /^#?(\d+)$/.exec(query);
    if (number && Number(number[1]) < topics && !shares.has(Number(number[1]))) shares.set(Number(number[1]), 0);
    return { ids, shares };
  }

  function arrange() {
    const query = plain(search.value.trim());
    const searching = found !== null;
    found = find(query);
    const byShare = sort.querySelector("[value=share]");
    byShare.hidden = byShare.disabled = !found;
    if (found && !searching) {
      before = sort.value;
      sort.value = "share";
    } else if (!found && sort.value === "share") {
      sort.value = before;
    }
    order = found ? bySize.filter((topic) => found.shares.has(topic)) : bySize.slice();
    const worst = -Infinity;
    if (sort.value === "number") order.sort((a, b) => a - b);
    if (sort.value === "coherence") order.sort((a, b) => (coherence(b) ?? worst) - (coherence(a) ?? worst) || a - b);
    if (sort.value === "share") order.sort((a, b) => found.shares.get(b) - found.shares.get(a));
    if (reverse.getAttribute("aria-pressed") === "true") order.reverse();
    place = new Map(order.map((topic, index) => [topic, index]));
    at("status").textContent = tell();
    list.scrollTop = 0;
    draw();
    show();
  }

  function tell() {
    if (!found) return `${integer.format(topics)} ${topics === 1 ? "topic" : "topics"}`;
    const counted = `In ${integer.format(order.length)} of ${integer.format(topics)} topics`;
    if (!found.ids.size) return order.length ? `Topic ${order[0]}` : "No topic has this among its words";
    const named = [...found.ids].slice(0, 4).map((id) => `“${word(id)}”`).join(", ");
    const more = found.ids.size > 4 ? ` and ${integer.format(found.ids.size - 4)} more words` : "";
    return `${counted}: ${named}${more}. Bars show how their tokens divide among these topics.`;
  }

  const height = () => 3.5 * parseFloat(getComputedStyle(document.documentElement).fontSize);

  // Only the rows in sight are in the document, so that ten thousand topics scroll as easily as ten.
  function draw() {
    const each = height();
    const from = Math.max(0, Math.floor(list.scrollTop / each) - 6);
    const to = Math.min(order.length, Math.ceil((list.scrollTop + list.clientHeight) / each) + 6);
    rows.style.height = `${order.length * each}px`;
    rows.replaceChildren(...order.slice(from, to).map((topic, offset) => row(topic, from + offset, each)));
    const active = place.has(chosen) && place.get(chosen) >= from && place.get(chosen) < to;
    if (active) list.setAttribute("aria-activedescendant", `row-${chosen}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function row(topic, index, each) {
    const made = make("div", "row", make("span", "number", topic), firstWords(topic), make("span", "amount", amount(topic)));
    made.append(found ? bar(found.shares.get(topic), "bar of-search") : bar(data.tokens[topic] / largest));
    made.id = `row-${topic}`;
    made.style.top = `${index * each}px`;
    made.dataset.topic = topic;
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", topic === chosen);
    made.setAttribute("aria-posinset", index + 1);
    made.setAttribute("aria-setsize", order.length);
    made.setAttribute("aria-label", `${describe(topic)}; ${amount(topic)}`);
    return made;
  }

  // The words searched for come first, so that they are seen however long the list of words is.
  function firstWords(topic) {
    const made = make("span", "first");
    const ids = data.words[topic];
    const held = found ? ids.filter((id) => found.ids.has(id)).slice(0, 2) : [];
    held.forEach((id) => made.append(make("mark", "", word(id)), " "));
    made.append(ids.filter((id) => !held.includes(id)).slice(0, 7).map(word).join(", "));
    return made;
  }

  function amount(topic) {
    if (sort.value === "coherence") return signed(coherence(topic));
    return percent(found ? found.shares.get(topic) : share(topic));
  }

  function entry(label, share, full, press, mark) {
    let name = make("span", "name", label);
    if (press) {
      name = make("button", mark ? "found" : "", label);
      name.type = "button";
      name.addEventListener("click", press);
    }
    return make("li", "", name, make("span", "amount", percent(share)), bar(full ? share / full : 0));
  }

  function fill(id, entries) {
    at(id).replaceChildren(...entries);
    const section = at(`${id}-section`);
    if (section) section.hidden = entries.length === 0;
  }

  // [word, probability] of the chosen topic: the most probable ones, or by relevance λ ln p + (1 − λ) ln(p / p(word)).
  function wordsBy(lambda) {
    const ids = data.words[chosen];
    const weights = data.weights[chosen];
    at("relevance-value").textContent = `λ = ${lambda.toFixed(1)}`;
    if (lambda === 1 || !data.relevant.length) return ids.map((id, index) => [id, weights[index]]);
    const [likely, overall] = [data.likely[chosen], data.overall[chosen]];
    const score = likely.map((p, index) => Math.log(p) - (1 - lambda) * Math.log(overall[index]));
    const order = [...score.keys()].sort((a, b) => score[b] - score[a] || likely[b] - likely[a] || a - b);
    return order.slice(0, ids.length).map((index) => [data.relevant[chosen][index], likely[index]]);
  }

  function show() {
    const called = title(chosen) === `topic ${chosen}` ? "" : title(chosen);
    at("name").textContent = called ? `Topic ${chosen}: ${called}` : `Topic ${chosen}`;
    const size = `${integer.format(data.tokens[chosen])} tokens, ${percent(share(chosen))} of all`;
    const ranked = `number ${integer.format(rank.get(chosen))} of ${integer.format(topics)} by size`;
    const measured = data.coherence ? `coherence ${signed(coherence(chosen))} (NPMI)` : "";
    at("about").textContent = [size, ranked, measured].filter(Boolean).join(" · ");
    const listed = wordsBy(Number(relevance.value));
    const most = listed.reduce((top, [, weight]) => Math.max(top, weight), 0);
    fill(
      "words",
      listed.map(([id, weight]) => {
        const made = entry(word(id), weight, most, () => seek(word(id)), found && found.ids.has(id));
        made.append(made.children[1]); // the number after the bar
        return made;
      }),
    );
    fill(
      "similar",
      data.similar[chosen].map((other, index) => {
        const alike = data.similarity[chosen][index];
        return entry(describe(other), alike, 1, () => choose(other, { keep: true }));
      }),
    );
    fill(
      "documents",
      data.documents[chosen].map((name, index) => entry(data.names[name], data.shares[chosen][index], 1)),
    );
    at("previous").disabled = !step(-1, true);
    at("next").disabled = !step(1, true);
    if (markMap) markMap(chosen, found && found.shares);
  }

  // keep: a new step for the browser's own way back. An arrow key held down should not fill it.
  function choose(topic, { keep = false } = {}) {
    chosen = topic;
    const link = `#topic-${topic}`;
    // The frame of a notebook (about:srcdoc) has no links of its own.
    if (location.hash !== link && location.protocol !== "about:") {
      if (keep) location.hash = link;
      else history.replaceState(null, "", link);
    }
    if (place.has(topic)) {
      const top = place.get(topic) * height();
      if (top < list.scrollTop) list.scrollTop = top;
      const under = top + height() - list.clientHeight;
      if (under > list.scrollTop) list.scrollTop = under;
    }
    draw();
    show();
    at("topic").scrollTop = 0;
    if (keep && narrow.matches) at("topic").scrollIntoView({ block: "start" });
  }

  function step(by, only = false) {
    const here = place.has(chosen) ? place.get(chosen) : by > 0 ? -1 : order.length;
    const next = order[here + by];
    if (!only && next !== undefined) choose(next);
    return next !== undefined;
  }

  function seek(text) {
    search.value = text;
    arrange();
  }

  function linked() {
    const number = /^#topic-(\d+)$/.exec(location.hash);
    return number && Number(number[1]) < topics ? Number(number[1]) : null;
  }

  const markMap = data.map ? drawMap(data, at("map"), { describe, mark }, (topic) => choose(topic, { keep: true })) : null;
  at("map-section").hidden = !markMap;
  at("relevance-row").hidden = !data.relevant.length;
  if (!data.coherence) sort.querySelector("[value=coherence]").remove();
  chosen = linked() ?? bySize[0];
  arrange();
  choose(chosen);

  search.addEventListener("input", arrange);
  sort.addEventListener("change", arrange);
  relevance.addEventListener("input", show);
  reverse.addEventListener("click", () => {
    reverse.setAttribute("aria-pressed", reverse.getAttribute("aria-pressed") !== "true");
    arrange();
  });
  at("previous").addEventListener("click", () => step(-1));
  at("next").addEventListener("click", () => step(1));
  list.addEventListener("scroll", () => requestAnimationFrame(draw));
  list.addEventListener("click", (event) => {
    const option = event.target.closest(".row");
    if (option) choose(Number(option.dataset.topic), { keep: true });
  });
  addEventListener("resize", draw);
  addEventListener("hashchange", () => {
    const topic = linked();
    if (topic !== null && topic !== chosen) choose(topic);
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const typing = event.target === search;
    const vertical = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const sideways = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.target === sort || event.target === relevance) return;
    if (event.key === "/" && !typing) search.focus();
    else if (event.key === "Escape" && search.value) seek("");
    else if (vertical) step(vertical);
    else if (sideways && !typing) step(sideways);
    else if (event.key === "Home" && event.target === list && order.length) choose(order[0]);
    else if (event.key === "End" && event.target === list && order.length) choose(order[order.length - 1]);
    else return;
    event.preventDefault();
  });
})();
