package consul

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/consul/api"

	"tributary/sources/consul/dial"
)

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
