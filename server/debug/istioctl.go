package debug

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/turns"
	"tributary/server/xds"
)

// The types of istioctl proxy-status, as of 1.27 (istio.io/istio/pilot/pkg/xds, StatusGen).
const (
	istioctlURL = "istio.io/debug"             // the pages of istioctl x internal-debug, which are not served
	synczURL    = istioctlURL + "/syncz"       // a ClientConfig for each client
	dumpURL     = istioctlURL + "/config_dump" // the parts of the config_dump of one client
)

// IsIstioctl reports whether a type is one of istioctl, which no other client subscribes to.
func IsIstioctl(typeURL string) bool {
	return typeURL == istioctlURL || strings.HasPrefix(typeURL, istioctlURL+"/")
}

const (
	maxAnswer = 64 << 20 // bytes of an answer
	maxMemory = 128 << 20
)

// memory counts the bytes of answers that are not sent yet, at most maxMemory.
type memory struct{ atomic.Int64 }

// reserve counts the bytes of an answer, unless there are too many. A negative size releases bytes.
func (m *memory) reserve(size int64) error {
	if m.Add(size) > maxMemory && size > 0 {
		m.Add(-size)
		return status.Error(codes.ResourceExhausted, "too many large answers are in memory: try again later")
	}
	return nil
}

// Istioctl answers istioctl proxy-status. It is safe for concurrent use.
type Istioctl struct {
	clients Clients
	turns   *turns.Turns // one answer at a time
	memory  memory
}

// NewIstioctl returns an Istioctl that needs SetClients before its first client.
func NewIstioctl() *Istioctl { return &Istioctl{turns: turns.New(1)} }

// SetClients sets the clients to report.
func (i *Istioctl) SetClients(clients Clients) { i.clients = clients }

// Collection implements xds.Catalog. Each stream has a collection of its own.
func (i *Istioctl) Collection(ctx context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	answer := i.syncz
	switch typeURL {
	case synczURL:
	case dumpURL:
		answer = i.dump
	default:
		return nil, nil, status.Errorf(codes.Unimplemented,
			"type %q is not served: the admin port has the pages of /debug/", typeURL)
	}
	var collection *xds.Collection
	reserved := int64(0) // only the stream's reader uses it, and ends before the release
	query := func(names []string) (err error) {
		turnErr := i.turns.Do(ctx, xds.HostOf(ctx), func() {
			var entries []*xds.Entry
			if entries, err = answer(ctx, names); err != nil {
				return
			}
			size, version := int64(0), rand.Text() // a new version, so that an equal answer is sent, too
			for _, entry := range entries {
				size += int64(len(entry.Any))
				entry.Version = version
			}
			if err = i.memory.reserve(size - reserved); err == nil {
				reserved = size
				collection.Apply(xds.Commit{Put: entries, Reset: true, Version: version})
			}
		})
		if turnErr != nil {
			return contextStatus(ctx)
		}
		return err
	}
	collection = xds.NewCollection(xds.Type{URL: typeURL, Query: query}, xds.Debounce{})
	collection.MarkSynced()
	return collection, func() { _ = i.memory.reserve(-reserved) }, nil
}

// syncz returns the status of all clients.
func (i *Istioctl) syncz(ctx context.Context, _ []string) (entries []*xds.Entry, err error) {
	names := make(map[string]bool)
	err = eachClient(ctx, i.clients, func(client *xds.ClientStatus) error {
		name := client.Node.GetId()
		if names[name] { // clients choose their node IDs, so two may have the same
			name = Connection(client)
		}
		names[name] = true
		config, err := anypb.New(clientConfig(client))
		if err == nil {
			entries, err = appendEntry(entries, name, config)
		}
		return err
	})
	return entries, err
}

// dump returns the parts of the config_dump of a client. Like istiod, it returns none if the client is not connected.
func (i *Istioctl) dump(ctx context.Context, names []string) (entries []*xds.Entry, err error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "exactly one proxy is required")
	}
	client, connected := Find(i.clients, names[0])
	if !connected {
		return nil, nil
	}
	turnErr := xds.HeavyWork(ctx, func() {
		parts, dumpErr := dumpParts(i.clients.Served(client.StreamID))
		err = dumpErr
		for number, part := range parts {
			if err == nil {
				entries, err = appendEntry(entries, strconv.Itoa(number), part)
			}
		}
	})
	if turnErr != nil {
		return nil, contextStatus(ctx)
	}
	return entries, err
}

func appendEntry(entries []*xds.Entry, name string, body *anypb.Any) ([]*xds.Entry, error) {
	encoded, err := proto.Marshal(body)
	return append(entries, &xds.Entry{Name: name, Any: encoded}), err
}
