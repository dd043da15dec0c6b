"use strict";

// The map of topics: a circle for each, by size, at the place the file gives it. The list holds the same topics for
// screen readers, so the map itself is one picture to them; with the keyboard, arrows go to the next circle.
function drawMap(data, box, { describe, mark }, choose) {
  const space = "http://www.w3.org/2000/svg";
  const [width, height] = data.size;

  function shape(tag, attributes) {
    const made = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  const meaning = "Map of topics: similar topics are near each other, larger circles have more tokens";
  const picture = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": meaning });
  const links = shape("g", {});
  const circles = data.map.map(([x, y, r], topic) => shape("circle", { cx: x, cy: y, r, "data-topic": topic }));
  const labels = [];
  picture.append(links);
  // Small circles last: none can be covered by a large one.
  const largest = [...data.map.keys()].sort((a, b) => data.map[b][2] - data.map[a][2] || a - b);
  for (const topic of largest) picture.append(circles[topic]);
  for (const topic of largest) {
    const [x, y, r] = data.map[topic];
    if (r < 9) break;
    const word = mark(topic);
    const fits = r >= 18 && word.length * 4.5 < 2 * r;
    write(topic, topic, { x, y: fits ? y - 4 : y, "font-size": Math.min(16, r) });
    if (fits) write(topic, word, { x, y: y + 9, class: "word" });
  }

  function write(topic, text, attributes) {
    const made = shape("text", attributes);
    made.textContent = text;
    labels.push([topic, made]);
    picture.append(made);
  }

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  box.replaceChildren(picture, tip);

  picture.addEventListener("click", (event) => {
    const topic = event.target.dataset.topic;
    if (topic !== undefined) choose(Number(topic));
  });
  picture.addEventListener("pointerover", (event) => {
    const topic = event.target.dataset.topic;
    tip.hidden = topic === undefined;
    if (tip.hidden) return;
    const [x, y, r] = data.map[topic];
    tip.textContent = describe(Number(topic));
    // Above the circle, or below near the upper edge; shifted so that it stays on the map.
    const below = y - r < height / 4;
    tip.style.left = `${(100 * x) / width}%`;
    tip.style.top = `${(100 * (below ? y + r + 4 : y - r - 4)) / height}%`;
    tip.style.transform = `translate(${(-100 * x) / width}%, ${below ? 0 : -100}%)`;
  });
  picture.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });

  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  let from = 0;

  // The nearest circle whose centre is in this direction, give or take 45 degrees.
  function towards([right, down]) {
    const [x, y] = data.map[from];
    let nearest = null;
    let least = Infinity;
    data.map.forEach(([x2, y2], topic) => {
      const along = (x2 - x) * right + (y2 - y) * down;
      const aside = Math.abs((x2 - x) * down) + Math.abs((y2 - y) * right);
      const far = Math.hypot(x2 - x, y2 - y);
      if (topic === from || along <= 0 || aside > along || far >= least) return;
      nearest = topic;
      least = far;
    });
    return nearest;
  }

  box.addEventListener("keydown", (event) => {
    const way = ways[event.key];
    if (!way || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const topic = towards(way);
    if (topic !== null) choose(topic);
  });

  // shares: Map of topic to share for the topics found, or null when nothing is searched for.
  return function markMap(chosen, shares) {
    circles.forEach((circle, topic) => {
      circle.classList.toggle("chosen", topic === chosen);
      circle.classList.toggle("found", shares !== null && shares.has(topic));
      circle.classList.toggle("aside", shares !== null && !shares.has(topic));
    });
    for (const [topic, label] of labels) label.classList.toggle("chosen", topic === chosen);
    from = chosen;
    const [x1, y1] = data.map[chosen];
    links.replaceChildren(
      ...data.similar[chosen].map((other, place) => {
        const [x2, y2] = data.map[other];
        const thick = 0.5 + 3 * data.similarity[chosen][place];
        return shape("line", { x1, y1, x2, y2, "stroke-width": thick.toFixed(2) });
      }),
    );
  };
}
