package xds

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// NewEntry returns the entry of an Envoy resource, or of any other message with a name: its name by NameOf, its version by
// VersionOf, its child by ChildOf.
func NewEntry(m proto.Message) (*Entry, error) {
	name := NameOf(m)
	if name == "" {
		return nil, fmt.Errorf("resource %s has no name", m.ProtoReflect().Descriptor().FullName())
	}
	var body anypb.Any
	if err := anypb.MarshalFrom(&body, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode resource %q: %w", name, err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(&body)
	if err != nil {
		return nil, fmt.Errorf("encode resource %q: %w", name, err)
	}
	return &Entry{Name: name, Version: VersionOf(b), Any: b, Child: ChildOf(m)}, nil
}

// NameOf returns the name under which clients ask for a resource: the cluster of a ClusterLoadAssignment, and the name of any
// other message that has one.
func NameOf(m proto.Message) string {
	if e, ok := m.(*endpointv3.ClusterLoadAssignment); ok {
		return e.GetClusterName()
	}
	if named, ok := m.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}

// ChildOf returns the name under which a client asks for the endpoints of a cluster, or nothing if it will not, or m is not a
// cluster.
func ChildOf(m proto.Message) string {
	c, ok := m.(*clusterv3.Cluster)
	if !ok || c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if name := c.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return c.GetName()
}

// VersionOf returns a version that is derived from content: equal bytes have equal versions, wherever and whenever.
func VersionOf(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
