import ghostless.v1.Column;
import ghostless.v1.FloatList;
import ghostless.v1.Int64List;
import ghostless.v1.ListModelsRequest;
import ghostless.v1.Output;
import ghostless.v1.PredictRequest;
import ghostless.v1.PredictResponse;
import ghostless.v1.PredictionServiceGrpc;
import ghostless.v1.PredictionServiceGrpc.PredictionServiceBlockingStub;
import ghostless.v1.Scoring;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Rank three videos for one user: java Predict [host:port] */
public final class Predict {
  // gRPC for Java expects the numbers of a service config as Double.
  private static final Map<String, Object> SERVICE_CONFIG =
      Map.of(
          "loadBalancingConfig", List.of(Map.of("round_robin", Map.of())),
          "methodConfig",
              List.of(
                  Map.of(
                      "name", List.of(Map.of("service", "ghostless.v1.PredictionService")),
                      "retryPolicy",
                          Map.of(
                              "maxAttempts", 4.0,
                              "initialBackoff", "0.01s",
                              "maxBackoff", "1s",
                              "backoffMultiplier", 2.0,
                              "retryableStatusCodes", List.of("UNAVAILABLE", "RESOURCE_EXHAUSTED")))),
          "retryThrottling", Map.of("maxTokens", 100.0, "tokenRatio", 0.1));

  private static ManagedChannel connect(String address) {
    return ManagedChannelBuilder.forTarget(address)
        .usePlaintext()
        .defaultServiceConfig(SERVICE_CONFIG)
        .enableRetry()
        // A response with all outputs of thousands of candidates exceeds the default of 4 MB.
        .maxInboundMessageSize(Integer.MAX_VALUE)
        .build();
  }

  private static PredictionServiceBlockingStub stub(ManagedChannel channel) {
    return PredictionServiceGrpc.newBlockingStub(channel).withDeadlineAfter(1, TimeUnit.SECONDS);
  }

  /** One channel per worker, because a connection is served by one worker. Use them in turn. */
  private static List<ManagedChannel> connectToAllWorkers(String address) {
    List<ManagedChannel> channels = new ArrayList<>(List.of(connect(address)));
    int workers = stub(channels.get(0)).listModels(ListModelsRequest.getDefaultInstance()).getWorkers();
    while (channels.size() < workers) {
      channels.add(connect(address));
    }
    return channels;
  }

  private static Column int64s(Long... values) {
    return Column.newBuilder().setInt64S(Int64List.newBuilder().addAllValues(List.of(values))).build();
  }

  private static Column floats(Float... values) {
    return Column.newBuilder().setFloats(FloatList.newBuilder().addAllValues(List.of(values))).build();
  }

  public static void main(String[] arguments) {
    PredictRequest request =
        PredictRequest.newBuilder()
            .putContext("user_id", int64s(7L))
            .putCandidates("video_id", int64s(11L, 42L, 1234L))
            .putCandidates("duration_ms", floats(8000f, 30000f, 95000f))
            .addOutputs(Output.OUTPUT_MEAN)
            .addOutputs(Output.OUTPUT_QUANTILES)
            .addAllQuantileLevels(List.of(0.1f, 0.5f, 0.9f))
            .setScoring(Scoring.newBuilder().setUcb(Scoring.Ucb.newBuilder().setKappa(1)))
            .setTopK(2)
            .setRequestId("java-example")
            .build();
    for (ManagedChannel channel : connectToAllWorkers(arguments.length > 0 ? arguments[0] : "localhost:8500")) {
      PredictResponse answer = stub(channel).predict(request);
      System.out.println(
          answer.getModel() + " " + answer.getVersion() + " " + answer.getRequestId() + " " + answer.getMeanList()
              + " " + answer.getQuantiles().getValuesList() + " " + answer.getRankingList());
      channel.shutdown();
    }
  }
}
