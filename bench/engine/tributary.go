package engine

import (
	"context"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"

	"tributary/server/xds"
)

// tributary is this project's engine with one collection.
type tributary struct {
	collection *xds.Collection
	server     *xds.Server
}

// newTributary returns an engine with a pacing. Where single changes are timed it has none: what they cost is the question.
func newTributary(pacing xds.Pacing) Engine {
	t := &tributary{collection: xds.NewCollection(xds.TypeOf(TypeURL), xds.Debounce{})}
	t.server = xds.NewServer(t, xds.Options{Pacing: pacing, Log: slog.New(slog.DiscardHandler), Limits: xds.Limits{StreamsPerConnection: -1}})
	return t
}

// Collection implements xds.Catalog: every client sees the same.
func (t *tributary) Collection(context.Context, *core.Node, string) (*xds.Collection, func(), error) {
	return t.collection, nil, nil
}

func (t *tributary) Options() []grpc.ServerOption { return t.server.ServerOptions() }

func (t *tributary) Register(s *grpc.Server) { t.server.Register(s) }

func (t *tributary) Publish(items []Item) error {
	entries := make([]*xds.Entry, len(items))
	for i, it := range items {
		entries[i] = &xds.Entry{Name: it.Name, Version: it.Version, Any: it.Any}
	}
	t.collection.Apply(xds.Commit{Put: entries, Since: time.Now()})
	t.collection.MarkSynced()
	return nil
}
