package translate_test

import (
	"context"
	"flag"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy"
	"tributary/server/envoy/envoytest"
	"tributary/server/xds"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldens has the resources of a client, and the findings while it is connected.
func TestGoldens(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/*.txtar", func(c *envoytest.Case) {
		table := c.Table()
		table.MarkSynced()
		catalog := envoy.New(table, envoy.Options{Log: slog.New(slog.DiscardHandler), WarnUnenforced: c.Has("options")})
		ctx, stop := context.WithCancel(c.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = catalog.Run(ctx) })
		defer running.Wait()
		defer stop()
		var resources []proto.Message
		for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.SecretURL} {
			collection, release, err := catalog.Collection(ctx, c.Node(), url)
			require.NoError(c, err)
			defer release()
			for entry := range collection.All() {
				var body anypb.Any
				require.NoError(c, proto.Unmarshal(entry.Any, &body))
				message, err := body.UnmarshalNew()
				require.NoError(c, err)
				require.NoError(c, message.(interface{ ValidateAll() error }).ValidateAll())
				resources = append(resources, message)
			}
		}
		c.ExpectResources(resources...)
		c.ExpectFindings(catalog.WithoutEffect)
	})
}
