"use strict";

// The map of topics: a circle for each, by size, at the place the file gives it. The list holds the same topics for
// keyboards and screen readers, so the map itself is one picture to them.
function drawMap(data, box, { describe, first }, choose) {
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
    const word = first(topic, 1);
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

  // shares: Map of topic to share for the topics found, or null when nothing is searched for.
  return function markMap(chosen, shares) {
    circles.forEach((circle, topic) => {
      circle.classList.toggle("chosen", topic === chosen);
      circle.classList.toggle("found", shares !== null && shares.has(topic));
      circle.classList.toggle("aside", shares !== null && !shares.has(topic));
    });
    for (const [topic, label] of labels) label.classList.toggle("chosen", topic === chosen);
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
