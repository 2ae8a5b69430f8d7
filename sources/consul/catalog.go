package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
)

// catalog is what is read of Consul: the seam between the scheduling, which knows nothing of HTTP, and the client.
type catalog interface {
	// services reads the names of all services that are wanted.
	services(ctx context.Context, d domain, q query) (listing, error)
	// service reads the instances of one service.
	service(ctx context.Context, d domain, name string, q query) (reading, error)
}

// query is how to ask.
type query struct {
	index uint64 // block until there is something newer; 0 does not block
	level level  // usual, if it blocks
}

// level is how sure an answer has to be.
type level int

const (
	usual   level = iota // as the settings say; by default from any server, which may lag behind
	leaders              // from the leader, as it remembers
	certain              // from the leader, after it has made sure that it still is: the answer can vouch for what is not there
)

// client is the catalog of a real Consul.
type client struct {
	*dial.Client
	settings Settings
	selected selection
}

const (
	// shortTimeout is that of a query that does not block.
	shortTimeout = 30 * time.Second
	// blockingGrace is how much longer than announced a blocking query may take, on top of the sixteenth by which Consul spreads
	// the ends of such queries.
	blockingGrace = 15 * time.Second
)

// options are those of the query.
func (c *client) options(ctx context.Context, d domain, q query, filter string) (*api.QueryOptions, context.CancelFunc) {
	o := &api.QueryOptions{
		Datacenter: d.datacenter, Namespace: d.namespace, Partition: d.partition, Peer: d.peer, Filter: filter,
		RequireConsistent: q.level == certain || c.settings.RequireConsistent,
		AllowStale:        q.level == usual && c.settings.stale(),
	}
	timeout := shortTimeout
	if q.index > 0 {
		o.WaitIndex, o.WaitTime = q.index, c.settings.Wait
		timeout = c.settings.Wait + c.settings.Wait/16 + blockingGrace
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	return o.WithContext(ctx), cancel
}

func (c *client) services(ctx context.Context, d domain, q query) (listing, error) {
	o, cancel := c.options(ctx, d, q, c.settings.Filter)
	defer cancel()
	names, meta, err := c.Catalog().Services(o)
	if err != nil {
		return listing{}, fmt.Errorf("read the names of services: %w", err)
	}
	for name, tags := range names {
		if !c.selected.wants(name, tags) {
			delete(names, name)
		}
	}
	return listing{
		names: names, index: meta.LastIndex, filtered: meta.ResultsFilteredByACLs,
		confirming: q.level == certain, leaderless: !meta.KnownLeader,
	}, nil
}

func (c *client) service(ctx context.Context, d domain, name string, q query) (reading, error) {
	o, cancel := c.options(ctx, d, q, c.settings.HealthFilter)
	defer cancel()
	entries, meta, err := c.Health().ServiceMultipleTags(name, c.selected.tags, false, o)
	if err != nil {
		return reading{}, fmt.Errorf("read service %s: %w", name, err)
	}
	return reading{
		instances: newInstances(entries), index: meta.LastIndex,
		filtered: meta.ResultsFilteredByACLs, confirming: q.level == certain, leaderless: !meta.KnownLeader,
	}, nil
}
