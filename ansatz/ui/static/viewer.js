// Keys, news of runs that go on, the brush of histograms, notes, and beginnings of new responses. Every page can be read
// without this script.

const typing = (element) => element.matches("input, select, textarea");

let waiting = "";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = waiting ? `${waiting} ${event.key}` : event.key;
  waiting = !waiting && event.key === "g" ? "g" : "";
  if (key === "j" || key === "k") return moveRow(key === "j" ? 1 : -1, event);
  if (key === "y") return navigator.clipboard?.writeText(location.href);
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!target) return;
  event.preventDefault();
  if (typing(target)) { target.focus(); target.select(); } else target.click();
});

function moveRow(by, event) {
  const rows = [...document.querySelectorAll("[data-row]")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[Math.min(Math.max(here + by, 0), rows.length - 1)];
  event.preventDefault();
  row?.querySelector("a")?.focus();
  row?.scrollIntoView({block: "nearest"});
}

for (const box of document.querySelectorAll(".histogram[data-field]")) {
  const svg = box.querySelector("svg"), {field, low, high} = box.dataset;
  const at = (event) => {
    const frame = svg.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - frame.left) / frame.width, 0), 1);
  };
  let start = null;
  svg.addEventListener("pointerdown", (event) => { start = at(event); svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const [from, to] = [start, at(event)].sort((a, b) => a - b);
    const bars = [...svg.querySelectorAll("rect")];
    bars.forEach((bar) => {
      const middle = (+bar.getAttribute("x") + 5) / (svg.viewBox.baseVal.width || 1);
      bar.classList.toggle("out", middle < from || middle > to);
    });
  });
  svg.addEventListener("pointerup", (event) => {
    const [from, to] = [start, at(event)].sort((a, b) => a - b);
    start = null;
    if (to - from < 0.01) return;
    const value = (share) => share <= 0 ? low : share >= 1 ? high : +(+low + share * (high - low)).toPrecision(4);
    const address = new URL(location.href), q = address.searchParams.get("q") ?? "", sort = /(?<!\S)sort:\S+/g;
    const sorts = q.match(sort) ?? [], old = q.replace(sort, "").trim();
    const test = `${field} ${value(from)}..${value(to)}`;
    address.searchParams.set("q", [old ? `(${old}) and ${test}` : test, ...sorts].join(" "));
    address.searchParams.delete("page");
    location.assign(address);
  });
}

// A stroke over a chart of metrics shows only its steps. The labels of points are "step 12".
if (document.querySelector("form[data-zoom]")) {
  for (const chart of document.querySelectorAll("svg.chart")) {
    const points = JSON.parse(chart.dataset.chart).series.flatMap(([, line]) => line);
    const stepAt = (event) => {
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse()).x;
      const near = points.reduce((best, point) => Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best);
      return parseInt(near[1].replace(/^\D+/, ""), 10);
    };
    let start = null;
    chart.addEventListener("pointerdown", (event) => { start = stepAt(event); });
    chart.addEventListener("pointerup", (event) => {
      const [from, to] = [start, stepAt(event)].sort((a, b) => a - b);
      start = null;
      if (from === null || !(to > from)) return;
      const address = new URL(location.href);
      address.searchParams.set("from", from);
      address.searchParams.set("to", to);
      location.assign(address);
    });
  }
}

// The form of a note opens at once, so that what is typed after its key is not taken for other keys. The answer is the
// page with the note; a note that could not be saved stays in the form.
const form = document.querySelector("#new-note"), opener = document.querySelector("#note");
const unsaved = () => Boolean(form?.elements.text.value || form?.elements.label.value);

async function saveNote() {
  const [, run, rollout] = location.pathname.match(/^\/run\/([^/]+)\/rollout\/(.+)$/).map(decodeURIComponent);
  const note = {run, rollout, text: form.elements.text.value, label: form.elements.label.value.trim()};
  const headers = {"Content-Type": "application/json", "X-Page-Token": form.dataset.token};
  const answer = await fetch("/api/notes", {method: "POST", headers, body: JSON.stringify(note)}).catch(() => null);
  if (answer?.ok) {
    form.reset();
    return location.reload();
  }
  const alert = form.querySelector("[role=alert]");
  alert.textContent = answer ? await answer.text() : "The viewer does not answer, so the note is not saved.";
  alert.hidden = false;
}

if (form) {
  opener.hidden = false;
  opener.addEventListener("click", () => {
    form.hidden = !form.hidden;
    opener.setAttribute("aria-expanded", !form.hidden);
    if (!form.hidden) form.elements.text.focus();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const save = form.querySelector("button");
    save.disabled = true;
    await saveNote();
    save.disabled = false;
  });
  addEventListener("beforeunload", (event) => { if (unsaved()) event.preventDefault(); });
}

// On the page that asks a checkpoint, a click on a token takes what is before it as the beginning of new responses.
const beginning = document.querySelector(".ask [name=beginning]");
for (const hint of beginning ? document.querySelectorAll(".scripted") : []) hint.hidden = false;
for (const response of beginning ? document.querySelectorAll("[data-beginning]") : []) {
  response.addEventListener("click", (event) => {
    const tokens = [...response.querySelectorAll("span")], chosen = tokens.indexOf(event.target);
    if (chosen < 0) return;
    const before = tokens.slice(0, chosen).map((token) => token.textContent).join("").replaceAll("◌", "");  // no text
    beginning.value = response.dataset.beginning + before;
    beginning.focus();
    beginning.scrollIntoView({block: "center"});
  });
}

// Asks every two seconds whether a run has got further, and rarely while nobody looks. What is read never moves by
// itself, unless the reader follows the run.
const {state, version, runs} = document.body.dataset;
const news = document.querySelector(".news"), follow = document.querySelector("#live");
const stepsOf = (all) => Object.values(all).flatMap((run) => Object.values(run.steps)).reduce((a, b) => a + b, 0);
const follows = () => Boolean(follow) && sessionStorage.getItem("follow") === "yes";

let next = 0;
async function askForNews() {
  clearTimeout(next);
  const answer = await fetch(state).catch(() => null);
  const now = answer?.ok ? await answer.json() : null;
  if (now && now.version !== version) {
    if (follows() && !unsaved()) return location.reload();
    const more = stepsOf(now.runs) - stepsOf(JSON.parse(runs));
    news.querySelector("a").textContent = more > 0 ? `${more} new step${more > 1 ? "s" : ""}: show` : "Something changed: show";
    news.hidden = false;
  }
  next = setTimeout(askForNews, document.hidden ? 30000 : 2000);
}

if (state) {
  next = setTimeout(askForNews, 2000);
  document.addEventListener("visibilitychange", askForNews);
}
if (follow) {
  const show = () => follow.setAttribute("aria-pressed", follows());
  follow.hidden = false;
  follow.addEventListener("click", () => {
    sessionStorage.setItem("follow", follows() ? "no" : "yes");
    show();
    if (follows() && !news.hidden) location.reload();
  });
  show();
}
