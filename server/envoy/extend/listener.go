package extend

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// httpManager is the name of the filter of which patches of HTTP filters are.
const httpManager = "envoy.filters.network.http_connection_manager"

// Listener returns a listener as the patches have it, and whether there is still one. Routes that are a part of the listener are patched as
// well.
func (p *Patcher) Listener(l *listenerv3.Listener) (*listenerv3.Listener, bool) {
	return apply(p, l, p.patchListener, refusedListener)
}

func (p *Patcher) patchListener(a *attempt, l *listenerv3.Listener) (keep bool) {
	for patch := range a.to(networking.EnvoyFilter_LISTENER) {
		if patch.Operation == networking.EnvoyFilter_Patch_ADD || !matchesListener(patch, l) {
			continue
		}
		if a.used[patch] = true; patch.Operation == networking.EnvoyFilter_Patch_REMOVE {
			return false
		}
		merge(l, patch.Value)
	}
	for patch := range a.to(networking.EnvoyFilter_LISTENER_FILTER) {
		if matchesListener(patch, l) {
			l.ListenerFilters = listenerFilters(a, patch, l.GetListenerFilters())
		}
	}
	l.FilterChains = slices.DeleteFunc(l.GetFilterChains(), func(c *listenerv3.FilterChain) bool {
		return c.GetFilters() != nil && !p.patchChain(a, l, c)
	})
	if c := l.GetDefaultFilterChain(); c.GetFilters() != nil && !p.patchChain(a, l, c) {
		l.DefaultFilterChain = nil
	}
	for patch := range a.to(networking.EnvoyFilter_FILTER_CHAIN) {
		if patch.Operation == networking.EnvoyFilter_Patch_ADD && matchesListener(patch, l) {
			l.FilterChains = append(l.FilterChains, proto.Clone(patch.Value).(*listenerv3.FilterChain))
			a.used[patch] = true
		}
	}
	return true
}

// listenerFilters patches the filters of a listener. Merging does not change names, as with istiod.
func listenerFilters(a *attempt, patch *model.Patch, list []*listenerv3.ListenerFilter) []*listenerv3.ListenerFilter {
	name := patch.Match.GetListener().GetListenerFilter()
	matches := func(f *listenerv3.ListenerFilter) bool { return name == f.GetName() }
	if patch.Operation != networking.EnvoyFilter_Patch_MERGE {
		return edit(a, patch, list, name != "", matches)
	}
	for _, f := range list {
		if name != "" && matches(f) {
			if config := mergeConfig(a, patch, f.GetTypedConfig(), patch.Value.(*listenerv3.ListenerFilter).GetTypedConfig()); config != nil {
				f.ConfigType = &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config}
			}
		}
	}
	return list
}

// mergeConfig returns a typed_config with that of a patch merged into it, or nil if there is nothing to change.
func mergeConfig(a *attempt, patch *model.Patch, config, with *anypb.Any) *anypb.Any {
	if config == nil {
		a.failed[patch] = "the filter has no typed_config, into which nothing can be merged"
		return nil
	}
	if a.used[patch] = true; with == nil {
		return nil
	}
	merged, err := mergedConfig(config, with)
	if err != nil {
		delete(a.used, patch)
		a.failed[patch] = err.Error()
	}
	return merged
}

// patchChain patches a filter chain, and says whether there is still one.
func (p *Patcher) patchChain(a *attempt, l *listenerv3.Listener, c *listenerv3.FilterChain) (keep bool) {
	for patch := range a.to(networking.EnvoyFilter_FILTER_CHAIN) {
		if patch.Operation == networking.EnvoyFilter_Patch_ADD || !matchesChain(patch, l, c) {
			continue
		}
		if a.used[patch] = true; patch.Operation == networking.EnvoyFilter_Patch_REMOVE {
			return false
		}
		value := patch.Value.(*listenerv3.FilterChain)
		own, with := c.GetTransportSocket(), value.GetTransportSocket()
		if own == nil || with == nil || own.GetName() != with.GetName() {
			merge(c, value)
		} else if own.GetTypedConfig() != nil && with.GetTypedConfig() != nil {
			if config := mergeConfig(a, patch, own.GetTypedConfig(), with.GetTypedConfig()); config != nil {
				own.GetTypedConfig().TypeUrl, own.GetTypedConfig().Value = config.GetTypeUrl(), config.GetValue()
			}
		}
	}
	for patch := range a.to(networking.EnvoyFilter_NETWORK_FILTER) {
		if matchesChain(patch, l, c) && patch.Operation != networking.EnvoyFilter_Patch_MERGE {
			c.Filters = edit(a, patch, c.GetFilters(), networkFilter(patch) != nil, func(f *listenerv3.Filter) bool {
				return matchesNetwork(patch, f)
			})
		}
	}
	for _, f := range c.GetFilters() {
		p.patchFilter(a, l, c, f)
	}
	return len(c.GetFilters()) > 0
}

// patchFilter merges into a network filter, and patches its HTTP filters.
func (p *Patcher) patchFilter(a *attempt, l *listenerv3.Listener, c *listenerv3.FilterChain, f *listenerv3.Filter) {
	for patch := range a.to(networking.EnvoyFilter_NETWORK_FILTER) {
		if patch.Operation != networking.EnvoyFilter_Patch_MERGE || !matchesChain(patch, l, c) || !matchesNetwork(patch, f) {
			continue
		}
		value := patch.Value.(*listenerv3.Filter)
		if config := mergeConfig(a, patch, f.GetTypedConfig(), value.GetTypedConfig()); config != nil {
			f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: config}
		}
		if a.used[patch] && value.GetName() != "" {
			f.Name = value.GetName()
		}
	}
	m := &hcmv3.HttpConnectionManager{}
	if f.GetName() != httpManager || f.GetTypedConfig().UnmarshalTo(m) != nil {
		return
	}
	matches := func(patch *model.Patch) bool { return matchesChain(patch, l, c) && matchesNetwork(patch, f) }
	for patch := range a.to(networking.EnvoyFilter_HTTP_FILTER) {
		if matches(patch) && patch.Operation != networking.EnvoyFilter_Patch_MERGE {
			m.HttpFilters = edit(a, patch, m.GetHttpFilters(), subFilter(patch) != nil, func(h *hcmv3.HttpFilter) bool {
				return subFilter(patch).GetName() == h.GetName()
			})
		}
	}
	for _, h := range m.GetHttpFilters() {
		for patch := range a.to(networking.EnvoyFilter_HTTP_FILTER) {
			if patch.Operation == networking.EnvoyFilter_Patch_MERGE && matches(patch) {
				mergeHTTP(a, patch, h)
			}
		}
	}
	if r := m.GetRouteConfig(); r != nil {
		p.patchRoutes(a, r)
	}
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: model.ToAny(m)}
}

func mergeHTTP(a *attempt, patch *model.Patch, h *hcmv3.HttpFilter) {
	if only := subFilter(patch); only != nil && only.GetName() != h.GetName() {
		return
	}
	value := patch.Value.(*hcmv3.HttpFilter)
	if config := mergeConfig(a, patch, h.GetTypedConfig(), value.GetTypedConfig()); config != nil {
		h.ConfigType = &hcmv3.HttpFilter_TypedConfig{TypedConfig: config}
	}
	if a.used[patch] && value.GetName() != "" {
		h.Name = value.GetName()
	}
}

// Listeners through which connections come that others are the destinations of. Ports of patches are then those of filter chains.
func isVirtual(l *listenerv3.Listener) bool {
	return l.GetName() == "virtualOutbound" || l.GetName() == "virtualInbound"
}

func matchesListener(p *model.Patch, l *listenerv3.Listener) bool {
	m := p.Match.GetListener()
	if m == nil {
		return true
	}
	if m.GetName() != "" && m.GetName() != l.GetName() {
		return false
	}
	return m.GetPortNumber() == 0 || p.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(l) ||
		l.GetAddress().GetSocketAddress().GetPortValue() == m.GetPortNumber()
}

func matchesChain(p *model.Patch, l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	if !matchesListener(p, l) {
		return false
	}
	has := c.GetFilterChainMatch()
	port := p.Match.GetListener().GetPortNumber()
	if port != 0 && isVirtual(l) && has.GetDestinationPort().GetValue() != port {
		return false
	}
	m := p.Match.GetListener().GetFilterChain()
	if m == nil {
		return true
	}
	if m.GetApplicationProtocols() != "" {
		for name := range strings.SplitSeq(m.GetApplicationProtocols(), ",") {
			if !slices.Contains(has.GetApplicationProtocols(), name) {
				return false
			}
		}
	}
	return (m.GetName() == "" || m.GetName() == c.GetName()) &&
		(m.GetSni() == "" || slices.Contains(has.GetServerNames(), m.GetSni())) &&
		(m.GetTransportProtocol() == "" || m.GetTransportProtocol() == has.GetTransportProtocol()) &&
		(m.GetDestinationPort() == 0 || m.GetDestinationPort() == has.GetDestinationPort().GetValue())
}

// networkFilter returns the network filter that a patch names, or nil.
func networkFilter(p *model.Patch) *networking.EnvoyFilter_ListenerMatch_FilterMatch {
	return p.Match.GetListener().GetFilterChain().GetFilter()
}

// subFilter returns the HTTP filter that a patch names, or nil.
func subFilter(p *model.Patch) *networking.EnvoyFilter_ListenerMatch_SubFilterMatch {
	return networkFilter(p).GetSubFilter()
}

func matchesNetwork(p *model.Patch, f *listenerv3.Filter) bool {
	return networkFilter(p) == nil || networkFilter(p).GetName() == f.GetName()
}
