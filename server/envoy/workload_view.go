package envoy

import (
	"context"
	"fmt"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// workloadView holds the collections of the clients of a scope whose workloads serve the same ports. They are those of
// the scope; for sidecars, overlays add the inbound listeners and their clusters. A view is a pseudo-host of its scope,
// so that it changes in one commit with the hosts. model.InboundPseudoHost is the common part of all views: while it is
// unchanged, only a change of a service that the clients serve concerns a view.
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
	scope := view.scope
	if scope.profile.Role != model.Sidecar {
		return nil
	}
	scope.catching.Lock()
	view.clusters = scope.group.Overlay(scope.clusters)
	view.listeners = scope.group.Overlay(scope.listeners)
	view.pseudoHost = fmt.Sprintf("%s/%p", model.InboundPseudoHost, view)
	c.mu.Lock()
	scope.workloadViews[view.pseudoHost] = view
	scope.stale[view.pseudoHost] = true
	c.mu.Unlock()
	scope.catching.Unlock()
	err := c.catchUp(ctx, scope, func() {})
	if err != nil {
		c.dropWorkloadView(view)
	}
	scope.group.Flush()
	return err
}

func (c *Catalog) dropWorkloadView(view *workloadView) {
	scope := view.scope
	if view.pseudoHost == "" {
		return
	}
	scope.catching.Lock()
	defer scope.catching.Unlock()
	scope.update(map[string]*translate.Translation{view.pseudoHost: nil}, scope.listenerOptions)
	c.mu.Lock()
	delete(scope.workloadViews, view.pseudoHost)
	delete(scope.stale, view.pseudoHost)
	c.mu.Unlock()
	scope.group.Drop(view.clusters)
	scope.group.Drop(view.listeners)
}
