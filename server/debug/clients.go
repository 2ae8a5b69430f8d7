// Package debug answers what the tools of others ask a control plane: istioctl, by types of its own on the discovery services, and
// whoever speaks CSDS.
package debug

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"tributary/internal/words"
	"tributary/server/xds"
)

// Clients are those who are connected.
type Clients interface {
	EachClient() iter.Seq[xds.ClientStatus]
	// Served returns what the client of a stream was sent.
	Served(streamID uint64) []xds.Served
}

// Condition is how a client stands with a type, in the words of CSDS, as istiod uses them.
func Condition(t *xds.TypeStatus) statusv3.ConfigStatus {
	switch {
	case t.Rejects():
		return statusv3.ConfigStatus_ERROR
	case t.SentNonce == "" && !t.Synced:
		return statusv3.ConfigStatus_NOT_SENT
	case t.Synced:
		return statusv3.ConfigStatus_SYNCED
	}
	return statusv3.ConfigStatus_STALE
}

// Who yields the clients that ask for what is served, in order of arrival. Who only asks about others, as istioctl does, is none.
func Who(clients Clients) iter.Seq[xds.ClientStatus] {
	return func(yield func(xds.ClientStatus) bool) {
		for c := range clients.EachClient() {
			if slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { return !IsQuestion(t.TypeURL) }) && !yield(c) {
				return
			}
		}
	}
}

// At so many clients is looked in one turn, and for so long: who else has much done waits for no more, or for one client if that takes
// longer.
const (
	batchSize = 100
	turnFor   = 10 * time.Millisecond
)

// forEach looks at the clients that Who yields, in turns with others who have much done, until ctx ends or look has an error.
func forEach(ctx context.Context, clients Clients, look func(*xds.ClientStatus) error) error {
	var some []xds.ClientStatus
	all := func() (err error) {
		for left := some; len(left) > 0; {
			late := xds.HeavyWork(ctx, func() {
				for begun := time.Now(); len(left) > 0 && err == nil && time.Since(begun) < turnFor; left = left[1:] {
					err = look(&left[0])
				}
			})
			if late != nil || ctx.Err() != nil {
				return gone(ctx)
			}
			if err != nil {
				return err
			}
		}
		some = some[:0]
		return nil
	}
	for c := range Who(clients) {
		if some = append(some, c); len(some) < batchSize {
			continue
		}
		if err := all(); err != nil {
			return err
		}
	}
	return all()
}

// gone is what those are told who have gone.
func gone(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// metadataKeys are the metadata of nodes that tools read. The rest is large, and is not shown.
var metadataKeys = []string{"CLUSTER_ID", "NAMESPACE", "ISTIO_VERSION"}

// MetadataText returns a text of a node's metadata, without what a terminal would obey.
func MetadataText(n *corev3.Node, key string) string {
	return words.Printable(n.GetMetadata().GetFields()[key].GetStringValue(), "")
}

// config is a client as CSDS has it: one entry a type.
func config(c *xds.ClientStatus) *statusv3.ClientConfig {
	metadata := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	for _, key := range metadataKeys {
		if v := MetadataText(c.Node, key); v != "" {
			metadata.Fields[key] = structpb.NewStringValue(v)
		}
	}
	var locality *corev3.Locality
	if l := c.Node.GetLocality(); l != nil {
		locality = &corev3.Locality{
			Region: words.Printable(l.GetRegion(), ""), Zone: words.Printable(l.GetZone(), ""), SubZone: words.Printable(l.GetSubZone(), ""),
		}
	}
	out := &statusv3.ClientConfig{Node: &corev3.Node{
		Id: c.Node.GetId(), Cluster: c.Node.GetCluster(), Locality: locality, Metadata: metadata,
		UserAgentName: c.Node.GetUserAgentName(),
	}}
	for i := range c.Types {
		t := &c.Types[i]
		if IsQuestion(t.TypeURL) {
			continue
		}
		generic := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: t.TypeURL, VersionInfo: t.SentVersion, ConfigStatus: Condition(t)}
		if !t.SentAt.IsZero() {
			generic.LastUpdated = timestamppb.New(t.SentAt)
		}
		if generic.ConfigStatus == statusv3.ConfigStatus_ERROR {
			generic.ErrorState = &adminv3.UpdateFailureState{
				Details: strings.ToValidUTF8(t.NackError, "?"), VersionInfo: t.SentVersion, LastUpdateAttempt: timestamppb.New(t.NackAt),
			}
		}
		out.GenericXdsConfigs = append(out.GenericXdsConfigs, generic)
	}
	return out
}
