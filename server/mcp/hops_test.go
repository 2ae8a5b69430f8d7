package mcp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
)

func TestHopsAreThoseOfTheClientsThereAre(t *testing.T) {
	h := NewHops("c")
	before := h.Changed()
	leaveB, err := h.join(node(t, map[string]any{metadataHops: []any{"b", "b/a"}}))
	require.NoError(t, err)
	<-before
	again, err := h.join(node(t, map[string]any{metadataHops: []any{"b", "b/a"}})) // a second type
	require.NoError(t, err)
	_, err = h.join(node(t, map[string]any{metadataRevision: "r"})) // an istiod
	require.NoError(t, err)
	require.Equal(t, []string{"b", "b/a"}, h.List())
	leaveB()
	leaveB()
	require.Equal(t, []string{"b", "b/a"}, h.List())
	before = h.Changed()
	again()
	<-before
	require.Empty(t, h.List())
}

func TestLoopsAreRefusedNamingThePath(t *testing.T) {
	for _, c := range []struct {
		hops []any
		want string
	}{
		{[]any{"c"}, "a loop: c would read from itself"},
		{[]any{"b", "b/c"}, "a loop: b would read from c, c reads from b"},
		{[]any{"b", "b/x", "b/a/c/d"}, "a loop: b would read from c, c reads from a, a reads from b"},
	} {
		catalog := New(memstore.New(resource.Schemas()...), Options{Hops: NewHops("c")})
		_, _, err := catalog.Collection(context.Background(), node(t, map[string]any{metadataHops: c.hops}), "networking.istio.io/v1/Gateway")
		require.Equal(t, codes.FailedPrecondition, status.Code(err))
		require.Equal(t, c.want, status.Convert(err).Message())
		require.Empty(t, catalog.opts.Hops.List(), "what is refused does not read")
	}
}
