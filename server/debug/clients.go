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

// Clients are the connected clients.
type Clients interface {
	EachClient() iter.Seq[xds.ClientStatus]
	// Served returns the resources that were sent to the client of a stream.
	Served(streamID uint64) []xds.Served
}

// Condition returns the status of a subscription in the terms of CSDS, like istiod.
func Condition(subscription *xds.TypeStatus) statusv3.ConfigStatus {
	switch {
	case subscription.Rejects():
		return statusv3.ConfigStatus_ERROR
	case subscription.Synced:
		return statusv3.ConfigStatus_SYNCED
	case subscription.SentNonce == "":
		return statusv3.ConfigStatus_NOT_SENT
	}
	return statusv3.ConfigStatus_STALE
}

// Subscribers yields the clients in order of arrival. It skips those that only ask about others, such as istioctl.
func Subscribers(clients Clients) iter.Seq[xds.ClientStatus] {
	return func(yield func(xds.ClientStatus) bool) {
		for client := range clients.EachClient() {
			subscribes := slices.ContainsFunc(client.Types, func(subscription xds.TypeStatus) bool {
				return !IsIstioctl(subscription.TypeURL)
			})
			if subscribes && !yield(client) {
				return
			}
		}
	}
}

// turnLength is how long eachClient works before it lets other heavy work run.
const turnLength = 10 * time.Millisecond

// eachClient calls visit with each subscriber until ctx ends or visit returns an error.
func eachClient(ctx context.Context, clients Clients, visit func(*xds.ClientStatus) error) (err error) {
	next, stop := iter.Pull(Subscribers(clients))
	defer stop()
	for hasNext := true; hasNext && err == nil; {
		turnErr := xds.HeavyWork(ctx, func() {
			started := time.Now()
			for hasNext && err == nil && ctx.Err() == nil && time.Since(started) < turnLength {
				var client xds.ClientStatus
				client, hasNext = next()
				if hasNext {
					err = visit(&client)
				}
			}
		})
		if turnErr != nil || ctx.Err() != nil {
			return contextStatus(ctx)
		}
	}
	return err
}

// contextStatus returns the gRPC status of a context that has ended.
func contextStatus(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// metadataKeys are the keys of node metadata that tools read. Other metadata, which can be large, is left out.
var metadataKeys = []string{"CLUSTER_ID", "NAMESPACE", "ISTIO_VERSION"}

// MetadataText returns the text of a key in a node's metadata, without control characters.
func MetadataText(node *corev3.Node, key string) string {
	return words.Printable(node.GetMetadata().GetFields()[key].GetStringValue(), "")
}

// clientConfig returns the status of a client in the form of CSDS.
func clientConfig(client *xds.ClientStatus) *statusv3.ClientConfig {
	metadata := &structpb.Struct{Fields: make(map[string]*structpb.Value)}
	for _, key := range metadataKeys {
		if text := MetadataText(client.Node, key); text != "" {
			metadata.Fields[key] = structpb.NewStringValue(text)
		}
	}
	node := &corev3.Node{
		Id: client.Node.GetId(), Cluster: client.Node.GetCluster(), Metadata: metadata,
		UserAgentName: client.Node.GetUserAgentName(),
	}
	if locality := client.Node.GetLocality(); locality != nil {
		node.Locality = &corev3.Locality{
			Region: words.Printable(locality.GetRegion(), ""), Zone: words.Printable(locality.GetZone(), ""),
			SubZone: words.Printable(locality.GetSubZone(), ""),
		}
	}
	config := &statusv3.ClientConfig{Node: node}
	for i := range client.Types {
		subscription := &client.Types[i]
		if IsIstioctl(subscription.TypeURL) {
			continue
		}
		generic := &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: subscription.TypeURL, VersionInfo: subscription.SentVersion, ConfigStatus: Condition(subscription),
		}
		if !subscription.SentAt.IsZero() {
			generic.LastUpdated = timestamppb.New(subscription.SentAt)
		}
		if generic.GetConfigStatus() == statusv3.ConfigStatus_ERROR {
			generic.ErrorState = &adminv3.UpdateFailureState{
				Details:     strings.ToValidUTF8(subscription.NackError, "?"),
				VersionInfo: subscription.SentVersion, LastUpdateAttempt: timestamppb.New(subscription.NackAt),
			}
		}
		config.GenericXdsConfigs = append(config.GenericXdsConfigs, generic)
	}
	return config
}
