package extend

import (
	"slices"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/proto/merge"

	"tributary/server/envoy/model"
)

// httpManager is the name of the filter of which patches of HTTP filters are.
const httpManager = "envoy.filters.network.http_connection_manager"

// Listener returns a listener as the patches have it, and whether there is still one. Routes that are a part of the listener are patched as
// well.
func (p *Patcher) Listener(l *listenerv3.Listener) (*listenerv3.Listener, bool) {
	return apply(p, l, (*attempt).listener)
}

func (a *attempt) listener(l *listenerv3.Listener) (keep bool) {
	is := func(p *model.Patch) bool { return matchesListener(p, l) }
	if len(change(a, []*listenerv3.Listener{l}, target[*listenerv3.Listener]{to: networking.EnvoyFilter_LISTENER, is: is}, changing)) == 0 {
		return false
	}
	filters := filtersOf[*listenerv3.ListenerFilter](a, networking.EnvoyFilter_LISTENER_FILTER, is, func(p *model.Patch) (string, bool) {
		name := p.Match.GetListener().GetListenerFilter()
		return name, name != "" || p.Operation == networking.EnvoyFilter_Patch_MERGE
	})
	l.ListenerFilters = change(a, l.GetListenerFilters(), filters, append(merging, editing...))
	chains := target[*listenerv3.FilterChain]{
		to: networking.EnvoyFilter_FILTER_CHAIN, is: is, merge: a.mergeChain,
		matches: func(p *model.Patch, c *listenerv3.FilterChain) bool { return matchesChain(p, l, c) },
	}
	l.FilterChains = slices.DeleteFunc(change(a, l.GetFilterChains(), chains, changing), func(c *listenerv3.FilterChain) bool {
		return !a.chain(l, c)
	})
	if c := l.GetDefaultFilterChain(); c != nil &&
		(len(change(a, []*listenerv3.FilterChain{c}, chains, changing)) == 0 || !a.chain(l, c)) {
		l.DefaultFilterChain = nil
	}
	l.FilterChains = change(a, l.GetFilterChains(), chains, adding)
	return true
}

// mergeChain merges into a filter chain. If both have transport sockets of one name, only these are merged, as with istiod.
func (a *attempt) mergeChain(p *model.Patch, c *listenerv3.FilterChain) {
	value := p.Value.(*listenerv3.FilterChain)
	own, with := c.GetTransportSocket(), value.GetTransportSocket()
	switch {
	case own == nil || with == nil || own.GetName() != with.GetName():
		merge.Merge(c, value)
	case own.GetTypedConfig() != nil && with.GetTypedConfig() != nil:
		a.mergeConfig(p, own.GetTypedConfig(), with.GetTypedConfig())
		return
	}
	a.used[p] = true
}

type filter interface {
	named
	GetTypedConfig() *anypb.Any
}

// filtersOf is a list of filters. name returns which one a patch names, if it does.
func filtersOf[F filter](a *attempt, to networking.EnvoyFilter_ApplyTo, is func(*model.Patch) bool,
	name func(*model.Patch) (string, bool),
) target[F] {
	return target[F]{
		to: to, is: is,
		names: func(p *model.Patch) bool {
			_, some := name(p)
			return some
		},
		matches: func(p *model.Patch, f F) bool {
			of, some := name(p)
			return !some || of == f.GetName()
		},
		merge: func(p *model.Patch, f F) {
			value := p.Value.(F)
			if a.mergeConfig(p, f.GetTypedConfig(), value.GetTypedConfig()) && value.GetName() != "" &&
				to != networking.EnvoyFilter_LISTENER_FILTER { // these are not renamed, as with istiod
				m := f.ProtoReflect()
				m.Set(m.Descriptor().Fields().ByName("name"), protoreflect.ValueOfString(value.GetName()))
			}
		},
	}
}

// chain patches the filters of a filter chain, and says whether it still has some.
func (a *attempt) chain(l *listenerv3.Listener, c *listenerv3.FilterChain) (keep bool) {
	is := func(p *model.Patch) bool { return matchesChain(p, l, c) }
	named := func(p *model.Patch) (string, bool) {
		f := p.Match.GetListener().GetFilterChain().GetFilter()
		return f.GetName(), f != nil
	}
	filters := filtersOf[*listenerv3.Filter](a, networking.EnvoyFilter_NETWORK_FILTER, is, named)
	c.Filters = change(a, change(a, c.GetFilters(), filters, editing), filters, merging)
	for _, f := range c.GetFilters() {
		m := &hcmv3.HttpConnectionManager{}
		if f.GetName() != httpManager || f.GetTypedConfig().UnmarshalTo(m) != nil {
			continue
		}
		within := filtersOf[*hcmv3.HttpFilter](a, networking.EnvoyFilter_HTTP_FILTER,
			func(p *model.Patch) bool { return is(p) && filters.matches(p, f) },
			func(p *model.Patch) (string, bool) {
				f := p.Match.GetListener().GetFilterChain().GetFilter().GetSubFilter()
				return f.GetName(), f != nil
			})
		m.HttpFilters = change(a, change(a, m.GetHttpFilters(), within, editing), within, merging)
		if r := m.GetRouteConfig(); r != nil {
			a.routes(r)
		}
		f.GetTypedConfig().Value = model.MustMarshal(m)
	}
	return len(c.GetFilters()) > 0
}

// Listeners through which connections come that others are the destinations of. Ports of patches are then those of filter chains.
func isVirtual(l *listenerv3.Listener) bool {
	return l.GetName() == "virtualOutbound" || l.GetName() == "virtualInbound"
}

func matchesListener(p *model.Patch, l *listenerv3.Listener) bool {
	m := p.Match.GetListener()
	return (m.GetName() == "" || m.GetName() == l.GetName()) &&
		(m.GetPortNumber() == 0 || p.ApplyTo != networking.EnvoyFilter_LISTENER && isVirtual(l) ||
			l.GetAddress().GetSocketAddress().GetPortValue() == m.GetPortNumber())
}

func matchesChain(p *model.Patch, l *listenerv3.Listener, c *listenerv3.FilterChain) bool {
	m, has := p.Match.GetListener().GetFilterChain(), c.GetFilterChainMatch()
	port := has.GetDestinationPort().GetValue()
	if wanted := p.Match.GetListener().GetPortNumber(); !matchesListener(p, l) || wanted != 0 && isVirtual(l) && port != wanted {
		return false
	}
	for name := range strings.SplitSeq(m.GetApplicationProtocols(), ",") {
		if m.GetApplicationProtocols() != "" && !slices.Contains(has.GetApplicationProtocols(), name) {
			return false
		}
	}
	return (m.GetName() == "" || m.GetName() == c.GetName()) &&
		(m.GetSni() == "" || slices.Contains(has.GetServerNames(), m.GetSni())) &&
		(m.GetTransportProtocol() == "" || m.GetTransportProtocol() == has.GetTransportProtocol()) &&
		(m.GetDestinationPort() == 0 || m.GetDestinationPort() == port)
}
