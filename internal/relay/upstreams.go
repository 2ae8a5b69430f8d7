package relay

import (
	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	upstream "tributary/sources/xds"
)

// xdsSource is a source that is the client of an xDS server.
type xdsSource struct {
	name   string
	source interface{ Standing() *upstream.Standing }
}

// xdsSources returns those of all that are clients of an xDS server.
func xdsSources(all []*activeSource) (found []xdsSource) {
	for _, f := range all {
		if s, ok := f.source.(*upstream.Source); ok {
			found = append(found, xdsSource{f.config.Name, s})
		}
	}
	return found
}

// upstreams says how this program stands with the servers whose client it is, as CSDS has clients tell it.
func (f *sourceSet) upstreams() (all []*statusv3.ClientConfig) {
	f.mu.Lock()
	clients := f.xds
	f.mu.Unlock()
	for _, of := range clients {
		if now := of.source.Standing(); now != nil {
			all = append(all, clientConfig(of.name, now))
		}
	}
	return all
}

func clientConfig(source string, now *upstream.Standing) *statusv3.ClientConfig {
	c := &statusv3.ClientConfig{Node: now.Node, ClientScope: source}
	for _, t := range now.Types {
		out := &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: t.TypeURL, VersionInfo: t.Version,
			ClientStatus: adminv3.ClientResourceStatus_ACKED,
		}
		switch {
		case t.At.IsZero():
			out.ClientStatus = adminv3.ClientResourceStatus_REQUESTED
		case t.Err != nil:
			out.ClientStatus = adminv3.ClientResourceStatus_NACKED
			out.ErrorState = &adminv3.UpdateFailureState{Details: t.Err.Error(), VersionInfo: t.Version, LastUpdateAttempt: timestamppb.New(t.At)}
		}
		if !t.At.IsZero() {
			out.LastUpdated = timestamppb.New(t.At)
		}
		c.GenericXdsConfigs = append(c.GenericXdsConfigs, out)
	}
	return c
}
