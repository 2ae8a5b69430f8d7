package mcp

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/names"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/access"
	"tributary/server/families"
	"tributary/server/xds"
)

// Options of a Catalog. The zero value is usable.
type Options struct {
	Debounce xds.Debounce // of every collection
	Hops     *Hops        // the instances that the content came through; not published if nil
	Log      *slog.Logger // slog.Default if nil
}

// Catalog keeps collections up to date with a view. Clients with the same filter share a family of collections.
type Catalog struct {
	// read-only
	view     memstore.Reader
	opts     Options
	log      *slog.Logger
	beats    memstore.Beat
	families *families.Set[string, *family] // by the key of the filter, without the unfiltered family

	unfiltered *family         // provides the entries of all families
	empty      *xds.Collection // for unknown types

	engine interface{ Review() } // or nil

	mu         sync.Mutex
	attributes map[attribute]int    // number of objects
	reduced    bool                 // canonical has reduced a filter since the last review
	following  map[*family]struct{} // the families that follow the view
	snap       memstore.Snapshot    // the content of the collections
	synced     bool
}

// New returns a catalog of view. Clients get no content until Run has read a synced view.
func New(view memstore.Reader, opts Options) *Catalog {
	catalog := &Catalog{
		view: view, opts: opts, log: cmp.Or(opts.Log, slog.Default()), beats: make(memstore.Beat),
		attributes: make(map[attribute]int), following: make(map[*family]struct{}),
	}
	catalog.families = families.New[string]("filters", families.Limits{
		Max: maxFamilies, MaxOfHost: maxOfHost, MaxCost: maxCost, MaxCostOfHost: maxHostCost, MaxIdleCost: maxIdleCost,
	}, (*family).cost, catalog.drop)
	catalog.unfiltered = catalog.newFamily(filter{})
	catalog.following[catalog.unfiltered] = struct{}{}
	catalog.empty = xds.NewCollection(xds.Type{URL: "unknown"}, xds.Debounce{})
	catalog.empty.MarkSynced()
	return catalog
}

// Run follows the view until ctx ends.
func (c *Catalog) Run(ctx context.Context) error {
	return memstore.Follow(ctx, c.view, c.beats, c.update)
}

// Alive returns when Run has shown that it goes on, or with the error of ctx.
func (c *Catalog) Alive(ctx context.Context) error { return c.beats.Await(ctx) }

// update brings the collections to snap. If incremental, only keys have changed.
func (c *Catalog) update(keys []resource.Key, snap memstore.Snapshot, incremental, synced bool) {
	c.review(keys, snap, incremental)
	c.mu.Lock()
	defer c.mu.Unlock()
	changedAt := snap.Since(c.snap.Revision())
	show := func(follower *family, entry func(*resource.Resource) *xds.Entry) {
		if incremental {
			follower.follow(keys, snap, entry, changedAt)
		} else {
			follower.fill(snap, entry, changedAt)
		}
	}
	show(c.unfiltered, c.encode)
	for follower := range c.following {
		if follower != c.unfiltered {
			show(follower, c.unfiltered.entry)
		}
	}
	c.snap = snap
	if synced && !c.synced {
		c.synced = true
		for follower := range c.following {
			follower.markSynced()
		}
		c.log.Info("serving", "resources", snap.Len())
	}
}

// encode returns the entry of an object: the present one if it has the same version.
func (c *Catalog) encode(object *resource.Resource) *xds.Entry {
	if entry := c.unfiltered.entry(object); entry != nil && entry.Version == object.Version() {
		return entry
	}
	return &xds.Entry{Name: object.Key().FullName(), Version: object.Version(), Encoder: encoder{object}}
}

// encoder encodes a resource of a known kind.
type encoder struct{ *resource.Resource }

func (e encoder) EncodeAny() []byte {
	b, _ := resource.EncodeMCP(e.Resource)
	return b
}

// Collection implements xds.Catalog. A type URL is "group/version/Kind". All versions of a kind have the same
// collection, also versions of the future. An unknown kind has an empty collection, because istiod waits for an answer
// to each type of its subscription. Types of protobuf, such as the name tables of Istio's agent, get no answer: an
// empty one would clear an Envoy.
func (c *Catalog) Collection(ctx context.Context, node *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	parts := strings.Split(typeURL, "/")
	if parts[0] == "type.googleapis.com" {
		return nil, nil, xds.ErrNoAnswer
	}
	if len(parts) != 3 || slices.Contains(parts, "") {
		return nil, nil, status.Errorf(codes.Unimplemented, "type %q is not served", typeURL)
	}
	if typeURL == names.InstancesType && c.opts.Hops != nil {
		return c.opts.Hops.coll, nil, nil
	}
	schema, ok := resource.SchemaOf(resource.Kind(parts[2]))
	if !ok || schema.Group != parts[0] {
		return c.empty, nil, nil
	}
	rights, err := access.RightsOf(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	filter, err := filterOf(node, rights)
	if err != nil {
		return nil, nil, err
	}
	family, release, err := c.acquire(ctx, filter, xds.HostOf(ctx))
	if err != nil {
		return nil, nil, err
	}
	return family.kinds[schema.Kind], release, nil
}
