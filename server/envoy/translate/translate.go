package translate

import (
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// Translation has the resources of a host for the clients of a profile. All profiles with the same translation share
// it. Only VirtualHost.OnDemand changes after View.
type Translation struct {
	model.Precedence // of the service

	Clusters, Endpoints []*xds.Entry
	Secrets             []string // names; see SecretOf

	Listeners, Routes []*xds.Entry // not shared with other hosts

	// Parts of routes and sidecar listeners that several hosts share.
	Hosts  map[string]*VirtualHost // by the name of the routes
	Claims []Claim                 // most hosts have one: a map would take more memory

	Addresses []string // of its name

	Objects  []resource.Key // it was made of
	Findings model.Findings // in Objects

	bodies BodyCache // nil after View
}

// ClaimsByBinding returns the claims of the host.
func (t *Translation) ClaimsByBinding() map[model.Binding]Claim {
	claims := make(map[model.Binding]Claim, len(t.Claims))
	for _, claim := range t.Claims {
		claims[claim.Binding] = claim
	}
	return claims
}

// ClaimPrecedence returns the precedence of a claim of the host; late claims come after all others.
func (t *Translation) ClaimPrecedence(c Claim) model.Precedence {
	precedence := t.Precedence
	if c.late {
		precedence.Audience += lateAudience
	}
	return precedence
}

// lateAudience exceeds any Audience.
const lateAudience = 10

// View translates a view. It reads and fills the cache of bodies, which does not change the result.
func View(view *model.View, bodies BodyCache) *Translation {
	translation := &Translation{
		Hosts: make(map[string]*VirtualHost), Objects: view.Objects, Findings: slices.Clone(view.Findings), bodies: bodies,
	}
	if view.Patches != nil && model.IsPseudoHost(view.Host) {
		translation.Objects = append(slices.Clip(translation.Objects), view.Patches.Objects...)
	}
	translation.add(view)
	translation.bodies = nil
	translation.Findings = translation.Findings.Sorted()
	var last resource.Key
	for _, f := range translation.Findings {
		if f.Why == "" && f.Object != last { // each patch has its own object
			last = f.Object
			translation.Objects = append(slices.Clip(translation.Objects), f.Object)
		}
	}
	return translation
}

func (t *Translation) add(view *model.View) {
	if view.Client.Role == model.Ingress {
		t.addIngress(view)
	}
	if view.Inbound != nil {
		t.addInbound(view)
	}
	if view.Client.Role == model.Sidecar && view.UnregisteredRoutes != nil {
		if host := t.unregisteredHost(view); host != nil {
			t.Hosts[model.RouteName(model.UnregisteredPort)] = host
		}
	}
	if view.Service == nil {
		return
	}
	service := view.Service
	t.Precedence = service.Precedence
	t.Addresses = slices.DeleteFunc(slices.Clone(service.Addresses), func(a string) bool { return !resource.IsAddress(a) })
	claims := make(map[model.Binding]Claim) // of several claims for a binding, the last one counts
	patches := extend.New(view.Patches, extend.ContextOf(view.Client.Role), &t.Findings)
	for i := range service.Ports {
		port := &service.Ports[i]
		for _, subset := range append([]*networking.Subset{nil}, view.Policy.Subsets...) {
			policy := view.Policy.On(port.Number, subset)
			placed := placementOf(view.Client, policy)
			placed.isMutual = mutualEndpoints(view, port, subset)
			placed.health = t.buildHealthCheck(port, subset, policy, view.Client)
			cluster := t.cluster(view, port, subset, placed)
			withheld := t.checkWithheld(view, port, subset)
			if withheld {
				withholdEndpoints(cluster)
			}
			if reason := model.Refused(cluster); reason != "" {
				t.Findings.Note(view.PlaceOf(port), "%s: there is no cluster %s", reason, cluster.GetName())
				continue
			}
			cluster, served := patches.Cluster(cluster)
			if !served {
				continue
			}
			t.Clusters = append(t.Clusters, EntryOf(cluster))
			if cluster.GetType() == clusterv3.Cluster_EDS {
				loadAssignment := assignment(port, xds.ChildOf(cluster), subset, clusterv3.Cluster_EDS, placed, &t.Findings)
				if withheld {
					loadAssignment.Endpoints = nil
				}
				t.Endpoints = append(t.Endpoints, EntryOf(loadAssignment))
			}
		}
		if port.Unreached {
			continue
		}
		switch view.Client.Role {
		case model.Proxyless:
			t.addProxyless(view, port)
		case model.Sidecar:
			switch name := model.RouteName(port.Number); {
			case port.Spoken.Routed() && port.Protocol.Routed() && !port.Late:
				t.Hosts[name] = t.virtualHost(view, port, nil)
			case port.Spoken.Routed() && t.Hosts[name] == nil: // the listener may have its protocol, and needs its routes
				t.Hosts[name] = newVirtualHost(model.Place{}, nil, &routev3.VirtualHost{}, nil)
			}
			if port.Spoken == model.ProtocolDetected {
				t.Hosts[detectedRoutes(service.Host, port.Number)] = t.virtualHost(view, port, []string{"*"})
			}
			for _, claim := range claimsOf(view, port, &t.Findings) {
				claims[claim.Binding] = claim
			}
		}
	}
	t.Claims = slices.Clip(slices.Collect(maps.Values(claims)))
}

// addProxyless adds the resources for clients that dial the service with the port or, for the default port, by name
// alone.
func (t *Translation) addProxyless(view *model.View, port *model.Port) {
	service := view.Service
	if strings.Contains(service.Host, "*") {
		return // a client cannot dial a wildcard
	}
	body, name := t.grpcRoutes(view, port)
	t.Routes = append(t.Routes, EntryOfBytes(name, xds.RouteURL, body))
	t.Listeners = append(t.Listeners, EntryOf(grpcListener(service, port, model.HostPort(service.Host, port.Number))))
	if port == service.DefaultPort() {
		t.Listeners = append(t.Listeners, EntryOf(grpcListener(service, port, service.Host)))
	}
}
