// The request as text to paste: curl, Python and grpcurl.

// For a POSIX shell, inside single quotes.
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

// JSON that is also Python. A whole number of a float feature keeps its point: the type is what is written.
function literal(value, isFloat) {
  if (Array.isArray(value)) return `[${value.map((each) => literal(each, isFloat)).join(", ")}]`;
  return isFloat && Number.isInteger(value) ? `${value}.0` : JSON.stringify(value);
}

function columns(values, features) {
  const isFloat = (name) => features.some((each) => each.name === name && each.type === "FLOAT");
  return `{${Object.entries(values).map(([name, value]) => `${JSON.stringify(name)}: ${literal(value, isFloat(name))}`).join(", ")}}`;
}

export function curl(request, features, state) {
  const token = state.has_identities ? " \\\n  -H \"Authorization: Bearer $(cat TOKEN)\"" : "";
  const body = `{"model": ${JSON.stringify(request.model)}, "context": ${columns(request.context, features)}, "candidates": ${columns(request.candidates, features)}}`;
  return `curl ${location.origin}/v1/predict${token} \\\n  -d ${quoted(body)}`;
}

export function python(request, features, state) {
  const tls = state.uses_tls ? ', tls=Tls.from_files("CA.pem")' : "", token = state.has_identities ? ', token=Path("TOKEN")' : "";
  return [
    ...(state.has_identities ? ["from pathlib import Path", ""] : []),
    `from ghostless import Client${state.uses_tls ? ", Tls" : ""}`, "",
    `with Client(${JSON.stringify(state.address)}${tls}${token}) as client:`,
    "    answer = client.predict(",
    `        model=${JSON.stringify(request.model)},`,
    `        context=${columns(request.context, features)},`,
    `        candidates=${columns(request.candidates, features)},`,
    "    )", "print(answer.mean, answer.epistemic)"].join("\n");
}

export function grpc(request, features, state) {
  const kinds = { INT64: "int64s", FLOAT: "floats", STRING: "strings" };
  const typed = { ...request, context: {}, candidates: {} };
  for (const part of ["context", "candidates"]) {
    for (const [name, value] of Object.entries(request[part])) {
      const feature = features.find((each) => each.name === name);
      typed[part][name] = { [kinds[feature.type]]: { values: [value].flat() } };
    }
  }
  const secure = state.uses_tls ? "-cacert CA.pem" : "-plaintext";
  const token = state.has_identities ? " -H \"authorization: Bearer $(cat TOKEN)\"" : "";
  return `grpcurl ${secure}${token} -d ${quoted(JSON.stringify(typed))} \\\n  ${state.address} ghostless.v1.PredictionService/Predict`;
}
