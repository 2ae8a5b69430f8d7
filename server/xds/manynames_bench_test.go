package xds

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
)

// crowd is clients that each ask for other endpoints by name, as gRPC clients of a large mesh, on streams without a network.
type crowd struct {
	b       *testing.B
	server  *Server
	coll    *Collection
	streams []*stream
	version int
}

var pad = strings.Repeat("x", 300)

const (
	crowdClients  = 10_000
	crowdServices = 10_000
	crowdNames    = 20
)

func newCrowd(b *testing.B) *crowd {
	c := &crowd{b: b, coll: NewCollection(TypeOf(EndpointURL), Debounce{}), streams: make([]*stream, crowdClients)}
	entries := make([]*Entry, crowdServices)
	for i := range entries {
		entries[i] = padded(b, serviceName(i), "0", pad)
	}
	c.coll.Apply(Commit{Put: entries})
	c.coll.MarkSynced()
	c.server = NewServer(c, Options{Log: slog.New(slog.DiscardHandler), Pacing: Pacing{Least: -1}})
	return c
}

// Collection implements Catalog.
func (c *crowd) Collection(context.Context, *corev3.Node, string) (*Collection, func(), error) {
	return c.coll, nil, nil
}

func serviceName(i int) string {
	return fmt.Sprintf("outbound|8080||service-%05d.shop.svc.cluster.local", i)
}

// connect sends the first request of each client, answers it and acknowledges it.
func (c *crowd) connect() {
	for i := range c.streams {
		s := &stream{
			server: c.server, grpc: silentStream{ctx: c.b.Context()}, wakeup: make(wakeup, 1), drain: make(chan struct{}),
		}
		c.streams[i] = s
		names := make([]string, crowdNames)
		for n := range names {
			names[n] = serviceName((i*7 + n*503) % crowdServices)
		}
		req := &wire.Request{TypeURL: EndpointURL, Names: names, Cost: crowdNames}
		require.NoError(c.b, s.handle(req, time.Now()))
		out, _ := s.next(time.Now())
		require.NotNil(c.b, out)
		c.acknowledge(s, names)
	}
}

func (c *crowd) acknowledge(s *stream, names []string) {
	nonce := s.types[EndpointURL].status.SentNonce
	require.NoError(c.b, s.handle(&wire.Request{TypeURL: EndpointURL, Names: names, Nonce: nonce, Cost: crowdNames}, time.Now()))
}

func (c *crowd) disconnect() {
	for _, s := range c.streams {
		s.close()
	}
	clear(c.streams)
}

// BenchmarkNames_Connect is 10,000 clients that ask for 20 of 10,000 endpoints each, at once; one operation is all of them.
func BenchmarkNames_Connect(b *testing.B) {
	crowd := newCrowd(b)
	before := heap()
	for b.Loop() {
		crowd.connect()
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/crowdClients, "bytes/client")
		crowd.disconnect()
		b.StartTimer()
	}
}

// BenchmarkNames_Change changes the endpoints of one service, which some 20 of the clients have, and wakes all.
func BenchmarkNames_Change(b *testing.B) {
	crowd := newCrowd(b)
	crowd.connect()
	for b.Loop() {
		crowd.version++
		name := serviceName(crowd.version % crowdServices)
		crowd.coll.Apply(Commit{Put: []*Entry{padded(b, name, fmt.Sprint(crowd.version), pad)}})
		sent := 0
		for _, stream := range crowd.streams {
			select {
			case <-stream.wakeup:
			default:
			}
			if out, _ := stream.next(time.Now()); out != nil {
				sent++
				names := make([]string, 0, crowdNames)
				for name := range stream.types[EndpointURL].selection.names {
					names = append(names, name)
				}
				crowd.acknowledge(stream, names)
			}
		}
		require.NotZero(b, sent)
	}
	crowd.disconnect()
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
