package admin

import (
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"tributary/server/debug"
	"tributary/server/xds"
)

// toolPages are the pages that istioctl asks for over xDS, where anybody may be who can reach the port. They say what is served and to
// whom, and nothing of where it comes from.
var toolPages = []string{"clusters", "config_dump", "configz", "connections", "list", "syncz"}

// ToolPages returns a handler of those pages alone, for a program in this process that asks in the name of a tool.
func (s *Server) ToolPages() http.Handler {
	mux := http.NewServeMux()
	for _, p := range s.allPages() {
		if slices.Contains(toolPages, strings.TrimPrefix(p.Path, "/debug/")) {
			mux.Handle("GET "+p.Path, p.handler)
		}
	}
	return mux
}

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
	for c := range debug.Who(s.opts.Clients) {
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

// connections is /debug/connections as istiod has it (AdsClients), one client at a time; their number stands at the end, where it is known.
func (s *Server) connections(w http.ResponseWriter, r *http.Request) {
	s.writeJSON(w, r, func(w io.Writer) error { return writeConnections(w, debug.Who(s.opts.Clients)) })
}

func writeConnections(w io.Writer, clients iter.Seq[xds.ClientStatus]) error {
	type connection struct {
		ID      string    `json:"connectionId"`
		At      time.Time `json:"connectedAt"`
		Address string    `json:"address"`
	}
	if _, err := io.WriteString(w, "{\n  \"clients\": "); err != nil {
		return err
	}
	n, err := writeElements(w, "  ", func(yield func(any) bool) {
		for c := range clients {
			if !yield(connection{debug.Connection(&c), c.Connected, c.Peer}) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, ",\n  \"totalClients\": %d\n}\n", n)
	return err
}

// configDump is what an Envoy was sent.
func (s *Server) configDump(w http.ResponseWriter, r *http.Request) {
	if served, found := s.ofProxy(w, r); found {
		s.writeJSON(w, r, func(w io.Writer) error { return debug.WriteDump(w, "", served, r.URL.Query().Has("include_eds")) })
	}
}

// clusters are the endpoints that it was sent.
func (s *Server) clusters(w http.ResponseWriter, r *http.Request) {
	served, found := s.ofProxy(w, r)
	if !found {
		return
	}
	said, err := debug.Clusters(served)
	var text []byte
	if err == nil {
		text, err = protojson.MarshalOptions{Multiline: true, Indent: "  ", UseProtoNames: true}.Marshal(said)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.writeJSON(w, r, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// ofProxy returns what the client that a request asks about was sent. The errors that it answers with are istiod's, by which istioctl knows
// them.
func (s *Server) ofProxy(w http.ResponseWriter, r *http.Request) (served []xds.Served, found bool) {
	id := r.URL.Query().Get("proxyID")
	if id == "" {
		http.Error(w, "You must provide a proxyID in the query string", http.StatusBadRequest)
		return nil, false
	}
	c, ok := debug.Find(s.opts.Clients, id)
	if !ok {
		http.Error(w, "Proxy not connected to this Pilot instance. It may be connected to another instance.", http.StatusNotFound)
		return nil, false
	}
	return s.opts.Clients.Served(c.StreamID), true
}
