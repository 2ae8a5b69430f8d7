package xds

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/sourcetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"delta", "sotw", "auto"} {
		t.Run(mode, func(t *testing.T) {
			sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return newUpstream(t, Settings{Mode: mode}) })
		})
	}
	t.Run("auto with a server without delta", func(t *testing.T) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Harness {
			u := newUpstream(t, Settings{})
			u.server.noDelta = true
			return u
		})
	})
}

// upstream is a tributary to read from.
type upstream struct {
	t        *testing.T
	settings Settings
	table    *memstore.Table
	server   *server
}

func newUpstream(t *testing.T, settings Settings) *upstream {
	table := &memstore.Table{}
	return &upstream{t, settings, table, serveView(t, table, nil)}
}

// Source implements sourcetest.Harness. The server answers from now on: if it were synced while still empty, a first
// read could miss earlier puts.
func (u *upstream) Source() sources.Source {
	u.table.MarkSynced()
	s, err := New(Scheme+"://"+u.server.address, u.settings)
	require.NoError(u.t, err)
	return s.withBackoff(often)
}

func (u *upstream) Key(name string) resource.Key { return key(name) }

func (u *upstream) Put(name string, revision int) {
	u.table.Apply([]*resource.Resource{entry(u.t, name, fmt.Sprintf("r%d.%s.example.com", revision, name))}, nil)
}

func (u *upstream) Break(name string) {
	u.table.Apply([]*resource.Resource{entry(u.t, name, "not a host")}, nil)
}

func (u *upstream) Delete(name string) { u.table.Apply(nil, []resource.Key{key(name)}) }
func (u *upstream) Unreachable()       { u.server.refuse(status.Error(codes.Unavailable, "gone")) }
func (u *upstream) Deny()              { u.server.refuse(status.Error(codes.Unauthenticated, "who are you?")) }
func (u *upstream) Restore()           { u.server.refuse(nil) }
