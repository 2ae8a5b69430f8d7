package engine

import (
	"context"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/server/transport"
	"tributary/server/xds"
)

// tributary is this project's engine with one collection.
type tributary struct {
	collection *xds.Collection
	server     *xds.Server
}

// newTributary returns an engine with a pacing. It is zero where single changes are timed: they are to be measured.
func newTributary(pacing xds.Pacing) Engine {
	t := &tributary{collection: xds.NewCollection(xds.TypeOf(TypeURL), xds.Debounce{})}
	t.server = xds.NewServer(t, xds.Options{Pacing: pacing, Log: slog.New(slog.DiscardHandler)})
	return t
}

// Collection implements xds.Catalog: every client sees the same.
func (t *tributary) Collection(context.Context, *core.Node, string) (*xds.Collection, func(), error) {
	return t.collection, nil, nil
}

func (t *tributary) Options() []grpc.ServerOption {
	// All clients have one address, and a scenario opens all of their streams several times in a second.
	limits := transport.Limits{StreamsPerConnection: -1, StreamsPerSecond: -1}
	limiter := transport.NewLimiter(t.server, limits, slog.New(slog.DiscardHandler))
	return append(t.server.ServerOptions(), limiter.ServerOptions(insecure.NewCredentials())...)
}

func (t *tributary) Register(s *grpc.Server) { t.server.Register(s) }

func (t *tributary) Publish(items []Item) error {
	entries := make([]*xds.Entry, len(items))
	for i, item := range items {
		entries[i] = &xds.Entry{Name: item.Name, Version: item.Version, Any: item.Any}
	}
	t.collection.Apply(xds.Commit{Put: entries, Since: time.Now()})
	t.collection.MarkSynced()
	return nil
}
