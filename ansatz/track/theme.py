"""Colours, style and script of the report and its charts. Everything is inlined: a report loads nothing."""

from __future__ import annotations

SERIES_COLOURS = 7
"""How many series colours there are; a chart with more lines uses them again."""

# Text on its background has a contrast of 4.5 or more in both themes, series colours of 3 or more (WCAG 2.1 AA).
_LIGHT = {
    "page": "#f6f5f1",
    "surface": "#ffffff",
    "ink": "#1d2229",
    "soft": "#5a626d",
    "rule": "#dddbd3",
    "good": "#1a7048",
    "bad": "#a92f3f",
    "warn": "#8a5a00",
    "good-bg": "#e5f3ea",
    "bad-bg": "#fae9eb",
    "warn-bg": "#fbf1da",
    "s0": "#1f5fa8",
    "s1": "#b9560f",
    "s2": "#1a7f5a",
    "s3": "#8247a8",
    "s4": "#b3364a",
    "s5": "#5b6470",
    "s6": "#846a00",
}
_DARK = {
    "page": "#13151a",
    "surface": "#1b1e25",
    "ink": "#e7e9ec",
    "soft": "#a2aab5",
    "rule": "#323741",
    "good": "#7fd6a6",
    "bad": "#f3939f",
    "warn": "#e9c069",
    "good-bg": "#1b3327",
    "bad-bg": "#3a2024",
    "warn-bg": "#362c16",
    "s0": "#7db3f0",
    "s1": "#f0a46a",
    "s2": "#6fcfa4",
    "s3": "#c79bea",
    "s4": "#f08a98",
    "s5": "#a9b2bd",
    "s6": "#dcc05a",
}


def _variables(selector: str) -> str:
    def block(colours: dict[str, str]) -> str:
        return selector + "{" + "".join(f"--{name}:{value};" for name, value in colours.items()) + "}"

    return f"{block(_LIGHT)}@media (prefers-color-scheme:dark){{{block(_DARK)}}}"


_FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'

_CHART_RULES = (
    f"svg.chart text{{font:12px {_FONT};fill:var(--ink)}}svg.chart .tick{{fill:var(--soft)}}"
    "svg.chart .end{text-anchor:end}svg.chart .middle{text-anchor:middle}"
    "svg.chart .heading{font-size:15px;font-weight:600}svg.chart .surface{fill:var(--surface)}"
    "svg.chart .grid{stroke:var(--rule)}svg.chart .divider{stroke:var(--soft);stroke-dasharray:2 3}"
    "svg.chart .mark{stroke:var(--warn);stroke-dasharray:1 4}"
    "svg.chart .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}"
    "svg.chart .faint{stroke-width:1;opacity:.35}svg.chart .band{opacity:.16;stroke:none}"
    "svg.chart .dot{stroke:var(--surface);stroke-width:1.2}"
    + "".join(
        f"svg.chart .line.s{i}{{stroke:var(--s{i})}}svg.chart .band.s{i},svg.chart .dot.s{i}{{fill:var(--s{i})}}"
        for i in range(SERIES_COLOURS)
    )
)

SVG_STYLE = _variables("svg.chart") + _CHART_RULES
"""The style of a chart that stands alone in a file."""

PAGE_STYLE = (
    _variables(":root")
    + _CHART_RULES
    + f"""
*{{box-sizing:border-box}}
:root{{color-scheme:light dark}}
body{{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 {_FONT}}}
main{{max-width:1080px;margin:0 auto;padding:2.5rem 1.25rem 4rem}}
h1{{font-size:clamp(1.6rem,4vw,2.3rem);line-height:1.2;letter-spacing:-.01em;margin:.1rem 0 .6rem;
overflow-wrap:anywhere}}
h2{{font-size:1.3rem;margin:3rem 0 .3rem}}
h3{{font-size:1rem;margin:0 0 .4rem}}
h3.caption{{margin-top:1.6rem}}
p{{margin:.3rem 0 1rem;max-width:70ch}}
.soft{{overflow-wrap:anywhere}}
.kicker,.soft{{color:var(--soft)}}
.kicker{{font-size:.85rem;letter-spacing:.06em;text-transform:uppercase;margin:0}}
.lede{{font-size:1.15rem}}
.card{{background:var(--surface);border:1px solid var(--rule);border-radius:10px;padding:1rem}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem;margin:1.4rem 0}}
.tile b{{display:block;font-size:1.5rem;line-height:1.25;font-variant-numeric:tabular-nums}}
.tile span{{display:block;color:var(--soft);font-size:.88rem;line-height:1.35;overflow-wrap:anywhere}}
.grid{{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:1rem}}
.grid>*,.full{{min-width:0}}
.full{{margin:1rem 0}}
.card p,.card details{{font-size:.88rem;margin:.5rem 0 0;color:var(--soft)}}
.card summary{{font-weight:400}}
svg.chart{{display:block;width:100%;height:auto;touch-action:pan-y}}
.narrow{{display:none}}
@media (max-width:640px){{.wide{{display:none}}.narrow{{display:block}}main{{padding:1.5rem .9rem 3rem}}}}
.scroll{{overflow-x:auto;padding:0}}
table{{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}}
th,td{{padding:.5rem .7rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule);vertical-align:top}}
th:first-child,td:first-child{{text-align:left}}
tbody tr:last-child>*{{border-bottom:0}}
thead th{{color:var(--soft);font-weight:600;font-size:.85rem}}
tbody th{{font-weight:600}}
td.prose{{text-align:left;white-space:normal;min-width:18rem}}
td small{{display:block;color:var(--soft);font-size:.8rem}}
.result td,.result th{{font-weight:650}}
.result small{{font-weight:400}}
ul.health_checks{{list-style:none;padding:0;margin:.6rem 0 1.2rem;display:grid;gap:.4rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr))}}
ul.health_checks li{{padding:.45rem .8rem;border-radius:8px;font-size:.93rem;background:var(--good-bg)}}
ul.health_checks li.warn{{background:var(--warn-bg)}}
ul.health_checks b{{color:var(--good)}}
ul.health_checks .warn b{{color:var(--warn)}}
details{{margin:.8rem 0}}
summary{{cursor:pointer;font-weight:600;padding:.3rem 0}}
summary:focus-visible{{outline:2px solid var(--s0);outline-offset:2px;border-radius:4px}}
pre{{overflow:auto;max-height:30rem;margin:0;font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
.rollouts{{display:grid;gap:1rem}}
.snapshots{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,270px),1fr));gap:.8rem;margin-top:.8rem}}
.snapshot{{border:1px solid var(--rule);border-top:4px solid var(--soft);border-radius:8px;padding:.7rem;min-width:0}}
.snapshot.good{{border-top-color:var(--good)}}
.snapshot.bad{{border-top-color:var(--bad)}}
.snapshot.warn{{border-top-color:var(--warn)}}
.snapshot pre{{white-space:pre-wrap;overflow-wrap:anywhere;max-height:18rem;margin-top:.5rem}}
.snapshot del{{background:var(--bad-bg);color:var(--bad)}}
.snapshot ins{{background:var(--good-bg);color:var(--good)}}
.snapshot header{{display:flex;flex-wrap:wrap;gap:.3rem .6rem;align-items:center;font-size:.88rem}}
.question{{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}}
.card p.question{{color:var(--ink);font-size:.97rem;max-width:80ch}}
.badge{{padding:.08rem .5rem;border-radius:99px;font-size:.82rem;font-weight:600}}
.badge.good{{background:var(--good-bg);color:var(--good)}}
.badge.bad{{background:var(--bad-bg);color:var(--bad)}}
.badge.warn{{background:var(--warn-bg);color:var(--warn)}}
#tip{{position:fixed;pointer-events:none;background:var(--ink);color:var(--page);border-radius:6px;padding:.4rem .6rem;
font-size:.82rem;line-height:1.4;max-width:17rem;z-index:2;font-variant-numeric:tabular-nums}}
.cursor{{stroke:var(--soft);stroke-width:1}}
"""
)

PAGE_SCRIPT = """
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
"""
