// Builds elements and calls the server. Text is always set as text, never as HTML, so nothing that a model, a client or
// a file brings can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

export function h(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// Replaces what an element has; lists are taken apart, and what is null is left out.
export function put(element, ...children) {
  element.replaceChildren();
  return fill(element, {}, children);
}

export const session = { csrf: "" };

export class CallError extends Error {
  constructor(status, body) {
    super(body.error || `the server answered ${status}`);
    this.status = status;
    this.code = body.code || "";
  }
}

export async function call(path, content) {
  const options = { credentials: "same-origin", headers: {} };
  if (content !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(content);
    options.headers["Content-Type"] = "application/json";
    if (session.csrf) options.headers["X-CSRF-Token"] = session.csrf;
  }
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new CallError(answer.status, body);
  return body;
}

export function say(text) {
  document.getElementById("status").textContent = text;
}

export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return value.toExponential(digits - 1);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 6 });
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits)}%`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 0.001 ? `${number(1e6 * value, 3)} µs` : `${number(1e3 * value, 3)} ms`;
}

export function empty(title, ...children) {
  return h("div", { class: "empty" }, h("h3", {}, title), children);
}

export function failure(error) {
  const hint = error.status === 401 || error.status === 403
    ? "Log in (top right) with the token of an identity that may make this call."
    : "Check that the server is running; the page tries again when you reload it.";
  return h("div", { class: "empty bad", role: "alert" }, h("h3", {}, "That did not work"), h("p", {}, error.message),
    h("p", { class: "muted" }, hint));
}

export function table(heads, rows, options = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || "Table" },
    h("table", {},
      h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col", class: each.startsWith("#") ? "num" : null },
        each.replace(/^#/, ""))))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) =>
        h(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: heads[at].startsWith("#") ? "num" : null },
          cell)))))));
}

export function choice(label, options, selected, onchange) {
  return h("label", { class: "field inline" }, h("span", {}, label),
    h("select", { onchange: (event) => onchange(event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: value === selected }, text))));
}

// A request that is repeated while its page is shown.
export function repeat(seconds, work) {
  let stopped = false;
  let timer = 0;
  const run = async () => {
    if (!document.hidden) await work();
    if (!stopped) timer = setTimeout(run, 1000 * seconds);
  };
  run();
  return () => { stopped = true; clearTimeout(timer); };
}
