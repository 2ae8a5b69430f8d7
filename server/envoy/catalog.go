package envoy

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// Options of a Catalog. The zero value is usable.
type Options struct {
	Debounce xds.Debounce // of every collection
	Log      *slog.Logger // slog.Default if nil
}

// maxScopes is how many profiles clients may have at once: they make them up.
const maxScopes = 1000

// Catalog keeps what Envoys and gRPC clients are told in step with a view.
type Catalog struct {
	// read-only
	view memstore.Reader
	opts Options
	log  *slog.Logger

	mu     sync.Mutex
	mesh   *mesh
	units  map[string]map[unit]*told // by host: what is known already of what profiles are told of it
	scopes map[profile]*scope
	synced bool
}

// unit is all that a translation of a host depends on.
type unit struct {
	from     string // of the view
	role     role
	captures bool
}

// New returns a catalog of view. Nothing of it is sent until Run has read a view that is synced.
func New(view memstore.Reader, opts Options) *Catalog {
	return &Catalog{
		view: view, opts: opts, log: cmp.Or(opts.Log, slog.Default()),
		mesh: newMesh(), units: make(map[string]map[unit]*told), scopes: make(map[profile]*scope),
	}
}

// Run follows the view until ctx ends.
func (c *Catalog) Run(ctx context.Context) error {
	var since memstore.Revision
	for first := true; ; first = false {
		changed := c.view.Changed()
		synced := c.view.Synced() // before the changes, which are then all that it speaks of
		keys, snap, ok := c.view.Changes(since)
		c.update(keys, snap, ok && !first, synced)
		since = snap.Revision()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// update brings all scopes to snap. Unless incremental, keys do not tell what changed and everything is looked at.
func (c *Catalog) update(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !incremental {
		keys = c.mesh.differing(snap)
	}
	touched := make(map[string]struct{})
	for _, key := range keys {
		r := snap.Get(key)
		if err := c.mesh.set(key, r, touched); err != nil {
			c.log.Error("resource cannot be served to Envoys", "key", key.String(), "origin", r.Origin().String(), "err", err)
		}
	}
	c.mesh.touchOthers(touched)
	for host := range touched {
		delete(c.units, host)
	}
	for _, s := range c.scopes {
		c.bring(s, touched)
	}
	if synced && !c.synced {
		c.synced = true
		for _, s := range c.scopes {
			s.markSynced()
		}
	}
}

// bring brings a scope up to date with what is said of hosts; c.mu is held.
func (c *Catalog) bring(s *scope, hosts map[string]struct{}) {
	translated := make(map[string]*told, len(hosts))
	for host := range hosts {
		translated[host] = c.translate(host, s.profile)
	}
	if len(translated) > 0 {
		s.update(translated)
	}
}

// translate returns what clients of a profile are told of a host, or nil; c.mu is held.
func (c *Catalog) translate(host string, p profile) *told {
	v := c.mesh.view(host, p)
	if v == nil {
		return nil
	}
	u := unit{from: v.from, role: p.role, captures: p.captures}
	if t := c.units[host][u]; t != nil {
		return t
	}
	t := translate(v, p)
	if c.units[host] == nil {
		c.units[host] = make(map[unit]*told)
	}
	c.units[host][u] = t
	return t
}

// Collection implements xds.Catalog, for the types of Envoy. A type that is not served is not answered.
func (c *Catalog) Collection(_ context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	p := profileOf(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.scopes[p]
	if s == nil {
		if len(c.scopes) >= maxScopes {
			return nil, nil, status.Errorf(codes.ResourceExhausted, "too many different profiles of clients in use: the limit is %d", maxScopes)
		}
		s = newScope(p, c.opts.Debounce)
	}
	coll := s.collection(typeURL)
	if coll == nil {
		return nil, nil, xds.ErrNoAnswer
	}
	if c.scopes[p] == nil {
		c.scopes[p] = s
		c.bring(s, c.mesh.allHosts())
		if c.synced {
			s.markSynced()
		}
	}
	s.users++
	return coll, func() { c.release(s) }, nil
}

// release ends a use of a scope, which is forgotten with the last one.
func (c *Catalog) release(s *scope) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(c.scopes, s.profile)
	}
}

// Serves says whether a type is one of Envoy's.
func Serves(typeURL string) bool { return strings.HasPrefix(typeURL, "type.googleapis.com/envoy.") }
