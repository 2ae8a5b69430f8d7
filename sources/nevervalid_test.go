package sources

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// TestNeverValid_BesideABrokenList has one broken text stand for several objects that were valid. A policy that comes
// beside it and was never valid is refused.
func TestNeverValid_BesideABrokenList(t *testing.T) {
	sink := sinkOf(new(memstore.Table), nil)
	policy := func(name string) *resource.Resource {
		key := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "default", Name: name}
		return resource.FromBody(resource.Meta{Key: key, Origin: resource.Origin{Source: "s", Place: "f:1"}}, nil)
	}
	broken := func(place string) Reject {
		return Reject{Err: errors.New("bad"), Origin: resource.Origin{Source: "s", Place: place}, MayRestrict: true}
	}
	_ = sink.ReplaceAll([]Content{{Group: "f", Resources: []*resource.Resource{policy("a"), policy("b")}}})
	require.Empty(t, sink.invalidPolicyKeys())
	_ = sink.ReplaceAll([]Content{{Group: "f", Rejects: []Reject{broken("f:1")}}})
	require.Empty(t, sink.invalidPolicyKeys(), "a and b keep their last versions")
	_ = sink.ReplaceAll([]Content{{Group: "f", Rejects: []Reject{broken("f:1"), broken("f:9")}}})
	require.NotEmpty(t, sink.invalidPolicyKeys(), "the new document at f:9 was never valid")
}
