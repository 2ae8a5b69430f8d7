package relay

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consulkv"
	"tributary/sources/dubbo"
	"tributary/sources/eureka"
	"tributary/sources/file"
	"tributary/sources/nacos"
	"tributary/sources/vip"
	upstream "tributary/sources/xds"
)

// Reader makes a source of its configuration that reads what there is, for who does not serve that: services get no virtual addresses.
func Reader(s config.Source) (sources.Source, error) {
	return newSource(s, mcp.NewHops("validate"), prometheus.NewRegistry(), nil)
}

// newSource makes a source of its configuration. hops are told through which instances it reads, metrics takes those of the source, and
// addresses gives services addresses, or is nil.
func newSource(s config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table) (sources.Source, error) {
	switch of := s.Settings.(type) {
	case *config.File:
		return file.New(s.Address, of.Source())
	case *config.XDS:
		settings := of.Source()
		settings.Hops = hops
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		return upstream.New(s.Address, settings)
	case *config.ConsulKV:
		settings := of.Source()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		return consulkv.New(s.Address, settings)
	case *config.Consul:
		settings := of.Source()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return consul.New(s.Address, settings)
	case *config.Dubbo:
		settings := of.Source()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return dubbo.New(s.Address, settings)
	case *config.DubboConsul:
		reading, settings := of.Source()
		reading.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		settings.Registerer = reading.Registerer
		if addresses != nil {
			settings.VIPs = addresses
		}
		return dubbo.NewConsul(s.Address, reading, settings)
	case *config.Nacos:
		settings := of.Source()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return nacos.New(s.Address, settings)
	case *config.Eureka:
		settings := of.Source()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return eureka.New(s.Address, settings)
	default: // config lets no other one through
		return nil, fmt.Errorf("address %q: unknown scheme", s.Address)
	}
}
