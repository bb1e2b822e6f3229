// Rank three videos for one user: node predict.js [host:port]
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const PROTO = path.join(__dirname, "../../protos/ghostless/v1/prediction.proto");

// keepCase: without it the loader expects topK, quantileLevels and requestId, and silently drops top_k, quantile_levels
// and request_id from a request. longs: ids above 2^53 do not fit into a number.
const definition = loader.loadSync(PROTO, { keepCase: true, longs: String, enums: String });
const { PredictionService } = grpc.loadPackageDefinition(definition).ghostless.v1;

const SERVICE_CONFIG = {
  loadBalancingConfig: [{ round_robin: {} }],
  methodConfig: [
    {
      name: [{ service: "ghostless.v1.PredictionService" }],
      retryPolicy: {
        maxAttempts: 4,
        initialBackoff: "0.01s",
        maxBackoff: "1s",
        backoffMultiplier: 2,
        retryableStatusCodes: ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
      },
    },
  ],
  retryThrottling: { maxTokens: 100, tokenRatio: 0.1 },
};
const OPTIONS = {
  "grpc.service_config": JSON.stringify(SERVICE_CONFIG),
  // Each client gets a separate connection, because a connection is served by one worker of the server.
  "grpc.use_local_subchannel_pool": 1,
  // A response with all outputs of thousands of candidates exceeds the default of 4 MB.
  "grpc.max_receive_message_length": -1,
};

function connect(address) {
  return new PredictionService(address, grpc.credentials.createInsecure(), OPTIONS);
}

function call(client, method, request, timeoutMs = 1000) {
  return new Promise((resolve, reject) => {
    const options = { deadline: Date.now() + timeoutMs };
    client[method](request, options, (error, answer) => (error ? reject(error) : resolve(answer)));
  });
}

// Returns one client per worker; use them in turn.
async function connectToAllWorkers(address) {
  const first = connect(address);
  const { workers } = await call(first, "ListModels", {});
  const clients = [first];
  while (clients.length < workers) clients.push(connect(address));
  return clients;
}

async function main(address) {
  const clients = await connectToAllWorkers(address);
  const request = {
    context: { user_id: { int64s: { values: [7] } } },
    candidates: {
      video_id: { int64s: { values: [11, 42, 1234] } },
      duration_ms: { floats: { values: [8000, 30000, 95000] } },
    },
    outputs: ["OUTPUT_MEAN", "OUTPUT_QUANTILES"],
    quantile_levels: [0.1, 0.5, 0.9],
    scoring: { ucb: { kappa: 1 } },
    top_k: 2,
    request_id: "node-example",
  };
  for (const client of clients) {
    const { model, version, request_id, mean, quantiles, ranking } = await call(client, "Predict", request);
    console.log(JSON.stringify({ model, version, request_id, mean, quantiles, ranking }));
  }
  clients.forEach((client) => client.close());
}

main(process.argv[2] ?? "localhost:8500").catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
