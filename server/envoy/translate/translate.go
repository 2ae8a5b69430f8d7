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
	Claims []claimed

	Addresses []string // of its name

	Objects  []resource.Key // it was made of
	Findings model.Findings // in Objects

	share Sharing // while it is made
}

// claimed is a claim of a binding. Most hosts have a single one: a map would take more memory.
type claimed struct {
	model.Binding
	claim
}

// ClaimsByBinding returns the claims of the host.
func (t *Translation) ClaimsByBinding() map[model.Binding]claim {
	claims := make(map[model.Binding]claim, len(t.Claims))
	for _, c := range t.Claims {
		claims[c.Binding] = c.claim
	}
	return claims
}

// ClaimPrecedence returns the precedence of a claim of the host; late claims come after all others.
func (t *Translation) ClaimPrecedence(c claim) model.Precedence {
	p := t.Precedence
	if c.late {
		p.Audience += lateAudience
	}
	return p
}

// lateAudience exceeds any Audience.
const lateAudience = 10

// View translates a view. It is a pure function, with the bodies of virtual hosts that other views share.
func View(v *model.View, share Sharing) *Translation {
	t := &Translation{
		Hosts: make(map[string]*VirtualHost), Objects: v.Objects, Findings: slices.Clone(v.Findings), share: share,
	}
	if v.Patches != nil && model.IsPseudoHost(v.Host) {
		t.Objects = append(slices.Clip(t.Objects), v.Patches.Objects...)
	}
	t.add(v, v.Client)
	t.share = nil
	t.Findings = t.Findings.Sorted()
	var last resource.Key
	for _, f := range t.Findings {
		if f.Why == "" && f.Object != last { // each patch has its own object
			last = f.Object
			t.Objects = append(slices.Clip(t.Objects), f.Object)
		}
	}
	return t
}

func (t *Translation) add(v *model.View, client model.Profile) {
	if client.Role == model.Ingress {
		t.addIngress(v, client)
	}
	if v.Inbound != nil {
		t.addInbound(v)
	}
	if client.Role == model.Sidecar && v.UnregisteredRoutes != nil {
		if host := t.unregistered(v, client); host != nil {
			t.Hosts[model.RouteName(model.UnregisteredPort)] = host
		}
	}
	if v.Service == nil {
		return
	}
	s := v.Service
	t.Precedence = s.Precedence
	t.Addresses = slices.DeleteFunc(slices.Clone(s.Addresses), func(a string) bool { return !resource.IsAddress(a) })
	claims := make(map[model.Binding]claim)
	patches := extend.New(v.Patches, extend.ContextOf(client.Role), &t.Findings)
	for i := range s.Ports {
		p := &s.Ports[i]
		for _, subset := range append([]*networking.Subset{nil}, v.Policy.Subsets...) {
			policy := v.Policy.On(p.Number, subset)
			placed := placementOf(client, policy)
			placed.authenticated = authenticated(v, p, subset)
			placed.health = t.healthOf(p, subset, policy, client)
			c := t.cluster(v, p, subset, placed)
			withheld := t.withholds(v, p, subset)
			if withheld {
				withhold(c)
			}
			if reason := model.Refused(c); reason != "" {
				t.Findings.Note(v.PlaceOf(p), "%s: there is no cluster %s", reason, c.GetName())
				continue
			}
			c, served := patches.Cluster(c)
			if !served {
				continue
			}
			t.Clusters = append(t.Clusters, EntryOf(c))
			if c.GetType() == clusterv3.Cluster_EDS {
				a := assignment(p, xds.ChildOf(c), subset, clusterv3.Cluster_EDS, placed, &t.Findings)
				if withheld {
					a.Endpoints = nil
				}
				t.Endpoints = append(t.Endpoints, EntryOf(a))
			}
		}
		if p.Unreached {
			continue
		}
		switch client.Role {
		case model.Proxyless:
			t.addProxyless(v, p, client)
		case model.Sidecar:
			switch name := model.RouteName(p.Number); {
			case p.Spoken.Routed() && p.Protocol.Routed() && !p.Late:
				t.Hosts[name] = t.virtualHost(v, p, client, nil)
			case p.Spoken.Routed() && t.Hosts[name] == nil: // the listener may have its protocol, and needs its routes
				t.Hosts[name] = newVirtualHost(model.Place{}, nil, &routev3.VirtualHost{}, nil)
			}
			if p.Spoken == model.ProtocolDetected {
				t.Hosts[detectedRoutes(s.Host, p.Number)] = t.virtualHost(v, p, client, []string{"*"})
			}
			maps.Copy(claims, claimsOf(v, p, client, &t.Findings))
		}
	}
	for b, c := range claims {
		t.Claims = append(t.Claims, claimed{b, c})
	}
	t.Claims = slices.Clip(t.Claims)
}

// addProxyless adds the resources for clients that dial the service with the port or, for the default port, by name
// alone.
func (t *Translation) addProxyless(v *model.View, p *model.Port, client model.Profile) {
	s := v.Service
	if strings.Contains(s.Host, "*") {
		return // a client cannot dial a wildcard
	}
	body, name := t.grpcRoutes(v, p, client)
	t.Routes = append(t.Routes, EntryOfBytes(name, xds.RouteURL, body))
	t.Listeners = append(t.Listeners, EntryOf(grpcListener(s, p, model.HostPort(s.Host, p.Number))))
	if p == s.DefaultPort() {
		t.Listeners = append(t.Listeners, EntryOf(grpcListener(s, p, s.Host)))
	}
}
