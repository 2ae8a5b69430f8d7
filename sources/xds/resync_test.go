package xds

import (
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"tributary/memstore"
	"tributary/sources"
)

// forgetful is a delta server that begins every stream with its resources, and reports no removals.
type forgetful struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources chan []*discoveryv3.Resource
}

func (f *forgetful) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	resources := <-f.resources
	f.resources <- resources
	if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: entriesV1, SystemVersionInfo: "1", Nonce: "1",
		Resources: resources,
	}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

func TestUnreportedRemovals_FoundByCompare(t *testing.T) {
	named := func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: "shop/" + name, Version: "1", Resource: wrapped(t, "shop/"+name, name+".example.com")}
	}
	f := &forgetful{resources: make(chan []*discoveryv3.Resource, 1)}
	f.resources <- []*discoveryv3.Resource{named("a"), named("b"), named("c")}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, f)
	address := serveGRPC(t, g)

	registry := prometheus.NewRegistry()
	source, err := New(Scheme+"://"+address, Settings{Mode: "delta", SubscribedResources: onlyEntries, Registerer: registry})
	require.NoError(t, err)
	source.config.CompareAfter = time.Millisecond
	r := &reader{table: &memstore.Table{}, source: source.withBackoff(often), supervisor: sources.NewSupervisor(sources.Options{})}
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Source: source, Table: r.table}}))
	goUntilEnd(t, r.supervisor.Run)
	r.awaitNames(t, "a b c")

	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: idle{}}}))
	<-f.resources
	f.resources <- []*discoveryv3.Resource{named("b"), named("c")}
	require.NoError(t, r.supervisor.Reconfigure([]sources.Spec{{Name: "up", Table: r.table, Source: source}}))
	r.awaitNames(t, "b c")
	require.GreaterOrEqual(t, testutil.ToFloat64(source.healed), 1.0)
}
