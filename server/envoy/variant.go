package envoy

import (
	"context"
	"fmt"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// variant is what the clients of a scope share whose workloads serve the same ports: its collections, for sidecars with overlays of inbound
// listeners and their clusters. It is a unit among the hosts of the scope, so that it changes in one commit with them. model.InboundUnit is
// what all variants have in common: while that stays, only a change of a service that clients serve bears on one.
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

// makeVariant adds a variant to its scope, and brings that up to date. Only sidecars have inbound listeners.
func (c *Catalog) makeVariant(ctx context.Context, v *variant) error {
	s := v.scope
	if s.profile.Role != model.Sidecar {
		return nil
	}
	s.catching.Lock()
	v.clusters, v.listeners = s.group.Overlay(s.clusters), s.group.Overlay(s.listeners)
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
	if v.unit == "" {
		return
	}
	s.catching.Lock()
	defer s.catching.Unlock()
	s.update(map[string]*translate.Translation{v.unit: nil}, s.options, c.cache.release)
	c.mu.Lock()
	delete(s.variants, v.unit)
	delete(s.stale, v.unit)
	c.mu.Unlock()
	s.group.Drop(v.clusters)
	s.group.Drop(v.listeners)
}
