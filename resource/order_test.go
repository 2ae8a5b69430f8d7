package resource

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestServiceEntry_SourceOrderPrecedesTime compares every pair of sources and times as istiod does, by the times that
// it receives over MCP, through one tier and through two.
func TestServiceEntry_SourceOrderPrecedesTime(t *testing.T) {
	day := func(year int) time.Time { return time.Date(year, 3, 4, 5, 6, 7, 0, time.UTC) }
	times := []time.Time{{}, day(2015), day(2016), day(2026), day(2040)} // ascending: within a source, no time precedes any
	received := func(created time.Time, places ...int) *Resource {
		resource := FromBody(Meta{Key: Key{Kind: ServiceEntry, Namespace: "n", Name: "x"}, Created: created}, nil)
		for _, place := range places {
			encoded, err := EncodeMCP(resource.Ranked(place))
			require.NoError(t, err)
			var message anypb.Any
			require.NoError(t, proto.Unmarshal(encoded, &message))
			resource, err = DecodeMCP("networking.istio.io/v1/ServiceEntry", &message)
			require.NoError(t, err)
		}
		require.Equal(t, created, resource.Own())
		require.Equal(t, created, resource.Unranked().Created())
		return resource
	}
	for _, tiers := range [][]int{nil, {0}, {3}} {
		var previous *Resource
		for place := range 3 {
			for _, created := range times {
				next := received(created, append([]int{place}, tiers...)...)
				if previous != nil {
					require.Negative(t, previous.Created().Compare(next.Created()), fmt.Sprint(tiers, place, created))
				}
				previous = next
			}
		}
	}
}
