// The console: which page is shown, who is logged in, and how many alarms there are.
import { h, call, session, say, failure, repeat, put } from "/console/dom.js";
import * as models from "/console/page_models.js";
import * as tryIt from "/console/page_try.js";
import * as live from "/console/page_live.js";
import * as truth from "/console/page_truth.js";
import * as alarms from "/console/page_alarms.js";
import * as api from "/console/page_api.js";

const PAGES = { models, try: tryIt, live, truth, alarms, api };
const main = document.getElementById("main");
const dialog = document.getElementById("dialog");
let state = {};
let leave = () => {};

async function show() {
  const [name, ...rest] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  const key = PAGES[name] ? name : "models";
  const page = PAGES[key];
  leave();
  leave = () => {};
  document.title = `${page.title} · Ghostless`;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#/${key}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const body = h("div", { class: "page" });
  put(main, h("div", { class: "page-head" }, h("h1", {}, page.title), h("p", { class: "lead" }, page.lead)), body);
  try {
    leave = (await page.open(body, { state, rest, confirm, refresh: start })) || (() => {});
    body.dataset.ready = "yes";
    say(`${page.title} loaded`);
  } catch (error) {
    put(body, failure(error));
  }
}

function account() {
  const place = document.getElementById("account");
  if (!state.has_identities) {
    put(place, h("span", { class: "muted", title: "The server has no identities (--identities)" }, "open access"));
  } else if (state.identity) {
    put(place, h("span", {}, state.identity), h("button", { class: "quiet", onclick: logOut }, "Log out"));
  } else {
    put(place, h("button", { class: "quiet", onclick: logIn }, "Log in"));
  }
}

function logIn() {
  const error = h("p", { class: "bad", role: "alert" });
  const token = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, id: "token" });
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        await call("/console/api/login", { token: token.value });
        token.value = "";
        dialog.close();
        await start();
      } catch (problem) {
        error.textContent = problem.message;
      }
    },
  }, h("h2", { id: "dialog-title" }, "Log in"),
    h("p", { class: "muted" }, "With the token of an identity; ", h("code", {}, "ghostless identities token"), " makes one. "
      + "Reading needs the call “read”, changing versions “admin”. The session ends after 8 hours."),
    h("label", { class: "field", for: "token" }, h("span", {}, "Token"), token), error,
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Cancel"),
      h("button", { type: "submit", class: "primary" }, "Log in")));
  put(dialog, form);
  dialog.showModal();
}

async function logOut() {
  await call("/console/api/logout", {});
  await start();
}

// Asks before something changes; resolves to whether it was confirmed.
function confirm(title, text, action) {
  return new Promise((resolve) => {
    let answer = false;
    put(dialog, h("h2", { id: "dialog-title" }, title), h("p", {}, text),
      h("div", { class: "actions" }, h("button", { class: "quiet", onclick: () => dialog.close() }, "Cancel"),
        h("button", { class: "primary", onclick: () => { answer = true; dialog.close(); } }, action)));
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
  });
}

async function countAlarms() {
  const count = document.getElementById("alarm-count");
  try {
    const found = (await call("/console/api/alarms")).alarms.length;
    count.textContent = found;
    count.hidden = !found;
  } catch {
    count.hidden = true;
  }
}

async function start() {
  try {
    state = await call("/console/api/session");
    session.csrf = state.csrf;
  } catch (error) {
    put(main, failure(error));
    return;
  }
  document.getElementById("server").textContent =
    `Ghostless ${state.version} on ${state.server}, ${state.engine} engine, gRPC at ${state.address}. This page shows one server; for all of them, use the Grafana dashboard (deploy/grafana).`;
  account();
  await show();
}

window.addEventListener("hashchange", show);
start().then(() => repeat(30, countAlarms));
