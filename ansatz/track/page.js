const tip = document.body.appendChild(Object.assign(document.createElement("div"), {id: "tip", hidden: true}));
for (const svg of document.querySelectorAll("svg.chart")) {
  const {top, bottom, series} = JSON.parse(svg.dataset.chart);
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", top);
  cursor.setAttribute("y2", bottom);
  const show = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const all = series.flatMap(([name, points]) => points);
    const near = all.reduce((best, point) => Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best);
    tip.replaceChildren(Object.assign(document.createElement("b"), {textContent: near[1]}));
    for (const [name, points] of series) {
      const hit = points.findLast((point) => point[0] === near[0]);
      if (hit) tip.append(Object.assign(document.createElement("div"), {textContent: name + "  " + hit[2]}));
    }
    cursor.setAttribute("x1", near[0]);
    cursor.setAttribute("x2", near[0]);
    svg.append(cursor);
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + "px";
  };
  const hide = () => { tip.hidden = true; cursor.remove(); };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", hide);
}

// A box over the responses of a page: it hides those that lack one of its words.
const find = document.querySelector("#find");
if (find) {
  const groups = [...document.querySelectorAll("[data-group]")].map((group) => {
    const cards = [...group.querySelectorAll("article")];
    const head = [...group.children].filter((part) => !part.matches(".members")).map((part) => part.textContent).join(" ");
    return [group, cards.map((card) => [card, `${head} ${card.textContent}`.toLowerCase()])];
  });
  find.hidden = false;
  find.querySelector("input").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [group, cards] of groups) {
      let any = false;
      for (const [card, text] of cards) {
        card.hidden = !words.every((word) => text.includes(word));
        any ||= !card.hidden;
        shown += !card.hidden;
      }
      group.hidden = !any;
    }
    find.querySelector("output").textContent = words.length ? `${shown} shown` : "";
  });
}
