package consul

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// catalog is what is read of Consul: the seam between the scheduling, which knows nothing of HTTP, and the client.
type catalog interface {
	// services reads the names of all services that are wanted.
	services(ctx context.Context, d domain, q query) (listing, error)
	// service reads the instances of one service.
	service(ctx context.Context, d domain, name string, q query) (reading, error)
	// mayRead reports whether we, or anonymous clients, have all of rights.
	mayRead(ctx context.Context, d domain, anonymous bool, rights []dial.Right) (bool, error)
	// notices answers one of the witnessed questions, and returns the index of the answer.
	notices(ctx context.Context, d domain, question string, q query) (marks, uint64, error)
	// cluster tells which cluster answers; empty if that cannot be known.
	cluster(ctx context.Context, d domain) (string, error)
	// pulse asks the servers how they are.
	pulse(ctx context.Context, d domain) (dial.Pulse, error)
}

// query is how to ask.
type query struct {
	index uint64 // block until there is something newer; 0 does not block
	level level  // not certain, if it blocks
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
	ctx, cancel := dial.Within(ctx, timeout)
	if q.index > 0 {
		ctx = dial.Once(ctx)
	}
	return o.WithContext(ctx), cancel
}

const onlyServices = `ServiceKind == ""`

func (c *client) services(ctx context.Context, d domain, q query) (listing, error) {
	// Sidecars and gateways are services of their own, one for each service of a mesh. Nobody has use for them here.
	filter := onlyServices
	if c.settings.Filter != "" {
		filter = "(" + c.settings.Filter + ") and " + onlyServices
	}
	o, cancel := c.options(ctx, d, q, filter)
	defer cancel()
	ctx, sent := dial.Watch(o.Context())
	names, meta, err := c.Catalog().Services(o.WithContext(ctx))
	if err != nil {
		return listing{}, fmt.Errorf("read the names of services: %w", dial.Explain(ctx, err))
	}
	var left []string
	for name, tags := range names {
		if c.selected.wants(name, tags) {
			continue
		}
		delete(names, name)
		if name != "" && name != ownService {
			left = append(left, name)
		}
	}
	return listing{Answer: c.answerOf(meta, q), names: names, left: left, anonymous: sent.Load()}, nil
}

// answerOf is what an answer to q says besides what it lists.
func (c *client) answerOf(meta *api.QueryMeta, q query) judge.Answer {
	return judge.Answer{
		Index: meta.LastIndex, Filtered: meta.ResultsFilteredByACLs, Confirming: q.level == certain, Leaderless: !meta.KnownLeader,
		Late: meta.LastContact > c.settings.MaxStale,
	}
}

func (c *client) service(ctx context.Context, d domain, name string, q query) (reading, error) {
	o, cancel := c.options(ctx, d, q, c.settings.HealthFilter)
	defer cancel()
	ctx, sent := dial.Watch(o.Context())
	entries, meta, err := c.Health().ServiceMultipleTags(name, c.selected.tags, false, o.WithContext(ctx))
	if err == nil {
		err = wholeInstances(entries)
	}
	if err != nil {
		return reading{}, fmt.Errorf("read service %s: %w", name, dial.Explain(ctx, err))
	}
	return reading{Answer: c.answerOf(meta, q), instances: newInstances(entries), anonymous: sent.Load()}, nil
}

// wholeInstances returns an error if what names an instance is missing in an answer. To leave it out would look like its loss.
func wholeInstances(entries []*api.ServiceEntry) error {
	if err := dial.Whole(entries); err != nil {
		return err
	}
	for i, e := range entries {
		err := cmp.Or(dial.Whole([]*api.Node{e.Node}), dial.Whole([]*api.AgentService{e.Service}), dial.Whole(e.Checks))
		if err != nil {
			return fmt.Errorf("instance %d: %w", i+1, err)
		}
	}
	return nil
}

func (c *client) mayRead(ctx context.Context, d domain, anonymous bool, rights []dial.Right) (bool, error) {
	ctx, cancel := dial.Within(ctx, shortTimeout)
	defer cancel()
	may, err := c.MayRead(ctx, d.datacenter, d.namespace, d.partition, anonymous, rights)
	if err != nil && anonymous {
		return false, fmt.Errorf("no token is sent; ask what Consul shows without one: %w", err)
	}
	return may, err
}

func (c *client) cluster(ctx context.Context, d domain) (string, error) {
	cluster, err := c.Cluster(ctx, d.datacenter)
	if err != nil {
		return "", fmt.Errorf("ask which cluster it is: %w", dial.Explain(ctx, err))
	}
	return cluster, nil
}

func (c *client) pulse(ctx context.Context, d domain) (dial.Pulse, error) {
	return c.Pulse(ctx, d.datacenter)
}

// What else there is in Consul than services: what stands below keys that are known. It is read when somebody asks, and not followed.

// Key returns what stands below a key, in the first datacenter, namespace and partition that has something; nil if none has.
func (s *Source) Key(ctx context.Context, key string) (value []byte, err error) {
	pairs, err := s.pairs(ctx, "read key "+key, func(o *api.QueryOptions) (api.KVPairs, error) {
		pair, _, err := s.client.KV().Get(key, o)
		if pair == nil {
			return nil, err
		}
		return api.KVPairs{pair}, err
	})
	if len(pairs) == 0 {
		return nil, err
	}
	return pairs[0].Value, nil
}

// Keys returns all that stands below keys of a prefix, by key.
func (s *Source) Keys(ctx context.Context, prefix string) (map[string][]byte, error) {
	pairs, err := s.pairs(ctx, "read the keys "+prefix, func(o *api.QueryOptions) (api.KVPairs, error) {
		pairs, _, err := s.client.KV().List(prefix, o)
		return pairs, err
	})
	if err != nil {
		return nil, err
	}
	all := make(map[string][]byte, len(pairs))
	for _, p := range pairs {
		if _, there := all[p.Key]; !there {
			all[p.Key] = p.Value
		}
	}
	return all, nil
}

// pairs asks in all parts of Consul that have keys of their own, and returns what all have, in their order.
func (s *Source) pairs(ctx context.Context, what string, ask func(*api.QueryOptions) (api.KVPairs, error)) (all api.KVPairs, failed error) {
	for _, d := range s.settings.domains() {
		if d.peer != "" {
			continue
		}
		o := &api.QueryOptions{Datacenter: d.datacenter, Namespace: d.namespace, Partition: d.partition, AllowStale: s.settings.stale()}
		pairs, err := ask(o.WithContext(ctx))
		if err = cmp.Or(err, dial.Whole(pairs)); err != nil {
			failed = cmp.Or(failed, fmt.Errorf("%s: %w", what, err))
			continue
		}
		all = append(all, pairs...)
	}
	if len(all) > 0 {
		failed = nil
	}
	return all, failed
}
