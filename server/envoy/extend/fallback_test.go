package extend

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// A fallback listens as the listener that an Envoy holds, since the way of the rejected one may be the reason.
func TestFallback_ListensAsHeld(t *testing.T) {
	const sockets = "name: a\naddress: {socket_address: {address: 0.0.0.0, port_value: 80}}\n"
	held := read(t, &listenerv3.Listener{}, sockets+"filter_chains: [{filters: [*tcp]}]\n")
	for _, change := range []string{
		"address: {socket_address: {address: 0.0.0.0, port_value: 81}}",
		"address: {socket_address: {address: 999.1.1.1, port_value: 80}}",
		"address: {socket_address: {address: 0.0.0.0, port_value: 80, resolver_name: a}}",
		"address: {socket_address: {address: 0.0.0.0, port_value: 80, network_namespace_filepath: /nonexistent}}",
		"address: {pipe: {path: /nonexistent/a}}",
		"additional_addresses: [{address: {socket_address: {address: 10.1.1.1, port_value: 80}}}]",
		"enable_reuse_port: false",
		"transparent: true",
		"bind_to_port: false",
		"internal_listener: {}",
	} {
		rejected := proto.CloneOf(held)
		proto.Merge(rejected, read(t, &listenerv3.Listener{}, change))
		rejected.FilterChains = read(t, &listenerv3.Listener{}, "filter_chains: [{filters: [{name: envoy.filters.network.rbac, typed_config: {"+
			`"@type": `+types+`network.rbac.v3.RBAC, stat_prefix: a, rules: {}}}, *tcp]}]`).GetFilterChains()
		for _, secondTry := range []bool{false, true} {
			listener, _ := Fallback(held, rejected, secondTry)
			require.NotNil(t, listener, change)
			if !secondTry {
				require.True(t, proto.Equal(rejected.GetFilterChains()[0], listener.GetFilterChains()[0]), change)
			}
			listener.FilterChains, listener.DefaultFilterChain = nil, nil
			require.True(t, proto.Equal(read(t, &listenerv3.Listener{}, sockets), listener), "%s: %s", change, listener)
		}
	}
}
