import { h, call, number, percent, table, empty, repeat, choice, put } from "/console/dom.js";
import { lineChart, coverageChart, pitChart } from "/console/charts.js";
import { filtered } from "/console/page_live.js";

export const title = "Truth";
export const lead = "Predictions against what really happened, from the outcomes that clients report.";

export async function open(body) {
  let chosen = "all";
  const bar = h("div", { class: "row" }), place = h("div", {});
  body.append(bar, place);
  const listed = await call("/console/api/live");
  const update = async () => {
    try {
      draw(await call(filtered("/console/api/truth", chosen)), place);
    } catch (error) {
      put(place, h("p", { class: "bad", role: "alert" }, error.message));
    }
  };
  const options = [["all", "All models"], ...listed.versions.map((each) => [JSON.stringify([each.model, each.version]), `${each.model} version ${each.version}`])];
  bar.append(choice("Show", options, chosen, (value) => { chosen = value; update(); }));
  await update();
  return repeat(5, update);
}

function draw(found, place) {
  const joined = found.outcomes.joined || 0;
  if (!joined) {
    put(place, empty("No outcomes yet",
      h("p", {}, `${number(found.waiting, 9)} predictions are stored. Send a request_id with Predict and report what happened later; coverage, PIT and scores appear here:`),
      h("pre", {}, `curl ${location.origin}/v1/outcomes \\\n  -d '{"request_ids": ["abc"], "rows": [0], "actuals": [1.5]}'`),
      h("p", { class: "muted" }, "In bulk: ", h("code", {}, "ghostless outcomes"), " or ", h("code", {}, "client.record_outcomes"), ".")));
    return;
  }
  const times = found.series.map((each) => each.time);
  const none = { none: "No outcomes since you opened the console." };
  put(place,
    h("dl", { class: "facts big" }, fact("Joined outcomes", number(joined, 9)), fact("NLL", number(found.nll)), fact("CRPS", number(found.crps)), fact("Predictions stored", number(found.waiting, 9))),
    h("div", { class: "grid2" },
      h("figure", { class: "panel" }, h("figcaption", {}, h("h3", {}, "Coverage by level"), h("p", { class: "muted" }, "Share of outcomes inside each central interval. On the dashed line, intervals hold what they say.")), coverageChart(found.coverage)),
      h("figure", { class: "panel" }, h("figcaption", {}, h("h3", {}, "PIT"), h("p", { class: "muted" }, "Flat: calibrated. U: too narrow. Hump: too wide. Slope: biased.")), pitChart(found.pit)),
      lineChart("NLL of new outcomes", times, [{ name: "NLL", values: found.series.map((each) => each.nll) }], (v) => number(v, 3), none),
      lineChart("CRPS of new outcomes", times, [{ name: "CRPS", values: found.series.map((each) => each.crps) }], (v) => number(v, 3), none)),
    h("div", { class: "grid2" },
      h("div", { class: "panel" }, h("h3", {}, "Coverage"), table(["Level", "#Covers", "#Off by", "#Outcomes"], found.coverage.map((each) =>
        [percent(each.level, 0), percent(each.covered), `${(100 * (each.covered - each.level)).toFixed(1)} points`, number(each.rows, 9)]), { label: "Coverage" })),
      h("div", { class: "panel" }, h("h3", {}, "Epistemic variance: served against measured"), pairs(found.pairs))),
    h("div", { class: "panel" }, h("h3", {}, "Outcomes by result"), table(["Result", "#Outcomes"], Object.entries(found.outcomes).map(([name, count]) => [name, number(count, 9)]), { label: "Outcomes by result" })));
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function pairs(found) {
  const rows = Object.entries(found).filter(([, each]) => each.pairs).map(([shared, each]) =>
    [shared === "context" ? "two rows of one request" : "one candidate in two requests", number(each.pairs, 9), `${number(each.measured)} ± ${number(each.standard_error)}`, number(each.served)]);
  if (!rows.length) return h("p", { class: "muted" }, "Needs two outcomes that share a request or a candidate.");
  return [h("p", { class: "muted" }, "Errors of pairs that share an id vary together by as much as the model does not know about it."),
    table(["Pairs of", "#Pairs", "#Measured", "#Served"], rows, { label: "Pairs" })];
}
