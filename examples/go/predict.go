// Rank three videos for one user: predict [host:port]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	pb "ghostless/v1"

	"google.golang.org/grpc"
)

const serviceConfig = `{
  "loadBalancingConfig": [{"round_robin": {}}],
  "methodConfig": [{
    "name": [{"service": "ghostless.v1.PredictionService"}],
    "retryPolicy": {
      "maxAttempts": 4, "initialBackoff": "0.01s", "maxBackoff": "1s", "backoffMultiplier": 2,
      "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
    }
  }],
  "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1}
}`

func connect(address string) pb.PredictionServiceClient {
	// With grpc-go 1.63 or later, use grpc.NewClient and grpc.WithTransportCredentials(insecure.NewCredentials()).
	connection, err := grpc.Dial(address,
		grpc.WithInsecure(),
		grpc.WithDefaultServiceConfig(serviceConfig),
		// A response with all outputs of thousands of candidates exceeds the default of 4 MB.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		log.Fatal(err)
	}
	return pb.NewPredictionServiceClient(connection)
}

// connectToAllWorkers returns one client per worker, because a connection is served by one worker. Use them in turn.
func connectToAllWorkers(address string) []pb.PredictionServiceClient {
	clients := []pb.PredictionServiceClient{connect(address)}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	models, err := clients[0].ListModels(ctx, &pb.ListModelsRequest{})
	if err != nil {
		log.Fatal(err)
	}
	for len(clients) < int(models.Workers) {
		clients = append(clients, connect(address))
	}
	return clients
}

func int64s(values ...int64) *pb.Column {
	return &pb.Column{Kind: &pb.Column_Int64S{Int64S: &pb.Int64List{Values: values}}}
}

func floats(values ...float32) *pb.Column {
	return &pb.Column{Kind: &pb.Column_Floats{Floats: &pb.FloatList{Values: values}}}
}

func main() {
	address := "localhost:8500"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	request := &pb.PredictRequest{
		Context: map[string]*pb.Column{"user_id": int64s(7)},
		Candidates: map[string]*pb.Column{
			"video_id":    int64s(11, 42, 1234),
			"duration_ms": floats(8000, 30000, 95000),
		},
		Outputs:        []pb.Output{pb.Output_OUTPUT_MEAN, pb.Output_OUTPUT_QUANTILES},
		QuantileLevels: []float32{0.1, 0.5, 0.9},
		Scoring:        &pb.Scoring{Rule: &pb.Scoring_Ucb_{Ucb: &pb.Scoring_Ucb{Kappa: 1}}},
		TopK:           2,
		RequestId:      "go-example",
	}
	for _, client := range connectToAllWorkers(address) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		answer, err := client.Predict(ctx, request)
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(answer.Model, answer.Version, answer.RequestId, answer.Mean, answer.Quantiles.Values, answer.Ranking)
	}
}
