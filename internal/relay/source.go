package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/vip"
)

// Reader makes a source of its configuration for programs that read what there is and serve nothing: services get no virtual addresses.
func Reader(s config.Source) (sources.Source, error) {
	return newSource(s, mcp.NewHops("validate"), prometheus.NewRegistry(), nil)
}

// newSource makes a source of its configuration for this program. addresses may be nil.
func newSource(s config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table) (sources.Source, error) {
	p := config.Parts{Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics), Hops: hops}
	if addresses != nil {
		p.VIPs = addresses
	}
	return s.New(p)
}
