package engine

import (
	"context"
	"strconv"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// NodeID is the node id of every client: a snapshot belongs to a node, and all clients share one.
const NodeID = "bench"

// controlPlane is go-control-plane's own server on one of its caches, with its defaults.
type controlPlane struct {
	server  server.Server
	publish func([]Item) error
}

func newLinear(ctx context.Context) Engine {
	linear := cache.NewLinearCache(TypeURL)
	return &controlPlane{
		server: server.NewServer(ctx, linear, nil),
		publish: func(items []Item) error {
			if len(items) == 1 {
				return linear.UpdateResource(items[0].Name, items[0].Message())
			}
			updates := make(map[string]types.Resource, len(items))
			for _, item := range items {
				updates[item.Name] = item.Message()
			}
			return linear.UpdateResources(updates, nil)
		},
	}
}

// newSnapshot serves a SnapshotCache. A change is a new snapshot of everything: that is how the cache is fed.
func newSnapshot(ctx context.Context) Engine {
	snapshots := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	index := make(map[string]int)
	var resources []types.Resource
	version := 0
	return &controlPlane{
		server: server.NewServer(ctx, snapshots, nil),
		publish: func(items []Item) error {
			for _, item := range items {
				i, ok := index[item.Name]
				if !ok {
					i = len(resources)
					index[item.Name] = i
					resources = append(resources, nil)
				}
				resources[i] = item.Message()
			}
			version++
			snapshot, err := cache.NewSnapshot(strconv.Itoa(version), map[string][]types.Resource{TypeURL: resources})
			if err != nil {
				return err
			}
			return snapshots.SetSnapshot(ctx, NodeID, snapshot)
		},
	}
}

func (*controlPlane) Options() []grpc.ServerOption { return nil }

func (c *controlPlane) Register(s *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(s, c.server)
}

func (c *controlPlane) Publish(items []Item) error { return c.publish(items) }
