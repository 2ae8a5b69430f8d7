package envoy

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/coverage"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

// WithoutEffect returns the fields of an object that have no effect on Envoys although they are set, each with its path
// and the behavior instead.
func WithoutEffect(object *resource.Resource) []string {
	if !slices.Contains(index.Kinds, object.Key().Kind) && object.Key().Kind != resource.ProxyConfig {
		return []string{words.WithArticle(string(object.Key().Kind)) + " has no effect on Envoys"}
	}
	spec, err := object.Spec()
	if err != nil {
		return []string{err.Error()}
	}
	return coverage.WithoutEffect(spec)
}

// WithoutEffect returns the parts of an object without effect on the clients of the catalog, each with its path and the
// behavior instead: fields that are not translated, and findings of the translation. Before the first client it returns
// only a missing target.
func (c *Catalog) WithoutEffect(object *resource.Resource) []string {
	scopes := c.currentScopes()
	if len(scopes) == 0 {
		if why := index.WhyUnattached(object, c.view.Snapshot()); why != "" {
			return []string{"spec.targetRefs: " + why}
		}
		return nil
	}
	problems := WithoutEffect(object)
	for _, finding := range append(c.danglingReferences(object.Key()), c.unmatchedPatches(object.Key(), scopes)...) {
		problems = append(problems, finding.String())
	}
	scopesOf := make(map[model.Role]int)
	profiles := make(map[model.Finding][]model.Profile)
	for _, s := range scopes {
		scopesOf[s.profile.Role]++
		for _, finding := range s.findings.noEffect(object.Key()) {
			profiles[finding] = append(profiles[finding], s.profile)
		}
	}
	for _, finding := range slices.SortedFunc(maps.Keys(profiles), model.Finding.Compare) {
		problems = append(problems, finding.String()+limitedTo(profiles[finding], scopesOf))
	}
	return problems
}

// currentScopes returns the scopes with all changes of the view, in order: those with clients, and those that lost
// their last client after the last change.
func (c *Catalog) currentScopes() []*scope {
	c.mu.RLock()
	defer c.mu.RUnlock()
	scopes := slices.DeleteFunc(slices.Collect(maps.Keys(c.following)), func(s *scope) bool { return s.behind.Load() })
	slices.SortFunc(scopes, func(a, b *scope) int { return cmp.Compare(a.profile.String(), b.profile.String()) })
	return scopes
}

// limitedTo names the profiles with a finding, except for roles with the finding in all profiles.
func limitedTo(profiles []model.Profile, scopesOf map[model.Role]int) string {
	withFinding := make(map[model.Role]int)
	for _, profile := range profiles {
		withFinding[profile.Role]++
	}
	var names []string
	for _, profile := range profiles {
		if name := profile.String(); withFinding[profile.Role] < scopesOf[profile.Role] && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	const most = 3
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("%d other sorts of clients", n-most))
	}
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// danglingReferences returns the references of an object to hosts, delegates, gateways and targets that exist for no
// client.
func (c *Catalog) danglingReferences(key resource.Key) (findings model.Findings) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if why := c.budget.why(key); why != "" {
		findings.Note(model.Place{Object: key}, "%s", why)
	}
	if r := c.mesh.Policies.ByKey[key]; r != nil {
		if host := r.Hosts[0]; c.mesh.Hosts[host] == nil && !index.MatchesAny(host, c.mesh.Hosts) {
			findings.Note(model.PlaceIn(key, "spec.host"), "there is no host %s", host)
		}
	}
	if why := c.mesh.WhyUnattached(key, c.profiles()); why != "" {
		findings.Note(model.PlaceIn(key, "spec.targetRefs"), "%s", why)
	}
	rule := c.mesh.Virtuals.ByKey[key]
	if rule == nil {
		return findings
	}
	for i, h := range rule.Spec.GetHttp() {
		if delegate := h.GetDelegate(); delegate != nil && len(rule.Spec.GetHosts()) > 0 &&
			c.mesh.Delegate(delegate, key.Namespace) == nil {
			findings.Note(model.PlaceIn(key, "spec.http[%d].delegate", i),
				"there is no VirtualService %s without hosts that is exported here: the route is left out",
				resource.DelegateKey(delegate, key.Namespace).FullName())
		}
	}
	for _, name := range rule.WholeGateways(rule.Spec.GetGateways()) {
		namespace, gatewayName, _ := strings.Cut(name, "/")
		gateway := c.mesh.Gateways[resource.Key{Kind: resource.Gateway, Namespace: namespace, Name: gatewayName}]
		if gateway == nil {
			findings.Note(model.PlaceIn(key, "spec.gateways"), "there is no Gateway %s", name)
			continue
		}
		for _, host := range rule.Hosts {
			if !model.IsPseudoHost(host) && !slices.ContainsFunc(gateway.Spec.GetServers(), func(s *networking.Server) bool {
				return (&model.Server{Server: s, Gateway: gateway}).Meets(host, key.Namespace)
			}) {
				findings.Note(model.PlaceIn(key, "spec.hosts"), "no server of Gateway %s has %s", name, host)
			}
		}
	}
	return findings
}

// unmatchedPatches returns the patches of an EnvoyFilter that have no effect on any client and no other finding.
func (c *Catalog) unmatchedPatches(key resource.Key, scopes []*scope) (findings model.Findings) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.mesh.PatchesOf(key) {
		if !slices.ContainsFunc(scopes, func(s *scope) bool { return s.findings.contains(p.Place) }) {
			findings.Note(p.Place, "no client has anything that it matches")
		}
	}
	return findings
}

// Affected returns the objects with a part that has no effect on clients, in order. It is empty before the first
// client.
func (c *Catalog) Affected() []resource.Key {
	scopes := c.currentScopes()
	if len(scopes) == 0 {
		return nil
	}
	affected := make(map[resource.Key]bool)
	for _, s := range scopes {
		s.findings.addAffected(affected)
	}
	for object := range c.view.Snapshot().All() {
		if key := object.Key(); !affected[key] &&
			(c.coverage.affected(object) || len(c.danglingReferences(key)) > 0 || len(c.unmatchedPatches(key, scopes)) > 0) {
			affected[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(affected), resource.Key.Compare)
}

// Findings translates a view for clients of all sorts: sidecars in each namespace, with redirection and without, and
// the gateways that Gateways select. The returned function lists the parts of an object without effect on these
// clients.
func Findings(view memstore.Reader) (func(object *resource.Resource) []string, error) {
	catalog, _, err := translateAll(view)
	if err != nil {
		return nil, err
	}
	return catalog.WithoutEffect, nil
}

// translateAll returns a catalog of a view's present content, with a scope for each sort of clients that its objects
// concern.
func translateAll(view memstore.Reader) (catalog *Catalog, scopes []*workloadView, err error) {
	catalog = New(view, Options{Log: slog.New(slog.DiscardHandler)})
	snapshot := view.Snapshot()
	catalog.reset(snapshot, true)
	profiles, err := profilesIn(snapshot)
	for profile := range profiles {
		scopes = append(scopes, catalog.newScope(profile))
	}
	return catalog, scopes, err
}

// profilesIn returns the profiles of all sorts of clients that the objects of a snapshot concern.
func profilesIn(snapshot memstore.Snapshot) (map[model.Profile]bool, error) {
	profiles := make(map[model.Profile]bool)
	for object := range snapshot.All() {
		addProfile := func(profile model.Profile, labels map[string]string) {
			profile.Namespace = object.Key().Namespace
			profile.Labels = model.LabelText(labels)
			profile.Credentials = model.DefaultCredentials
			profiles[profile] = true
		}
		addProfile(model.Profile{Inbound: sampleInbound}, nil)
		addProfile(model.Profile{Inbound: sampleInbound, Captures: true}, nil)
		kind := object.Key().Kind
		if !slices.Contains([]resource.Kind{resource.Telemetry, resource.EnvoyFilter, resource.WasmPlugin, resource.Gateway},
			kind) {
			continue
		}
		spec, err := object.Spec()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", object.Key(), err)
		}
		labels := index.SelectorsOf(object, spec).Labels()
		if kind != resource.Gateway {
			addProfile(model.Profile{}, labels)
		}
		if kind != resource.Telemetry {
			addProfile(model.Profile{Role: model.Ingress}, labels)
		}
	}
	return profiles, nil
}
