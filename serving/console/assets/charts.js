// Small charts drawn as SVG. Colours and type come from the style sheet, so both themes work.
import { h, svg, number } from "/console/dom.js";

const WIDTH = 640, HEIGHT = 200, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 24;

export function ticks(low, high, count = 4) {
  const span = high - low || 1;
  const raw = span / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

function frame(label, scale, format, below) {
  const lines = scale.ys.map((value) => svg("g", {},
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: scale.y(value), y2: scale.y(value) }),
    svg("text", { class: "tick", x: LEFT - 8, y: scale.y(value) + 4, "text-anchor": "end" }, format(value))));
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart" }, lines, below);
}

function scales(low, high, first, last) {
  const ys = ticks(low, high);
  const top = Math.max(high, ys[ys.length - 1] ?? high);
  return {
    ys,
    y: (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (top - low || 1)),
    x: (value) => LEFT + (WIDTH - LEFT - RIGHT) * (value - first) / (last - first || 1),
  };
}

// `lines`: [{name, values, kind}], values in the order of `times`; null is a gap.
export function lineChart(title, times, lines, format = number, options = {}) {
  const all = lines.flatMap((line) => line.values).filter((value) => value !== null && value !== undefined);
  const shown = lines.map((line) => {
    const last = [...line.values].reverse().find((value) => value !== null && value !== undefined);
    return { ...line, last };
  });
  const legend = h("ul", { class: "legend" }, shown.map((line, at) => h("li", {}, h("i", { class: `key c${line.kind ?? at}` }),
    line.name, " ", h("b", {}, line.last === undefined ? "–" : format(line.last)))));
  const heading = h("figcaption", {}, h("h3", {}, title), legend);
  if (!all.length) {
    return h("figure", { class: "panel" }, heading, h("p", { class: "muted none" }, options.none || "Nothing yet."));
  }
  const low = Math.min(options.low ?? 0, ...all), high = Math.max(...all, low + (options.least ?? 1e-9));
  const scale = scales(low, high, times[0], times[times.length - 1]);
  const paths = shown.map((line, at) => {
    let draw = "", pen = false;
    line.values.forEach((value, index) => {
      if (value === null || value === undefined) { pen = false; return; }
      draw += `${pen ? "L" : "M"}${scale.x(times[index]).toFixed(1)},${scale.y(value).toFixed(1)}`;
      pen = true;
    });
    const dots = line.values.filter((value) => value !== null && value !== undefined).length === 1
      ? line.values.map((value, index) => value === null || value === undefined ? null
        : svg("circle", { class: `dot c${line.kind ?? at}`, cx: scale.x(times[index]), cy: scale.y(value), r: 3 })) : [];
    return [svg("path", { class: `line c${line.kind ?? at}`, d: draw }), dots];
  });
  const label = `${title}. Latest: ${shown.map((line) => `${line.name} ${line.last === undefined ? "none" : format(line.last)}`).join(", ")}.`;
  const chart = frame(label, scale, format, [paths,
    svg("text", { class: "tick", x: LEFT, y: HEIGHT - 6 }, clock(times[0])),
    svg("text", { class: "tick", x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, clock(times[times.length - 1]))]);
  return h("figure", { class: "panel" }, heading, chart);
}

// Share of outcomes inside intervals against their levels.
export function coverageChart(rows) {
  const scale = scales(0, 1, 0, 1);
  const label = `Coverage by level: ${rows.map((row) => `${row.level} covers ${number(row.covered)}`).join(", ")}.`;
  const sorted = rows.filter((row) => row.covered !== null);
  const draw = sorted.map((row, at) => `${at ? "L" : "M"}${scale.x(row.level)},${scale.y(row.covered)}`).join("");
  return frame(label, scale, (value) => `${Math.round(100 * value)}%`, [
    svg("line", { class: "ideal", x1: scale.x(0), y1: scale.y(0), x2: scale.x(1), y2: scale.y(1) }),
    svg("path", { class: "line c0", d: draw }),
    sorted.map((row) => svg("circle", { class: "dot c0", cx: scale.x(row.level), cy: scale.y(row.covered), r: 4 })),
    [0, 0.25, 0.5, 0.75, 1].map((value) => svg("text", { class: "tick", x: scale.x(value), y: HEIGHT - 6, "text-anchor": value === 1 ? "end" : "middle" },
      `${100 * value}%`))]);
}

// Counts of the PIT between 0 and 1; the dashed line is what a calibrated model has.
export function pitChart(counts) {
  const total = counts.reduce((sum, each) => sum + each, 0) || 1;
  const shares = counts.map((each) => each * counts.length / total);
  const scale = scales(0, Math.max(1.5, ...shares), 0, 1);
  const width = 1 / counts.length;
  return frame("Histogram of the PIT; flat means calibrated.", scale, (value) => number(value, 2), [
    shares.map((share, at) => svg("rect", { class: "column c0", x: scale.x(at * width) + 1, y: scale.y(share),
      width: scale.x(width) - scale.x(0) - 2, height: Math.max(0, scale.y(0) - scale.y(share)), rx: 2 })),
    svg("line", { class: "ideal", x1: scale.x(0), x2: scale.x(1), y1: scale.y(1), y2: scale.y(1) }),
    [0, 0.5, 1].map((value) => svg("text", { class: "tick", x: scale.x(value), y: HEIGHT - 6, "text-anchor": "middle" }, value))]);
}
