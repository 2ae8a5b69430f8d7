package envoy

import (
	"crypto/sha256"
	"slices"

	"github.com/tidwall/btree"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// sharedRoutes are the routes of a port. Hosts share them.
type sharedRoutes struct {
	hosts      btree.Map[string, *translate.VirtualHost]
	domains    map[string]int // the number of virtual hosts with the domain
	duplicates int            // the number of domains that several virtual hosts have
	inFull     bool           // on-demand clients get them in full, too
	encoded    *encodedRoutes // that other scopes share while this one uses them
}

// set replaces the virtual host of a host, or removes it if the new one is nil.
func (routes *sharedRoutes) set(host string, virtualHost *translate.VirtualHost) {
	if old, ok := routes.hosts.Delete(host); ok {
		for _, domain := range old.Domains {
			routes.domains[domain]--
			switch routes.domains[domain] {
			case 1:
				routes.duplicates--
			case 0:
				delete(routes.domains, domain)
			}
		}
	}
	if virtualHost == nil {
		return
	}
	routes.hosts.Set(host, virtualHost)
	for _, domain := range virtualHost.Domains {
		if routes.domains == nil {
			routes.domains = make(map[string]int)
		}
		routes.domains[domain]++
		if routes.domains[domain] == 2 {
			routes.duplicates++
		}
	}
}

// digest identifies the content of the routes: their hosts, and the virtual host of each.
func (routes *sharedRoutes) digest() (key model.Key) {
	hash := sha256.New()
	var digest model.Digest
	routes.hosts.Scan(func(host string, virtualHost *translate.VirtualHost) bool {
		digest = digest[:0]
		digest.Text(host)
		hash.Write(append(digest, virtualHost.Key[:]...))
		return true
	})
	hash.Sum(key[:0])
	return key
}

// maxRepeated limits the bytes that equal bodies of virtual hosts take together. Beyond it, the virtual hosts are
// merged into one with all domains, as istiod does for gateways: each Envoy would hold as many copies of the routes.
const maxRepeated = 1 << 20

// repeated returns the keys of the bodies that are merged into one virtual host.
func (routes *sharedRoutes) repeated() map[model.Key]bool {
	sizes := make(map[model.Key]int)
	repeated := make(map[model.Key]bool)
	routes.hosts.Scan(func(_ string, virtualHost *translate.VirtualHost) bool {
		if body := virtualHost.Body; body != nil {
			sizes[body.Key] += len(body.Bytes)
			if size := sizes[body.Key]; size > maxRepeated && size > len(body.Bytes) {
				repeated[body.Key] = true
			}
		}
		return true
	})
	return repeated
}

// encode joins encoded virtual hosts to an encoded RouteConfiguration. The first host by name gets a domain that
// several hosts claim; a finding names the others.
func (routes *sharedRoutes) encode(name string, role model.Role, restricted bool) (encoded []byte,
	findings model.Findings,
) {
	encoded = model.MustMarshal(translate.RoutesHead(name, role))
	owners := make(map[string]string, routes.duplicates) // of domains
	type part struct {
		host    *translate.VirtualHost
		domains []string
	}
	parts := make([]part, 0, routes.hosts.Len())
	repeated := routes.repeated()
	mergedParts := make(map[model.Key]int) // to the position of the part with a repeated body
	size := 0
	routes.hosts.Scan(func(host string, virtualHost *translate.VirtualHost) bool {
		domains := virtualHost.Domains
		if routes.duplicates > 0 {
			domains = slices.DeleteFunc(slices.Clone(domains), func(domain string) bool {
				if routes.domains[domain] < 2 {
					return false
				}
				owner, taken := owners[domain]
				if !taken {
					owners[domain] = host
				} else if virtualHost.Place.Object.Name != "" {
					findings.Note(virtualHost.Place, "%s is a domain of %s already among the routes %s", domain, owner, name)
				}
				return taken
			})
		}
		size += len(virtualHost.Rest) + 2*len(host) + 16
		if virtualHost.Body != nil && repeated[virtualHost.Body.Key] {
			if position, merged := mergedParts[virtualHost.Body.Key]; merged {
				parts[position].domains = append(parts[position].domains, domains...)
				return true
			}
			mergedParts[virtualHost.Body.Key] = len(parts)
			domains = slices.Clone(domains)
		}
		size += len(virtualHost.Routes())
		parts = append(parts, part{virtualHost, domains})
		return true
	})
	encoded = slices.Grow(encoded, size)
	for _, p := range parts {
		encoded = p.host.Append(encoded, p.domains)
	}
	last := translate.CatchAllHost(restricted)
	switch {
	case role == model.Proxyless, role == model.Ingress && len(routes.domains) > 0:
		return encoded, findings
	case role == model.Ingress:
		last = translate.NotFoundHost(name)
	}
	last.Domains = slices.DeleteFunc(last.Domains, func(domain string) bool { return routes.domains[domain] > 0 })
	return last.Append(encoded, last.Domains), findings
}
