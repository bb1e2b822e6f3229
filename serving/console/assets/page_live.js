import { h, call, number, percent, milliseconds, table, empty, repeat, choice, put } from "/console/dom.js";
import { lineChart } from "/console/charts.js";

export const title = "Live";
export const lead = "Load, latency and uncertainty of the requests that this server answers, from all its workers.";

// "all", or a model and a version as they stand in the choice.
export function filtered(path, chosen) {
  if (chosen === "all") return path;
  const [model, version] = JSON.parse(chosen);
  return `${path}?${new URLSearchParams({ model, version })}`;
}

export async function open(body) {
  let chosen = "all";
  const bar = h("div", { class: "row" }), charts = h("div", { class: "grid2" }), below = h("div", {});
  body.append(bar, charts, below);
  const update = async () => {
    let found;
    try {
      found = await call(filtered("/console/api/live", chosen));
    } catch (error) {
      put(bar, h("p", { class: "bad", role: "alert" }, `The server does not answer: ${error.message}`));
      return;
    }
    if (!bar.contains(document.activeElement)) {
      const options = [["all", "All models"], ...found.versions.map((each) => [JSON.stringify([each.model, each.version]), `${each.model} version ${each.version}`])];
      put(bar, choice("Show", options, chosen, (value) => { chosen = value; document.activeElement.blur(); update(); }),
        h("p", { class: "muted" }, `${number(found.workers.ready)} workers ready, ${number(found.totals.requests, 9)} requests and ${number(found.totals.rows, 9)} rows since the start`));
    }
    draw(found, charts, below);
  };
  await update();
  return repeat(5, update);
}

function draw(found, charts, below) {
  const series = found.series, times = series.map((each) => each.time);
  const values = (key) => series.map((each) => each[key]);
  if (!series.length) {
    put(charts);
    put(below, empty("Collecting", h("p", {}, "The first figures come in a few seconds. They are collected while somebody looks; Prometheus collects them always.")));
    return;
  }
  const quiet = { none: "No requests yet. Send some on the page Try it." }, rate = { least: 1 }, share = { ...quiet, least: 0.02 };
  const features = [...new Set(series.flatMap((each) => Object.keys(each.unknown_ids)))];
  put(charts,
    lineChart("Requests per second", times, [{ name: "requests", values: values("requests_per_s") }, { name: "server errors", values: values("errors_per_s"), kind: 3 }], (v) => number(v, 3), rate),
    lineChart("Latency in the server", times, [{ name: "p50", values: values("p50_s") }, { name: "p95", values: values("p95_s") }, { name: "p99", values: values("p99_s") }], milliseconds, quiet),
    lineChart("Rows per second", times, [{ name: "rows", values: values("rows_per_s") }], (v) => number(v, 3), rate),
    lineChart("Queue and refusals", times, [{ name: "rows waiting", values: values("queue_rows") }, { name: "refused per second", values: values("refused_per_s"), kind: 3 }], (v) => number(v, 3), rate),
    lineChart("Uncertainty, mean standard deviation", times, [{ name: "aleatoric", values: values("aleatoric_std"), kind: "a" }, { name: "epistemic", values: values("epistemic_std"), kind: "e" }], (v) => number(v, 3), quiet),
    lineChart("Share of the variance that is epistemic", times, [{ name: "epistemic share", values: values("epistemic_share"), kind: "e" }], percent, share),
    lineChart("Out of distribution", times, [{ name: "rows unlike training", values: values("out_of_distribution"), kind: 3 }], percent, share),
    lineChart("Unknown ids", times, features.map((name) => ({ name, values: series.map((each) => each.unknown_ids[name] ?? null) })), percent, share));
  put(below, h("h2", {}, "By version, last minute"), h("div", { class: "panel" },
    table(["Version", "#Requests/s", "#p50", "#p99", "#Rows/s", "#Epistemic share", "#Out of distribution"], found.versions.map((each) =>
      [`${each.model} ${each.version}`, number(each.requests_per_s), milliseconds(each.p50_s), milliseconds(each.p99_s), number(each.rows_per_s), percent(each.epistemic_share), percent(each.out_of_distribution, 2)]), { label: "By version" })));
}
