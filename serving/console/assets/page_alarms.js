import { h, call, empty } from "/console/dom.js";

export const title = "Alarms";
export const lead = "What is wrong with this server now, and what to do about it.";

export async function open(body) {
  const { alarms, window_s: seconds } = await call("/console/api/alarms");
  const minutes = Math.max(1, Math.round(seconds / 60));
  const scope = `Judged by the last ${minutes === 1 ? "minute" : `${minutes} minutes`} of this server. Prometheus (deploy/prometheus) also compares with yesterday and with other servers, and wakes people up.`;
  if (!alarms.length) {
    body.append(empty("Nothing is wrong", h("p", {}, scope)));
    return;
  }
  body.append(h("p", { class: "note" }, scope), ...alarms.map((alarm) => h("section", { class: "panel alarm" },
    h("header", {}, h("h2", {}, alarm.name), h("span", { class: `pill ${alarm.severity === "page" ? "bad" : "warn"}` }, alarm.severity)),
    h("p", {}, h("b", {}, alarm.summary)), alarm.runbook ? h("p", {}, alarm.runbook) : null)));
}
