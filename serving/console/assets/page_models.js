import { h, call, number, percent, empty, table, failure, say, put } from "/console/dom.js";

export const title = "Models";
export const lead = "What this server should serve, what it serves, and what is known about each version.";

export async function open(body, context) {
  const { models, denied } = await call("/console/api/models");
  if (!models.length) {
    body.append(empty("No model yet", h("p", {}, "Export one into the repository; the server loads it by itself:"),
      h("pre", {}, "ghostless export runs/demo --name demo")));
    return;
  }
  if (denied) body.append(h("p", { class: "note" }, "Versions and details need a login with the call “read”. Wanted and served versions come from the metrics, which are open."));
  for (const model of models) body.append(await card(model, context, denied));
}

async function card(model, context, denied) {
  const isRight = model.wanted === model.served;
  const place = h("div", { class: "detail" });
  const failed = model.versions.find((each) => each.version === model.wanted && each.message);
  const section = h("section", { class: "panel model" },
    h("header", {}, h("h2", {}, model.name), model.is_default ? h("span", { class: "pill" }, "default") : null,
      h("span", { class: `pill ${isRight ? "good" : "warn"}` }, isRight ? `version ${model.served} in service`
        : model.served ? `version ${model.served} served, ${model.wanted} wanted` : `version ${model.wanted} wanted, none served`)),
    isRight ? null : h("p", { class: "bad" }, failed ? `Why not: ${failed.message}` : "The wanted version is not loaded yet."),
    denied ? null : versions(model, context, place), place);
  if (!denied && model.served) await describe(model, model.served, context, place);
  return section;
}

function versions(model, context, place) {
  const isAdmin = context.state.calls.includes("admin");
  const rows = [...model.versions].reverse().map((each) => [
    h("button", { class: "link", onclick: () => describe(model, each.version, context, place) }, `Version ${each.version}`),
    h("span", { class: `pill ${each.state === "READY" ? "good" : each.state === "FAILED" ? "bad" : ""}` }, each.state.toLowerCase()),
    [each.in_service ? "in service" : "", each.version === model.wanted && !each.in_service ? "wanted" : ""].filter(Boolean).join(", ") || "–",
    each.message || "–",
    each.in_service ? "" : h("button", { class: "small", disabled: !isAdmin, title: isAdmin ? null : "Needs a login with the call admin",
      onclick: () => change(model, each.version, "promote", context) }, "Promote"),
  ]);
  return table(["Version", "State", "Use", "Why not", "Action"], rows, { label: `Versions of ${model.name}` });
}

async function change(model, version, action, context) {
  const verb = action === "promote" ? `Put version ${version} in service` : `Roll back to version ${version}`;
  const isSure = await context.confirm(`${verb}?`, `${model.name} serves version ${model.served} now. The version is loaded on trial first; running requests finish on the old one. The change is written to the audit log.`,
    action === "promote" ? `Promote version ${version}` : `Roll back to ${version}`);
  if (!isSure) return;
  const path = `/console/api/models/${encodeURIComponent(model.name)}/${action}`;
  try {
    await call(path, action === "promote" ? { version } : {});
    say(`${model.name} version ${version} is wanted`);
    await served(model.name, version);
    await context.refresh();
  } catch (error) {
    await context.confirm("It was not changed", error.message, "Close");
  }
}

// Wait until the server serves the version, at most for half a minute.
async function served(name, version) {
  for (let round = 0; round < 60; round += 1) {
    const { models } = await call("/console/api/models");
    if (models.some((each) => each.name === name && each.served === version)) return;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

function parsed(model, key) {
  try {
    return JSON.parse(model.metadata[`ghostless.${key}`]);
  } catch {
    return null;
  }
}

async function describe(model, version, context, place) {
  let found;
  try {
    found = await call(`/console/api/models/${encodeURIComponent(model.name)}/versions/${version}`);
  } catch (error) {
    put(place, failure(error));
    return;
  }
  const { model: full, disk } = found;
  const calibration = parsed(full, "calibration") || {}, pairs = parsed(full, "pairs") || {}, isAdmin = context.state.calls.includes("admin");
  const back = disk.roll_back_to;
  put(place,
    h("div", { class: "row" }, h("h3", {}, `Version ${full.version}`),
      full.version === model.served && back ? h("button", { class: "small", disabled: !isAdmin, title: isAdmin ? null : "Needs a login with the call admin",
        onclick: () => change(model, back, "rollback", context) }, `Roll back to ${back}`) : null),
    h("dl", { class: "facts" },
      fact("Predicts", `${full.target.name} (${full.target.unit})`, "wide"), fact("Range", `${number(full.target.low)} to ${number(full.target.high)}`),
      fact("Head", `${full.head.toUpperCase()}, ${full.method}`), fact("Exported", (parsed(full, "created") || "").slice(0, 16).replace("T", " ") || "–"),
      fact("Wanted since", (disk.since || "–").slice(0, 16).replace("T", " ")),
      fact("Trained on", calibration.train_rows ? `${number(calibration.train_rows, 6)} rows` : "–"),
      fact("NLL", number(calibration.nll)), fact("CRPS", number(calibration.crps)), fact("RMSE", number(calibration.rmse)),
      fact("Pair test", h("span", { class: `pill ${pairs.verdict === "agrees" ? "good" : pairs.verdict === "disagrees" ? "bad" : ""}` }, pairs.verdict || "unverified"))),
    h("div", { class: "columns" }, coverage(calibration), features(full)),
    pairTest(pairs), report(disk.report),
    h("details", {}, h("summary", {}, "All metadata"), h("pre", {}, Object.keys(full.metadata || {}).sort()
      .map((key) => `${key.replace("ghostless.", "")}: ${full.metadata[key].slice(0, 300)}`).join("\n"))));
}

function fact(name, value, kind) {
  return h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value));
}

function coverage(calibration) {
  const rows = [50, 80, 90].map((level) => [level, calibration[`pit_coverage_${level}`] ?? calibration[`coverage_${level}`]])
    .filter((each) => each[1] !== undefined).map(([level, covered]) => [`${level}% interval`, percent(covered), `${(100 * covered - level).toFixed(1)} points`]);
  if (!rows.length) return h("div", {}, h("h4", {}, "Calibration on held-out rows"), h("p", { class: "muted" }, "The file has no figures."));
  return h("div", {}, h("h4", {}, "Calibration on held-out rows"), table(["Interval", "#Covers", "#Off by"], rows, { label: "Calibration" }));
}

function features(full) {
  const rows = full.features.map((each) => [each.name, each.type.toLowerCase(), each.role.toLowerCase(),
    each.vocabulary_size ? number(each.vocabulary_size, 6) : "–"]);
  return h("div", {}, h("h4", {}, "Features"), table(["Name", "Type", "Role", "#Known ids"], rows, { label: "Features" }));
}

function pairTest(pairs) {
  if (!pairs.figures || !pairs.figures.length) return null;
  const rows = pairs.figures.map((each) => [each.feature, each.history, number(each.pairs, 6), `${number(each.measured)} ± ${number(each.error)}`, number(each.served), each.verdict]);
  return h("details", {}, h("summary", {}, `Pair test: is the epistemic variance right? It ${pairs.verdict}.`),
    h("p", { class: "muted" }, "Errors of held-out rows that share an id vary together by as much as the model did not know about the id. “Measured” is that covariance, “served” what the model says, by the length of the id's history."),
    table(["Feature", "History", "#Pairs", "#Measured", "#Served", "Verdict"], rows, { label: "Pair test" }));
}

function report(content) {
  if (!content || !content.checks) return null;
  const passed = content.checks.filter((each) => each.ok).length;
  const rows = content.checks.map((each) => [each.name, number(each.value), number(each.bound), each.ok ? "yes" : "no"]);
  return h("details", {}, h("summary", {}, `Verification of the export: ${passed} of ${content.checks.length} checks passed`),
    table(["Check", "#Value", "#Bound", "OK"], rows, { label: "Verification" }));
}
