package admin

import (
	"io"
	"net/http"
	"strings"
	"time"

	"tributary/server/debug"
	"tributary/server/xds"
)

// syncStatus is an entry of /debug/syncz as istiod 1.27 has it (istio.io/istio/pilot/pkg/xds, SyncStatus).
type syncStatus struct {
	ClusterID            string                    `json:"cluster_id,omitempty"`
	ProxyID              string                    `json:"proxy,omitempty"`
	ProxyType            string                    `json:"proxy_type,omitempty"`
	IstioVersion         string                    `json:"istio_version,omitempty"`
	ClusterSent          string                    `json:"cluster_sent,omitempty"`
	ClusterAcked         string                    `json:"cluster_acked,omitempty"`
	ListenerSent         string                    `json:"listener_sent,omitempty"`
	ListenerAcked        string                    `json:"listener_acked,omitempty"`
	RouteSent            string                    `json:"route_sent,omitempty"`
	RouteAcked           string                    `json:"route_acked,omitempty"`
	EndpointSent         string                    `json:"endpoint_sent,omitempty"`
	EndpointAcked        string                    `json:"endpoint_acked,omitempty"`
	ExtensionConfigSent  string                    `json:"extensionconfig_sent,omitempty"`
	ExtensionConfigAcked string                    `json:"extensionconfig_acked,omitempty"`
	Resources            map[string]resourceStatus `json:"resources,omitempty"`
}

type resourceStatus struct {
	Sent      string    `json:"sent,omitempty"`
	Acked     string    `json:"acked,omitempty"`
	SentTime  time.Time `json:"sentTime,omitzero"`
	LastError string    `json:"lastError,omitempty"`
}

func (s *Server) syncz(yield func(any) bool) {
	for c := range debug.Subscribers(s.opts.Clients) {
		kind, _, isIstio := strings.Cut(c.Node.GetId(), "~")
		if !isIstio {
			kind = ""
		}
		out := syncStatus{
			ClusterID: debug.MetadataText(c.Node, "CLUSTER_ID"), ProxyID: c.Node.GetId(), ProxyType: kind,
			IstioVersion: debug.MetadataText(c.Node, "ISTIO_VERSION"),
			Resources:    make(map[string]resourceStatus, len(c.Types)),
		}
		for _, t := range c.Types {
			of := resourceStatus{Sent: t.SentNonce, Acked: t.AckedNonce, SentTime: t.SentAt}
			if t.Rejects() {
				of.LastError = t.NackError
			}
			out.Resources[t.TypeURL] = of
			switch t.TypeURL {
			case xds.ClusterURL:
				out.ClusterSent, out.ClusterAcked = of.Sent, of.Acked
			case xds.ListenerURL:
				out.ListenerSent, out.ListenerAcked = of.Sent, of.Acked
			case xds.RouteURL:
				out.RouteSent, out.RouteAcked = of.Sent, of.Acked
			case xds.EndpointURL:
				out.EndpointSent, out.EndpointAcked = of.Sent, of.Acked
			case xds.ExtURL:
				out.ExtensionConfigSent, out.ExtensionConfigAcked = of.Sent, of.Acked
			}
		}
		if !yield(out) {
			return
		}
	}
}

// configDump answers with the resources that were sent to an Envoy. The errors are istiod's.
func (s *Server) configDump(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("proxyID") == "" {
		http.Error(w, "You must provide a proxyID in the query string", http.StatusBadRequest)
		return
	}
	client, found := debug.Find(s.opts.Clients, query.Get("proxyID"))
	if !found {
		http.Error(w, "Proxy not connected to this Pilot instance. It may be connected to another instance.",
			http.StatusNotFound)
		return
	}
	s.writeJSON(w, r, func(w io.Writer) error {
		return debug.WriteDump(w, s.opts.Clients.Served(client.StreamID), query.Has("include_eds"))
	})
}
