package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/e2e/fixture"
)

// TestStuckClient_DelaysNoOther shows that a client that stops reading, with its window full, disturbs no other client: for a
// minute others get each change, and the client itself gets only the newest state when it reads again.
func TestStuckClient_DelaysNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 100 {
		write(t, dir, fmt.Sprintf("large-%d.yaml", i), largeEntry(fmt.Sprint("large-", i), 0))
	}
	// Compressed, all that these entries are would fit into the window.
	tributary := fixture.StartTributaryWith(t, fmt.Sprintf("compression: none\nconfigSources: [{name: rules, address: %q}]\n", "fs://"+dir))
	tributary.AwaitReady(t)

	// A window of a given size is not grown by gRPC: the server is stuck after 64 KiB of a first response of 1 MiB.
	conn, err := grpc.NewClient(tributary.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	ask := func(nonce string) {
		require.NoError(t, stuck.Send(&discovery.DiscoveryRequest{
			Node: &core.Node{Id: "stuck"}, TypeUrl: serviceEntries, ResponseNonce: nonce,
		}))
	}
	ask("")

	reader := fixture.OpenStream(t, tributary.XDS, "other")
	reader.Subscribe(t, serviceEntries, "")
	reader.Ack(t, reader.Next(t))
	changes := 0
	var newest string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		changes++
		write(t, dir, "large-0.yaml", largeEntry("large-0", changes))
		res := reader.Next(t)
		reader.Ack(t, res)
		newest = res.GetVersionInfo()
	}
	require.Greater(t, changes, 10)

	for responses := 1; ; responses++ {
		require.LessOrEqual(t, responses, 3, "the first response, those in flight, and the newest")
		res, err := stuck.Recv()
		require.NoError(t, err)
		if res.GetVersionInfo() == newest {
			return
		}
		ask(res.GetNonce())
	}
}

// largeEntry is a ServiceEntry of 10 KiB.
func largeEntry(name string, change int) string {
	return strings.Replace(serviceEntry(name, 80), "metadata: {",
		fmt.Sprintf("metadata: {annotations: {change: '%d', filler: %s}, ", change, strings.Repeat("x", 10<<10)), 1)
}
