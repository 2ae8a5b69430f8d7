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

// objectCheck uses its last result again for minCheckAge, and at least for checkShare times the duration of the check.
// So frequent questions take at most a twentieth of a processor.
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
		c.missing = nil
		c.revision = snapshot.Revision()
		c.options = options
		findings, unchecked := references.FindMissing(snapshot, options)
		for _, finding := range findings {
			c.missing = append(c.missing, problemOf(snapshot, finding.Key, finding.Message))
		}
		c.result.Unchecked = unchecked
	}
	c.result.Unresolved = append(c.relay.unservedObjects(), c.missing...)
	c.result.Refused = nil
	for _, catalog := range c.relay.catalogs.envoyCatalogs() {
		for key, reason := range catalog.Refused() {
			c.result.Refused = append(c.result.Refused, problemOf(snapshot, key, reason))
		}
	}
	slices.SortFunc(c.result.Refused, func(a, b admin.ObjectProblem) int { return a.Key().Compare(b.Key()) })
	c.result.Refused = slices.CompactFunc(c.result.Refused, func(a, b admin.ObjectProblem) bool { return a.Ref == b.Ref })
	c.checked = time.Now()
	c.cost = c.checked.Sub(start)
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
		problem.Source = r.Origin().Source
		problem.Place = r.Origin().Place
	}
	return problem
}

// referenceOptions returns the options for references.FindMissing. Partial says that a source was never read. Cluster
// says that hosts of a Kubernetes cluster must exist in the view: a source has the cluster's Services, or no client is
// an istiod, which may have them.
func (r *Relay) referenceOptions() (options references.Options) {
	for _, source := range r.supervisor.Status() {
		if !source.Synced && source.Restored == nil {
			options.Partial = true
		}
		if strings.HasPrefix(source.Address, "k8s://") && source.Objects[resource.ServiceEntry] > 0 {
			options.Cluster = true
		}
	}
	hasEnvoy, hasIstiod := false, false
	for client := range r.engine.EachClient() {
		for _, subscription := range client.Types {
			_, isObject := resource.SchemaByTypeURL(subscription.TypeURL)
			hasEnvoy = hasEnvoy || envoy.Serves(subscription.TypeURL)
			hasIstiod = hasIstiod || isObject && !admin.IsCommand(&client)
		}
	}
	options.Cluster = options.Cluster || hasEnvoy && !hasIstiod
	return options
}

// whyUnenforced returns the effect of a security object that clients do not enforce, with the name of one such client.
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
