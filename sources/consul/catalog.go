package consul

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// catalog reads Consul. The scheduling does no HTTP itself.
type catalog interface {
	// services reads the names of the selected services.
	services(ctx context.Context, scope scope, query query) (listing, error)
	// service reads the instances of a service.
	service(ctx context.Context, scope scope, name string, query query) (serviceAnswer, error)
	// mayRead reports whether the source, or anonymous clients, have all rights.
	mayRead(ctx context.Context, scope scope, anonymous bool, rights []dial.Right) (bool, error)
	// changeItems runs a change query, and returns the index of the answer.
	changeItems(ctx context.Context, scope scope, name string, query query) (changeItems, uint64, error)
	// cluster returns the identity of the cluster; empty if it is unknown.
	cluster(ctx context.Context, scope scope) (string, error)
	// pulse reads the contact of the server to its leader.
	pulse(ctx context.Context, scope scope) (dial.Pulse, error)
}

type query struct {
	index uint64 // block until there is a newer one; 0 does not block
	level level  // not confirmed, if it blocks
}

// level is the consistency of an answer.
type level int

const (
	usual     level = iota // as the settings say; by default from any server, which may lag behind
	leaders                // from the leader, from its memory
	confirmed              // from the leader, which confirms first that it leads: the answer proves absence
)

// client is the catalog of a real Consul.
type client struct {
	*dial.Client
	settings Settings
	selected selection
}

const (
	// shortTimeout is the time limit of a query that does not block.
	shortTimeout = 30 * time.Second
	// blockingGrace is the extra time of a blocking query, on top of the time that Consul may block.
	blockingGrace = 15 * time.Second
)

// ask sends a query. action is the prefix of its errors.
func ask[T any](
	ctx context.Context, client *client, scope scope, query query, filter, action string,
	read func(*api.QueryOptions) (T, *api.QueryMeta, error),
) (items T, answer judge.Answer, err error) {
	queryOptions := &api.QueryOptions{
		Datacenter: scope.datacenter, Namespace: scope.namespace, Partition: scope.partition, Peer: scope.peer,
		Filter:            filter,
		RequireConsistent: query.level == confirmed || client.settings.RequireConsistent,
		AllowStale:        query.level == usual && client.settings.stale(),
	}
	limit := shortTimeout
	if query.index > 0 {
		queryOptions.WaitIndex, queryOptions.WaitTime, limit = query.index, client.settings.Wait, blockingGrace
	}
	items, answer, err = dial.Ask(ctx, limit, client.settings.MaxStale, queryOptions, read)
	if err != nil {
		return items, answer, fmt.Errorf("%s: %w", action, err)
	}
	answer.Confirmed = query.level == confirmed
	return items, answer, nil
}

const onlyServices = `ServiceKind == ""`

func (c *client) services(ctx context.Context, scope scope, query query) (listing, error) {
	// Sidecars and gateways are services of their own, one for each service of a mesh. They have no use here.
	filter := onlyServices
	if c.settings.Filter != "" {
		filter = "(" + c.settings.Filter + ") and " + onlyServices
	}
	names, answer, err := ask(ctx, c, scope, query, filter, "read the names of services", c.Catalog().Services)
	if err != nil {
		return listing{}, err
	}
	var unselected []string
	for name, tags := range names {
		if c.selected.matches(name, tags) {
			continue
		}
		delete(names, name)
		if name != "" && name != consulService {
			unselected = append(unselected, name)
		}
	}
	slices.Sort(unselected)
	return listing{Answer: answer, names: names, unselected: unselected}, nil
}

func (c *client) service(ctx context.Context, scope scope, name string, query query) (serviceAnswer, error) {
	read := func(o *api.QueryOptions) ([]*api.ServiceEntry, *api.QueryMeta, error) {
		entries, meta, err := c.Health().ServiceMultipleTags(name, c.selected.tags, false, o)
		return entries, meta, cmp.Or(err, checkEntries(entries))
	}
	entries, answer, err := ask(ctx, c, scope, query, c.settings.HealthFilter, "read service "+name, read)
	if err != nil {
		return serviceAnswer{}, err
	}
	return serviceAnswer{Answer: answer, instances: newInstances(entries)}, nil
}

// checkEntries returns an error for an instance without a node or service. To leave it out would look like its loss.
func checkEntries(entries []*api.ServiceEntry) error {
	if err := dial.Whole(entries); err != nil {
		return err
	}
	for i, entry := range entries {
		err := cmp.Or(dial.Whole([]*api.Node{entry.Node}), dial.Whole([]*api.AgentService{entry.Service}),
			dial.Whole(entry.Checks))
		if err != nil {
			return fmt.Errorf("instance %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *client) mayRead(ctx context.Context, scope scope, anonymous bool, rights []dial.Right) (bool, error) {
	ctx, cancel := dial.Within(ctx, shortTimeout)
	defer cancel()
	allowed, err := c.MayRead(ctx, scope.datacenter, scope.namespace, scope.partition, anonymous, rights)
	if err != nil && anonymous {
		return false, fmt.Errorf("no token is sent; ask what Consul shows without one: %w", err)
	}
	return allowed, err
}

func (c *client) cluster(ctx context.Context, scope scope) (string, error) {
	cluster, err := c.Cluster(ctx, scope.datacenter)
	if err != nil {
		return "", fmt.Errorf("ask which cluster it is: %w", dial.Explain(ctx, err))
	}
	return cluster, nil
}

func (c *client) pulse(ctx context.Context, scope scope) (dial.Pulse, error) {
	return c.Pulse(ctx, scope.datacenter)
}

// Consul's key-value store is read on demand, and not watched.

// Key returns the value of a key, in the first datacenter, namespace and partition that has it; nil if none has.
func (s *Source) Key(ctx context.Context, key string) ([]byte, error) {
	values, err := s.values(ctx, "read key "+key, func(o *api.QueryOptions) (api.KVPairs, error) {
		pair, _, err := s.client.KV().Get(key, o)
		if pair == nil {
			return nil, err
		}
		return api.KVPairs{pair}, err
	})
	return values[key], err
}

// Keys returns the values of all keys with a prefix.
func (s *Source) Keys(ctx context.Context, prefix string) (map[string][]byte, error) {
	return s.values(ctx, "read the keys "+prefix, func(o *api.QueryOptions) (api.KVPairs, error) {
		pairs, _, err := s.client.KV().List(prefix, o)
		return pairs, err
	})
}

// values reads all scopes that have keys of their own. The first value of a key counts. It fails if no scope has one
// and some failed.
func (s *Source) values(
	ctx context.Context, action string, read func(*api.QueryOptions) (api.KVPairs, error),
) (map[string][]byte, error) {
	values := make(map[string][]byte)
	var failure error
	for _, scope := range s.settings.scopes() {
		if scope.peer != "" {
			continue
		}
		o := &api.QueryOptions{
			Datacenter: scope.datacenter, Namespace: scope.namespace, Partition: scope.partition, AllowStale: s.settings.stale(),
		}
		pairs, err := read(o.WithContext(ctx))
		if err = cmp.Or(err, dial.Whole(pairs)); err != nil {
			failure = cmp.Or(failure, fmt.Errorf("%s: %w", action, err))
			continue
		}
		for _, pair := range pairs {
			if _, seen := values[pair.Key]; !seen {
				values[pair.Key] = pair.Value
			}
		}
	}
	if len(values) > 0 {
		return values, nil
	}
	return values, failure
}
