package envoy

import (
	"slices"

	"github.com/tidwall/btree"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
)

// sharedRoutes are routes that hosts share: those of a port.
type sharedRoutes struct {
	hosts   btree.Map[string, *translate.VirtualHost]
	domains map[string]int // how many virtual hosts have each
	shared  int            // how many domains several have
	whole   bool           // they are sent in full to those, too, who ask for virtual hosts
}

// set makes v the virtual host of a host, which has none any more if v is nil.
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

// encode returns the encoded RouteConfiguration, and which domains hosts do not have there. It is put together from what is encoded
// already. A domain that several have is that of the first host in order of name.
func (r *sharedRoutes) encode(name string, role model.Role, restricted bool) (b []byte, found model.Findings) {
	b = model.MustMarshal(translate.RoutesHead(name, role))
	size := 0
	r.hosts.Scan(func(_ string, v *translate.VirtualHost) bool { size += len(v.Field); return true })
	b = slices.Grow(b, size)
	known := make(map[string]string, r.shared) // by whom
	r.hosts.Scan(func(host string, v *translate.VirtualHost) bool {
		if r.shared == 0 {
			b = append(b, v.Field...)
			return true
		}
		b = append(b, v.Encode(func(d string) bool {
			if r.domains[d] < 2 {
				return false
			}
			by, taken := known[d]
			if !taken {
				known[d] = host
			} else if v.Place.Of.Name != "" {
				found.Note(v.Place, "%s is a domain of %s already among the routes %s", d, by, name)
			}
			return taken
		})...)
		return true
	})
	switch {
	case role == model.Proxyless, role == model.Ingress && len(r.domains) > 0:
		return b, found
	case role == model.Ingress:
		return append(b, translate.NotFoundHost(name).Field...), found
	}
	return append(b, translate.CatchAllHost(restricted).Encode(func(d string) bool { return r.domains[d] > 0 })...), found
}
