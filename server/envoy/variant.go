package envoy

import (
	"context"
	"fmt"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/families"
	"tributary/server/xds"
)

// variant is what the clients of a scope share whose workloads serve the same ports: the collections of the scope, some of them overlaid with
// what inbound listeners need. It is a unit among the hosts of the scope, so that it changes in one commit with them. model.InboundUnit stands
// for what all variants have in common: while that stays, only changes of the services that clients serve bear on a variant.
type variant struct {
	*scope
	collections

	unit    string
	inbound string // see model.Profile
	serves  []model.ServicePort
}

// someInbound is Profile.Inbound of a client of which only is known that it has an address.
var someInbound = model.InboundText("192.0.2.1", nil)

func newVariant(s *scope, p model.Profile) *variant {
	_, serves := p.ServedPorts()
	return &variant{scope: s, collections: s.collections, inbound: p.Inbound, serves: serves}
}

// cost returns the cost of a variant, in resources, besides that of its scope.
func (v *variant) cost() int { return model.VariantCost + 2*len(v.serves) }

// variantOf returns the variant of a scope for a profile until release is called. Only sidecars have inbound listeners.
func (c *Catalog) variantOf(ctx context.Context, s *scope, p model.Profile) (v *variant, release func(), err error) {
	if v = newVariant(s, p); p.Role != model.Sidecar {
		return v, func() {}, nil
	}
	return c.variants.Acquire(ctx, p, xds.HostOf(ctx), families.Maker[*variant]{
		Estimate: v.cost,
		Make:     func(ctx context.Context) (*variant, error) { return v, c.makeVariant(ctx, v) },
	})
}

// makeVariant adds a variant to its scope, and brings that up to date.
func (c *Catalog) makeVariant(ctx context.Context, v *variant) error {
	s := v.scope
	s.catching.Lock()
	v.clusters, v.listeners, v.secrets = s.group.Overlay(s.clusters), s.group.Overlay(s.listeners), s.group.Overlay(s.secrets)
	v.unit = fmt.Sprintf("%s/%p", model.InboundUnit, v)
	c.mu.Lock()
	s.variants[v.unit], s.stale[v.unit] = v, struct{}{}
	c.mu.Unlock()
	s.catching.Unlock()
	err := c.catchUp(ctx, s, func() {})
	if err != nil {
		c.dropVariant(v)
	}
	s.group.Flush()
	return err
}

func (c *Catalog) dropVariant(v *variant) {
	s := v.scope
	s.catching.Lock()
	defer s.catching.Unlock()
	s.update(map[string]*translate.Translation{v.unit: nil}, s.options, c.cache.release)
	c.mu.Lock()
	delete(s.variants, v.unit)
	delete(s.stale, v.unit)
	c.mu.Unlock()
	for _, overlay := range []*xds.Collection{v.clusters, v.listeners, v.secrets} {
		s.group.Drop(overlay)
	}
}

// replaceInbound makes t the translation of a variant instead of old.
func (c *change) replaceInbound(v *variant, old, t *translate.Translation) {
	c.entries(v.clusters, old.Clusters, t.Clusters)
	c.entries(v.listeners, old.Listeners, t.Listeners)
	c.entries(v.secrets, secretsOf(old), secretsOf(t))
	c.take(t.Listeners, 1)
	c.take(old.Listeners, -1)
}

func secretsOf(t *translate.Translation) (all []*xds.Entry) {
	for _, name := range t.Secrets {
		all = append(all, translate.EntryOf(translate.SecretOf(name)))
	}
	return all
}

// take counts the listeners of variants, which come before those of services.
func (c *change) take(listeners []*xds.Entry, by int) {
	for _, e := range listeners {
		c.inbound[e.Name] = true
		if c.taken[e.Name] += by; c.taken[e.Name] == 0 {
			delete(c.taken, e.Name)
		}
	}
}
