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

// WithoutEffect returns which fields of r have no effect on Envoys although they are set, each with its path and with what happens instead.
func WithoutEffect(r *resource.Resource) []string {
	if !slices.Contains(index.Kinds, r.Key().Kind) && r.Key().Kind != resource.ProxyConfig {
		return []string{words.WithArticle(string(r.Key().Kind)) + " has no effect on Envoys"}
	}
	spec, err := r.Spec()
	if err != nil {
		return []string{err.Error()}
	}
	return coverage.Without(spec)
}

// WithoutEffect returns what of r has no effect on the clients of the catalog, each with its path, and with what happens instead: fields
// that are not translated, and findings of the translation. If no client has asked for Envoy's types, it has a target that is nowhere.
func (c *Catalog) WithoutEffect(r *resource.Resource) []string {
	scopes := c.current()
	if len(scopes) == 0 {
		if why := index.WhyUnattached(r, c.view.Snapshot()); why != "" {
			return []string{"spec.targetRefs: " + why}
		}
		return nil
	}
	all := WithoutEffect(r)
	for _, f := range append(c.dangling(r.Key()), c.unmatched(r.Key(), scopes)...) {
		all = append(all, f.String())
	}
	scopesOf := make(map[model.Role]int)
	profiles := make(map[model.Finding][]model.Profile)
	for _, s := range scopes {
		scopesOf[s.profile.Role]++
		for _, f := range s.findings.of(r.Key()) {
			profiles[f] = append(profiles[f], s.profile)
		}
	}
	for _, f := range slices.SortedFunc(maps.Keys(profiles), model.Finding.Compare) {
		all = append(all, f.String()+limitedTo(profiles[f], scopesOf))
	}
	return all
}

// current returns the scopes that have all changes of the view, in order: those with clients, and those whose clients left since the last
// change.
func (c *Catalog) current() []*scope {
	c.mu.RLock()
	defer c.mu.RUnlock()
	scopes := slices.DeleteFunc(slices.Collect(maps.Keys(c.following)), func(s *scope) bool { return s.behind.Load() })
	slices.SortFunc(scopes, func(a, b *scope) int { return cmp.Compare(a.profile.String(), b.profile.String()) })
	return scopes
}

// limitedTo names the profiles that have a finding, but for roles of which all profiles have it.
func limitedTo(profiles []model.Profile, scopesOf map[model.Role]int) string {
	found := make(map[model.Role]int)
	for _, p := range profiles {
		found[p.Role]++
	}
	var some []string
	for _, p := range profiles {
		if name := p.String(); found[p.Role] < scopesOf[p.Role] && !slices.Contains(some, name) {
			some = append(some, name)
		}
	}
	const most = 3
	if n := len(some); n > most {
		some = append(some[:most], fmt.Sprintf("%d other sorts of clients", n-most))
	}
	if len(some) == 0 {
		return ""
	}
	return " (" + strings.Join(some, ", ") + ")"
}

// dangling returns the references of an object to hosts, delegates, gateways and targets that do not exist, for whatever client.
func (c *Catalog) dangling(key resource.Key) (found model.Findings) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if why := c.budget.why(key); why != "" {
		found.Note(model.Place{Of: key}, "%s", why)
	}
	if r := c.mesh.Policies.ByKey[key]; r != nil {
		if host := r.Hosts[0]; c.mesh.Hosts[host] == nil && !index.MatchesSome(host, c.mesh.Hosts) {
			found.Note(model.Place{Of: key, Field: "spec.host"}, "there is no host %s", host)
		}
	}
	if why := c.mesh.WhyUnattached(key, c.profiles()); why != "" {
		found.Note(model.Place{Of: key, Field: "spec.targetRefs"}, "%s", why)
	}
	r := c.mesh.Virtuals.ByKey[key]
	if r == nil {
		return found
	}
	for i, h := range r.Spec.GetHttp() {
		if d := h.GetDelegate(); d != nil && len(r.Spec.GetHosts()) > 0 && c.mesh.Delegate(d, key.Namespace) == nil {
			found.Note(model.Place{Of: key, Field: fmt.Sprintf("spec.http[%d].delegate", i)},
				"there is no VirtualService %s without hosts that is exported here: the route is left out",
				resource.DelegateKey(d, key.Namespace).FullName())
		}
	}
	for _, name := range model.GatewaysOf(r.Spec.GetGateways(), key.Namespace) {
		of, gatewayName, _ := strings.Cut(name, "/")
		g := c.mesh.Gateways[resource.Key{Kind: resource.Gateway, Namespace: of, Name: gatewayName}]
		if g == nil {
			found.Note(model.Place{Of: key, Field: "spec.gateways"}, "there is no Gateway %s", name)
			continue
		}
		for _, host := range r.Hosts {
			if !model.IsUnit(host) && !slices.ContainsFunc(g.Spec.GetServers(), func(s *networking.Server) bool {
				return (&model.Server{Server: s, Gateway: g}).Meets(host, key.Namespace)
			}) {
				found.Note(model.Place{Of: key, Field: "spec.hosts"}, "no server of Gateway %s has %s", name, host)
			}
		}
	}
	return found
}

// unmatched returns the patches of an EnvoyFilter that change nothing for any client and of which nothing else is said.
func (c *Catalog) unmatched(key resource.Key, scopes []*scope) (found model.Findings) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, p := range c.mesh.PatchesOf(key) {
		if !slices.ContainsFunc(scopes, func(s *scope) bool { return s.findings.has(p.Place) }) {
			found.Note(p.Place, "no client has anything that it matches")
		}
	}
	return found
}

// Affected returns the objects of which something has no effect on clients, in order. It is empty if no client has asked for Envoy's types.
func (c *Catalog) Affected() []resource.Key {
	scopes := c.current()
	if len(scopes) == 0 {
		return nil
	}
	all := make(map[resource.Key]bool)
	for _, s := range scopes {
		s.findings.objects(all)
	}
	for r := range c.view.Snapshot().All() {
		if key := r.Key(); !all[key] && (c.coverage.affected(r) || len(c.dangling(key)) > 0 || len(c.unmatched(key, scopes)) > 0) {
			all[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), resource.Key.Compare)
}

// Findings translates a view for clients of all sorts: sidecars in each namespace, with redirection and without, and the gateways that
// Gateways select. The function that it returns lists what of an object has no effect on these clients.
func Findings(view memstore.Reader) (func(r *resource.Resource) []string, error) {
	c, _, err := translateAll(view)
	if err != nil {
		return nil, err
	}
	return c.WithoutEffect, nil
}

// translateAll returns a catalog of what a view is now, with a scope for each sort of clients that the view has something for.
func translateAll(view memstore.Reader) (c *Catalog, scopes []*variant, err error) {
	c = New(view, Options{Log: slog.New(slog.DiscardHandler)})
	snap := view.Snapshot()
	c.update(nil, snap, false, true)
	profiles, err := profilesIn(snap)
	for p := range profiles {
		scopes = append(scopes, c.newScope(p))
	}
	return c, scopes, err
}

// profilesIn returns the profiles of all sorts of clients that a view has something for.
func profilesIn(snap memstore.Snapshot) (map[model.Profile]bool, error) {
	profiles := make(map[model.Profile]bool)
	for r := range snap.All() {
		add := func(p model.Profile, labels map[string]string) {
			p.Namespace, p.Labels, p.Credentials = r.Key().Namespace, model.LabelText(labels), model.DefaultCredentials
			profiles[p] = true
		}
		add(model.Profile{Inbound: someInbound}, nil)
		add(model.Profile{Inbound: someInbound, Captures: true}, nil)
		kind := r.Key().Kind
		if !slices.Contains([]resource.Kind{resource.Telemetry, resource.EnvoyFilter, resource.WasmPlugin, resource.Gateway}, kind) {
			continue
		}
		spec, err := r.Spec()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Key(), err)
		}
		labels := index.SelectorsOf(r, spec).Labels()
		if kind != resource.Gateway {
			add(model.Profile{}, labels)
		}
		if kind != resource.Telemetry {
			add(model.Profile{Role: model.Ingress}, labels)
		}
	}
	return profiles, nil
}
