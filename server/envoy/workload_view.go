package envoy

import (
	"context"
	"fmt"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// workloadView holds the collections of clients of a scope with workloads on the same ports: those of the scope,
// for sidecars with overlays of inbound listeners and their clusters. It is a pseudo-host of the scope, so that it
// changes in one commit with the hosts. model.InboundPseudoHost is the common part of all workload views: while it is
// unchanged, only a change of a service that clients serve concerns their view.
type workloadView struct {
	*scope
	collections

	pseudoHost  string
	inbound     string // see model.Profile
	servedPorts []model.ServicePort
}

// sampleInbound is Profile.Inbound of a client with an address and no known services.
var sampleInbound = model.InboundText("192.0.2.1", nil)

func newWorkloadView(s *scope, profile model.Profile) *workloadView {
	_, servedPorts := profile.ServedPorts()
	return &workloadView{scope: s, collections: s.collections, inbound: profile.Inbound, servedPorts: servedPorts}
}

// cost returns the cost of a workload view, in resources, without that of its scope.
func (view *workloadView) cost() int { return model.WorkloadViewCost + 2*len(view.servedPorts) }

// makeWorkloadView adds a workload view to its scope, and brings the scope up to date. Only sidecars have inbound
// listeners.
func (c *Catalog) makeWorkloadView(ctx context.Context, view *workloadView) error {
	s := view.scope
	if s.profile.Role != model.Sidecar {
		return nil
	}
	s.catching.Lock()
	view.clusters, view.listeners = s.group.Overlay(s.clusters), s.group.Overlay(s.listeners)
	view.pseudoHost = fmt.Sprintf("%s/%p", model.InboundPseudoHost, view)
	c.mu.Lock()
	s.workloadViews[view.pseudoHost], s.stale[view.pseudoHost] = view, true
	c.mu.Unlock()
	s.catching.Unlock()
	err := c.catchUp(ctx, s, func() {})
	if err != nil {
		c.dropWorkloadView(view)
	}
	s.group.Flush()
	return err
}

func (c *Catalog) dropWorkloadView(view *workloadView) {
	s := view.scope
	if view.pseudoHost == "" {
		return
	}
	s.catching.Lock()
	defer s.catching.Unlock()
	s.update(map[string]*translate.Translation{view.pseudoHost: nil}, s.options)
	c.mu.Lock()
	delete(s.workloadViews, view.pseudoHost)
	delete(s.stale, view.pseudoHost)
	c.mu.Unlock()
	s.group.Drop(view.clusters)
	s.group.Drop(view.listeners)
}
