package relay

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consulkv"
	"tributary/sources/file"
	"tributary/sources/vip"
	upstream "tributary/sources/xds"
)

// newSource makes a source of its configuration. hops are those of this program, metrics takes those of the source, and
// addresses gives services addresses, or is nil.
func newSource(s config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table) (sources.Source, error) {
	switch scheme, _, _ := strings.Cut(s.Address, "://"); scheme {
	case file.Scheme:
		return file.New(s.Address, s.Settings())
	case upstream.Scheme:
		settings := s.XDS()
		settings.Instance, settings.Readers = hops.Instance(), hops
		return upstream.New(s.Address, settings)
	case consulkv.Scheme, consulkv.SecureScheme:
		return consulkv.New(s.Address, s.ConsulKV())
	case consul.Scheme, consul.SecureScheme:
		settings := s.Consul()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return consul.New(s.Address, settings)
	default: // config lets no other one through
		return nil, fmt.Errorf("address %q: unknown scheme", s.Address)
	}
}
