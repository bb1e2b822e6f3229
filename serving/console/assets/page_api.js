import { h, call, table } from "/console/dom.js";

export const title = "API";
export const lead = "The same calls over HTTP: JSON with the proto's names, and the Open Inference Protocol's REST API.";

export async function open(body) {
  const described = await call("/openapi.json");
  const rows = Object.entries(described.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, each]) =>
    [h("code", {}, `${method.toUpperCase()} ${path}`), each.summary]));
  body.append(
    h("p", { class: "prose" }, marked(described.info.description)),
    h("p", {}, "For generators and tools: ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    h("div", { class: "panel" }, table(["Call", "What it does"], rows, { label: "Calls" })),
    ...Object.entries(described.components.schemas).filter(([name]) => /Request$|Response$|^Model$/.test(name)).map(([name, schema]) =>
      h("details", {}, h("summary", {}, name), table(["Field", "Type"], Object.entries(schema.properties || {}).map(([field, one]) => [field, kind(one)]), { label: name }))));
}

// Text in which `this` is code.
function marked(text) {
  return text.split("`").map((part, at) => at % 2 ? h("code", {}, part) : part);
}

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.enum) return schema.enum.join(", ");
  if (schema.type === "object" && schema.additionalProperties) return `${kind(schema.additionalProperties)} by name`;
  return schema.type || "any";
}
