// The request as text to paste: curl, Python and grpcurl.

// For a POSIX shell, inside single quotes.
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export function curl(request, state) {
  const token = state.has_identities ? " \\\n  -H \"Authorization: Bearer $(cat TOKEN)\"" : "";
  return `curl ${location.origin}/v1/predict${token} \\\n  -d ${quoted(JSON.stringify(request))}`;
}

export function python(request, state) {
  const values = (part) => JSON.stringify(part).replaceAll(":", ": ").replaceAll(",", ", ");
  const extra = `${state.uses_tls ? ', tls=Tls.from_files("CA.pem")' : ""}${state.has_identities ? ', token=Path("TOKEN")' : ""}`;
  const names = state.uses_tls ? "Client, Tls" : "Client";
  const lines = [`from ghostless import ${names}`, "", `with Client(${JSON.stringify(state.address)}${extra}) as client:`,
    "    answer = client.predict(", `        context=${values(request.context)},`, `        candidates=${values(request.candidates)},`];
  if (request.model) lines.push(`        model=${JSON.stringify(request.model)},`);
  lines.push("    )", "print(answer.mean, answer.epistemic)");
  if (state.has_identities) lines.unshift("from pathlib import Path");
  return lines.join("\n");
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
