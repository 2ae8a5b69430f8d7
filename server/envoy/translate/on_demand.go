package translate

import (
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	demandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/on_demand/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"tributary/server/envoy/model"
)

// onDemandTimeout is how long a request or connection waits for a requested cluster.
const onDemandTimeout = 5 * time.Second

// OnDemand makes the filters of a listener request missing clusters and virtual hosts.
func OnDemand(listener *listenerv3.Listener) {
	for _, chain := range append(listener.GetFilterChains(), listener.GetDefaultFilterChain()) {
		for _, filter := range chain.GetFilters() {
			message, err := filter.GetTypedConfig().UnmarshalNew()
			if err != nil {
				continue // a type that this program lacks, from a patch
			}
			switch typed := message.(type) {
			case *hcmv3.HttpConnectionManager:
				ask := model.HTTPFilter("envoy.filters.http.on_demand",
					&demandv3.OnDemand{Odcds: &demandv3.OnDemandCds{Source: Ads(), Timeout: durationpb.New(onDemandTimeout)}})
				typed.HttpFilters = append([]*hcmv3.HttpFilter{ask}, typed.GetHttpFilters()...)
			case *tcpv3.TcpProxy:
				typed.OnDemand = &tcpv3.TcpProxy_OnDemand{OdcdsConfig: Ads(), Timeout: durationpb.New(onDemandTimeout)}
			default:
				continue
			}
			filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: model.ToAny(message)}
		}
	}
}
