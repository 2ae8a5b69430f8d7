package adsc_test

import (
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/assert"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

func TestReferences(t *testing.T) {
	for name, c := range map[string]struct {
		resource *anypb.Any
		want     []string
	}{
		"a cluster without EDS":     {xdstest.Packed(t, &clusterv3.Cluster{Name: "static"}), nil},
		"a cluster":                 {xdstest.Packed(t, xdstest.EDSCluster("a", "")), []string{"a"}},
		"a cluster with a service":  {xdstest.Packed(t, xdstest.EDSCluster("b", "b-service")), []string{"b-service"}},
		"an undecodable cluster":    {&anypb.Any{TypeUrl: adsc.ClusterType, Value: []byte{0xff}}, nil},
		"a listener":                {xdstest.Packed(t, xdstest.Listener(t, "in", "r1", "r2")), []string{"r1", "r2"}},
		"a listener without routes": {xdstest.Packed(t, xdstest.Listener(t, "out")), nil},
		"another type":              {&anypb.Any{TypeUrl: typeA}, nil},
	} {
		assert.Equal(t, c.want, adsc.References(c.resource), name)
	}
}
