package attack

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/bench/wire"
)

// getPages asks for 250 pages of all objects at once, on one connection of HTTP/2 to the admin port; where there is
// none, to that of xDS.
//
//nolint:staticcheck // http.Transport would open further connections
func getPages(ctx context.Context, r *run, n int) error {
	address := cmp.Or(r.Admin, r.Address)
	transport := &http2.Transport{
		AllowHTTP: true, StrictMaxConcurrentStreams: true,
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			return r.dialTo(ctx, n, address)
		},
	}
	defer transport.CloseIdleConnections()
	var requests errgroup.Group
	for range 250 {
		requests.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/debug/configz", nil)
			if err != nil {
				return err
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			r.sent.Add(1)
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		})
	}
	return requests.Wait()
}

// watchHealth opens 100 streams on one connection, each with a watch of the health of a service with a long name, and
// stays.
func watchHealth(ctx context.Context, r *run, n int) error {
	conn, err := r.client(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	request := wire.Bytes(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), strings.Repeat("x", 60<<10)))
	var watches errgroup.Group
	for range 100 {
		s, err := conn.NewStream(ctx, bidirectional, "/grpc.health.v1.Health/Watch", asBytes)
		if err != nil {
			return err
		}
		if s.SendMsg(&request) == nil {
			r.sent.Add(1)
		}
		_ = s.CloseSend()
		watches.Go(func() error { return drain(s) })
	}
	return watches.Wait()
}

// askReflection asks for a large file of descriptors, again and again.
func askReflection(ctx context.Context, r *run, n int) error {
	s, hangUp, err := r.stream(ctx, n, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	if err != nil {
		return err
	}
	defer hangUp()
	request := wire.Bytes(protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType),
		"envoy.service.discovery.v3.AggregatedDiscoveryService"))
	for {
		if err := s.SendMsg(&request); err != nil {
			return drain(s)
		}
		var got wire.Bytes
		if err := s.RecvMsg(&got); err != nil {
			return err
		}
		r.sent.Add(1)
	}
}
