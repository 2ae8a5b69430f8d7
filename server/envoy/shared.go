package envoy

import (
	"crypto/sha256"
	"slices"

	"github.com/tidwall/btree"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// sharedRoutes are the routes of a port, which hosts share.
type sharedRoutes struct {
	hosts   btree.Map[string, *translate.VirtualHost]
	domains map[string]int // how many virtual hosts have each
	shared  int            // how many domains several have
	whole   bool           // they are sent in full to on-demand clients, too
}

// set replaces the virtual host of a host, or removes it if v is nil.
func (r *sharedRoutes) set(host string, v *translate.VirtualHost) {
	if old, ok := r.hosts.Delete(host); ok {
		for _, d := range old.Domains {
			if r.domains[d]--; r.domains[d] == 1 {
				r.shared--
			}
			if r.domains[d] == 0 {
				delete(r.domains, d)
			}
		}
	}
	if v == nil {
		return
	}
	r.hosts.Set(host, v)
	for _, d := range v.Domains {
		if r.domains == nil {
			r.domains = make(map[string]int)
		}
		if r.domains[d]++; r.domains[d] == 2 {
			r.shared++
		}
	}
}

// digest identifies the content of the routes: their hosts, and the virtual host of each.
func (r *sharedRoutes) digest() (key model.Key) {
	hash := sha256.New()
	var digest model.Digest
	r.hosts.Scan(func(host string, virtualHost *translate.VirtualHost) bool {
		digest = digest[:0]
		digest.Text(host)
		hash.Write(append(digest, virtualHost.Key[:]...))
		return true
	})
	hash.Sum(key[:0])
	return key
}

// repeatedMost is how many bytes the bodies of virtual hosts may take that repeat another one. Beyond that, they are
// one virtual host with the domains of all, as istiod has it for gateways: each Envoy would have as many copies of the
// routes.
const repeatedMost = 1 << 20

// repeated returns the keys of the bodies that are one virtual host.
func (r *sharedRoutes) repeated() map[model.Key]bool {
	sizes, repeated := make(map[model.Key]int), make(map[model.Key]bool)
	r.hosts.Scan(func(_ string, v *translate.VirtualHost) bool {
		if v.Body != nil {
			size := sizes[v.Body.Key] + len(v.Body.Bytes)
			if sizes[v.Body.Key] = size; size > repeatedMost && size > len(v.Body.Bytes) {
				repeated[v.Body.Key] = true
			}
		}
		return true
	})
	return repeated
}

// encode returns the encoded RouteConfiguration, made of encoded virtual hosts, and findings for domains that hosts do
// not get. Of the hosts that claim a domain, the first by name gets it.
func (r *sharedRoutes) encode(name string, role model.Role, restricted bool) (b []byte, findings model.Findings) {
	b = model.MustMarshal(translate.RoutesHead(name, role))
	owners := make(map[string]string, r.shared) // of domains
	type part struct {
		host    *translate.VirtualHost
		domains []string
	}
	parts, first, repeated, size := make([]part, 0, r.hosts.Len()), make(map[model.Key]int), r.repeated(), 0
	r.hosts.Scan(func(host string, v *translate.VirtualHost) bool {
		domains := v.Domains
		if r.shared > 0 {
			domains = slices.DeleteFunc(slices.Clone(domains), func(d string) bool {
				if r.domains[d] < 2 {
					return false
				}
				owner, taken := owners[d]
				if !taken {
					owners[d] = host
				} else if v.Place.Of.Name != "" {
					findings.Note(v.Place, "%s is a domain of %s already among the routes %s", d, owner, name)
				}
				return taken
			})
		}
		size += len(v.Rest) + 2*len(host) + 16
		if v.Body != nil && repeated[v.Body.Key] {
			if position, merged := first[v.Body.Key]; merged {
				parts[position].domains = append(parts[position].domains, domains...)
				return true
			}
			first[v.Body.Key], domains = len(parts), slices.Clone(domains)
		}
		size += len(v.Routes())
		parts = append(parts, part{v, domains})
		return true
	})
	b = slices.Grow(b, size)
	for _, p := range parts {
		b = p.host.Append(b, p.domains)
	}
	last := translate.CatchAllHost(restricted)
	switch {
	case role == model.Proxyless, role == model.Ingress && len(r.domains) > 0:
		return b, findings
	case role == model.Ingress:
		last = translate.NotFoundHost(name)
	}
	return last.Append(b, slices.DeleteFunc(last.Domains, func(d string) bool { return r.domains[d] > 0 })), findings
}
