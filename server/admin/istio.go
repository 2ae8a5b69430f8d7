package admin

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"tributary/server/debug"
	"tributary/server/xds"
)

// resourceStatus is the state of a type in an entry of /debug/syncz.
type resourceStatus struct {
	Sent      string    `json:"sent,omitempty"`
	Acked     string    `json:"acked,omitempty"`
	SentTime  time.Time `json:"sentTime,omitzero"`
	LastError string    `json:"lastError,omitempty"`
}

// syncNames are the prefixes of the fields about a type in an entry of /debug/syncz, such as cluster in cluster_sent.
var syncNames = map[string]string{
	xds.ClusterURL: "cluster", xds.ListenerURL: "listener", xds.RouteURL: "route", xds.EndpointURL: "endpoint",
	xds.ExtURL: "extensionconfig",
}

// syncz yields an entry for each client, as istiod 1.27 does (istio.io/istio/pilot/pkg/xds, SyncStatus).
func (s *Server) syncz(yield func(any) bool) {
	for client := range debug.Subscribers(s.opts.Clients) {
		entry := make(map[string]any)
		setText := func(name, text string) {
			if text != "" {
				entry[name] = text
			}
		}
		setText("cluster_id", debug.MetadataText(client.Node, "CLUSTER_ID"))
		setText("proxy", client.Node.GetId())
		setText("istio_version", debug.MetadataText(client.Node, "ISTIO_VERSION"))
		if kind, _, isIstio := strings.Cut(client.Node.GetId(), "~"); isIstio {
			setText("proxy_type", kind)
		}
		resources := make(map[string]resourceStatus)
		for _, subscription := range client.Types {
			status := resourceStatus{
				Sent: subscription.SentNonce, Acked: subscription.AckedNonce, SentTime: subscription.SentAt,
			}
			if subscription.Rejects() {
				status.LastError = subscription.NackError
			}
			resources[subscription.TypeURL] = status
			if name := syncNames[subscription.TypeURL]; name != "" {
				setText(name+"_sent", status.Sent)
				setText(name+"_acked", status.Acked)
			}
		}
		entry["resources"] = resources
		if !yield(entry) {
			return
		}
	}
}

// configDump answers with the resources that were sent to an Envoy. The error messages are those of istiod.
func (s *Server) configDump(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if query.Get("proxyID") == "" {
		return badRequest("You must provide a proxyID in the query string")
	}
	client, connected := debug.Find(s.opts.Clients, query.Get("proxyID"))
	if !connected {
		return &failure{
			http.StatusNotFound,
			//nolint:staticcheck // istiod's text
			errors.New("Proxy not connected to this Pilot instance. It may be connected to another instance."),
		}
	}
	return writeJSON(response, func(w io.Writer) error {
		return debug.WriteDump(w, s.opts.Clients.Served(client.StreamID), query.Has("include_eds"))
	})
}
