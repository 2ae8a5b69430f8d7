package relay

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/envoy"
	"tributary/server/envoy/references"
	"tributary/server/xds"
)

// An answer of objectCheck is at most minCheckAge old, or checkShare times its cost, so that frequent questions do not
// cost more than a twentieth of a processor.
const (
	minCheckAge = time.Second
	checkShare  = 20
)

// objectCheck finds the problems of the objects in the view on request.
type objectCheck struct {
	relay *Relay

	mu       sync.Mutex
	checked  time.Time
	cost     time.Duration
	revision memstore.Revision
	options  references.Options
	missing  []admin.ObjectProblem // references of objects in the view
	result   admin.ObjectProblems
}

// problems returns the problems of the objects. The caller must not change them.
func (c *objectCheck) problems() admin.ObjectProblems {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.checked.IsZero() && time.Since(c.checked) < max(minCheckAge, checkShare*c.cost) {
		return c.result
	}
	start := time.Now()
	snapshot, options := c.relay.view.Snapshot(), c.relay.referenceOptions()
	if c.checked.IsZero() || snapshot.Revision() != c.revision || options != c.options {
		c.missing, c.revision, c.options = nil, snapshot.Revision(), options
		findings, unchecked := references.FindMissing(snapshot, options)
		for _, finding := range findings {
			c.missing = append(c.missing, problemOf(snapshot, finding.Key, finding.Message))
		}
		c.result.Unchecked = unchecked
	}
	c.result.Unresolved, c.result.Refused = append(c.relay.unservedObjects(), c.missing...), nil
	for _, catalog := range c.relay.catalogs.envoyCatalogs() {
		for key, reason := range catalog.Refused() {
			c.result.Refused = append(c.result.Refused, problemOf(snapshot, key, reason))
		}
	}
	slices.SortFunc(c.result.Refused, func(a, b admin.ObjectProblem) int { return a.Key().Compare(b.Key()) })
	c.result.Refused = slices.CompactFunc(c.result.Refused, func(a, b admin.ObjectProblem) bool { return a.Ref == b.Ref })
	c.checked, c.cost = time.Now(), time.Since(start)
	return c.result
}

// unservedObjects returns the unserved parts of objects of the Gateway API and Ingresses.
func (r *Relay) unservedObjects() (problems []admin.ObjectProblem) {
	for _, source := range r.supervisor.Status() {
		for _, unserved := range source.Unserved {
			problems = append(problems, admin.ObjectProblem{
				Ref: conflicts.Ref(unserved.Object), Message: unserved.Message,
				Source: source.Name, Place: unserved.Origin.Place,
			})
		}
	}
	return problems
}

func problemOf(snapshot memstore.Snapshot, key resource.Key, message string) admin.ObjectProblem {
	problem := admin.ObjectProblem{Ref: conflicts.Ref(key), Message: message}
	if r := snapshot.Get(key); r != nil {
		problem.Source, problem.Place = r.Origin().Source, r.Origin().Place
	}
	return problem
}

// referenceOptions returns Partial while a source was never read. Hosts of a Kubernetes cluster must exist in the view
// if a source has the cluster's Services, or if all clients are Envoys and gRPC clients: an istiod may know such hosts.
func (r *Relay) referenceOptions() (options references.Options) {
	for _, source := range r.supervisor.Status() {
		options.Partial = options.Partial || !source.Synced && source.Restored == nil
		options.Cluster = options.Cluster || strings.HasPrefix(source.Address, "k8s://") &&
			source.Objects[resource.ServiceEntry] > 0
	}
	envoys, istiods := false, false
	for client := range r.engine.EachClient() {
		for _, subscription := range client.Types {
			_, object := resource.SchemaByTypeURL(subscription.TypeURL)
			envoys, istiods = envoys || envoy.Serves(subscription.TypeURL), istiods || object && !admin.IsCommand(&client)
		}
	}
	options.Cluster = options.Cluster || envoys && !istiods
	return options
}

// whyUnenforced returns the effect of clients that do not enforce a security object, with the first of these clients.
func (r *Relay) whyUnenforced(key resource.Key) string {
	for _, catalog := range r.catalogs.envoyCatalogs() {
		if !slices.Contains(catalog.Unenforced(), key) {
			continue
		}
		effect, served := catalog.WhyUnenforced(key)
		for client := range r.engine.EachClient() {
			if slices.ContainsFunc(client.Types, func(t xds.TypeStatus) bool {
				return slices.Contains(served, t.Collection)
			}) {
				return admin.ClientName(client.Node.GetId(), client.Peer) + ": " + effect
			}
		}
		return effect
	}
	return ""
}

// newObjectCheck returns an objectCheck with its metrics.
func newObjectCheck(relay *Relay, registry *prometheus.Registry) *objectCheck {
	check := &objectCheck{relay: relay}
	gauge := func(name, help string, count func() int) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "tributary", Name: name, Help: help},
			func() float64 { return float64(count()) }))
	}
	gauge("envoy_unenforced_objects", "Security objects that Envoys and gRPC clients do not enforce.",
		func() int { return len(relay.catalogs.unenforced()) })
	gauge("view_unresolved_references",
		"Hosts, ports, subsets, delegates and Gateways that VirtualServices refer to and no object has, and parts of "+
			"objects of the Gateway API that are not served.",
		func() int { return len(check.problems().Unresolved) })
	gauge("view_unchecked_references",
		"References that cannot be checked, since a source was never read that may resolve them.",
		func() int { return len(check.problems().Unchecked) })
	gauge("envoy_refused_objects",
		"Objects that Envoys and gRPC clients do not get, since those of their namespace exceed limits.productBytes.",
		func() int { return len(check.problems().Refused) })
	return check
}
