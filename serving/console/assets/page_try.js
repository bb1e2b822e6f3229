import { h, call, empty, failure, table, choice, number, say, put } from "/console/dom.js";
import { candidateOf, densityCard } from "/console/densities.js";
import { curl, python, grpc } from "/console/snippets.js";

export const title = "Try it";
export const lead = "Ask a model about a few candidates and see each predictive distribution, its uncertainty, and how policies rank them.";

const ROWS = 3, MOST = 12;
const POLICIES = [["Mean", { mean: {} }], ["90% quantile", { quantile: { level: 0.9 } }], ["UCB, κ = 1", { ucb: { kappa: 1 } }],
  ["Thompson, seed 1", { thompson: { seed: 1 } }], ["Risk averse, λ = 1", { risk_averse: { lambda: 1 } }], ["Acquisition, γ = 0.1", { acquisition: { gamma: 0.1 } }]];

export async function open(body, context) {
  const { models } = await call("/v1/models");
  const ready = (models || []).filter((each) => each.version);
  if (!ready.length) {
    body.append(empty("No model is in service", h("p", {}, "Export one with ", h("code", {}, "ghostless export"), " and come back.")));
    return;
  }
  const form = h("div", {});
  const open = (name) => put(form, editor(ready.find((each) => each.name === name), context));
  if (ready.length > 1) body.append(choice("Model", ready.map((each) => [each.name, each.name]), ready[0].name, open));
  body.append(form);
  open(ready[0].name);
}

// Typical values of a feature, from the file's metadata.
function examples(model, feature) {
  try {
    const found = JSON.parse(model.metadata["ghostless.features"]).find((each) => each.name === feature.name).examples;
    if (found && found.length) return found;
  } catch { /* an older file has none */ }
  return { INT64: [1, 2, 3], FLOAT: [10, 20, 30], STRING: ["1", "2", "3"] }[feature.type];
}

function input(feature, value, label) {
  const isText = feature.type === "STRING";
  return h("input", { type: isText ? "text" : "number", step: feature.type === "INT64" ? "1" : "any", required: true, value: String(value), "aria-label": label,
    "data-feature": feature.name, "data-type": feature.type });
}

function read(field) {
  return field.dataset.type === "STRING" ? field.value : Number(field.value);
}

function editor(model, context) {
  const shared = model.features.filter((each) => each.role === "CONTEXT");
  const own = model.features.filter((each) => each.role === "CANDIDATE");
  const results = h("div", { class: "results", "aria-live": "polite" });
  const rows = h("tbody", {});
  const add = (at) => {
    if (rows.children.length >= MOST) return;
    const line = h("tr", {}, h("th", { scope: "row" }, "#"), own.map((feature) => {
      const known = examples(model, feature);
      return h("td", {}, input(feature, known[at % known.length], `${feature.name} of the candidate`));
    }), h("td", {}, h("button", { type: "button", class: "quiet", "aria-label": "Remove this candidate", onclick: () => { if (rows.children.length > 1) { line.remove(); renumber(); } } }, "×")));
    rows.append(line);
    renumber();
  };
  const renumber = () => [...rows.children].forEach((line, at) => {
    line.firstChild.textContent = at + 1;
    for (const field of line.querySelectorAll("input")) field.setAttribute("aria-label", `${field.dataset.feature} of candidate ${at + 1}`);
  });
  for (let at = 0; at < ROWS; at += 1) add(at);
  const top = h("div", { class: "fields" }, shared.map((feature) =>
    h("label", { class: "field" }, h("span", {}, feature.name, h("small", {}, ` ${feature.type.toLowerCase()}`)), input(feature, examples(model, feature)[0], feature.name))));
  const request = () => ({
    model: model.name,
    context: Object.fromEntries([...top.querySelectorAll("input")].map((field) => [field.dataset.feature, read(field)])),
    candidates: Object.fromEntries(own.map((feature) => [feature.name, [...rows.children].map((line) =>
      read([...line.querySelectorAll("input")].find((field) => field.dataset.feature === feature.name)))])),
  });
  const submit = async (event) => {
    event.preventDefault();
    try {
      await predict(model, request(), results, context);
    } catch (error) {
      put(results, failure(error));
    }
  };
  const form = h("form", { class: "panel", onsubmit: submit },
    shared.length ? [h("h2", {}, "Context"), h("p", { class: "muted" }, "Sent once for all candidates."), top] : null,
    h("h2", {}, "Candidates"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Candidates" }, h("table", { class: "editable" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), own.map((feature) =>
      h("th", { scope: "col" }, feature.name, h("small", {}, ` ${feature.type.toLowerCase()}`))), h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Remove")))), rows)),
    h("div", { class: "actions start" }, h("button", { type: "submit", class: "primary", id: "predict" }, "Predict"),
      h("button", { type: "button", onclick: () => add(rows.children.length) }, "Add a candidate")));
  results.append(empty("No answer yet", h("p", {}, "The form has typical values of the training data. Press Predict, or change a value first: an id that the model has never seen shows what ignorance looks like.")));
  return h("div", {}, form, results);
}

async function predict(model, request, place, context) {
  const started = performance.now();
  const answers = await Promise.all([call("/v1/predict", request),
    ...POLICIES.map(([, scoring]) => call("/v1/predict", { ...request, scoring, outputs: ["mean"] }).catch(() => null))]);
  const took = performance.now() - started;
  const [answer, ...ranked] = answers;
  const names = Object.keys(request.candidates);
  const label = (at) => `${at + 1}: ${names.length ? `${names[0]} ${request.candidates[names[0]][at]}` : ""}`;
  const place_of = (ranking, at) => ranking.ranking.indexOf(at) + 1;
  const byMean = ranked[0];
  const cards = Array.from({ length: answer.rows }, (_, at) =>
    densityCard(label(at), candidateOf(answer, at), model.target, byMean ? place_of(byMean, at) : 0));
  put(place,
    h("div", { class: "row" }, h("h2", {}, "Distributions"), h("p", { class: "muted" }, `${answer.model} version ${answer.version}, ${model.target.name} (${model.target.unit}), ${number(took)} ms for ${1 + POLICIES.length} calls`)),
    h("div", { class: "cards" }, cards),
    h("p", { class: "muted" }, "Filled: density. Stems: values with a probability of their own. Line: mean. Marks below the axis: quantiles. Bar: how much of the variance is noise (aleatoric) and how much is ignorance (epistemic)."),
    h("h2", {}, "Rankings"), h("p", { class: "muted" }, "Rank of each candidate by policy, with its score. Ignorance raises a candidate under UCB and Thompson; any uncertainty lowers it under risk aversion."),
    h("div", { class: "panel" }, table(["Candidate", ...POLICIES.map(([name]) => name)], Array.from({ length: answer.rows }, (_, at) => [label(at),
      ...ranked.map((each) => each ? [h("b", {}, place_of(each, at)), h("small", {}, ` ${number(each.score[at])}`)] : "–")]), { label: "Rankings" })),
    h("h2", {}, "This request"), snippets(request, model, context));
  say(`Predicted ${answer.rows} candidates`);
}

function snippets(request, model, context) {
  const texts = { curl: curl(request, model.features, context.state), Python: python(request, model.features, context.state), gRPC: grpc(request, model.features, context.state) };
  const shown = h("pre", { tabindex: "0" }, texts.curl);
  const buttons = Object.keys(texts).map((name) => h("button", { type: "button", class: "tab", "aria-pressed": String(name === "curl"), onclick: (event) => {
    shown.textContent = texts[name];
    for (const each of buttons) each.setAttribute("aria-pressed", String(each === event.target));
  } }, name));
  const copy = h("button", { type: "button", class: "quiet", onclick: async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
      say("Copied");
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
    }
  } }, "Copy");
  return h("div", { class: "panel" }, h("div", { class: "row" }, h("div", { class: "tabs", role: "group", "aria-label": "Language" }, buttons), copy), shown);
}
