package adsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// maxNackReason bounds the reason of a rejection: a response of 100,000 bad resources must not be answered by a request
// that exceeds the server's receive limit.
const maxNackReason = 16 << 10

// sotwStream is one state-of-the-world stream. It is owned by one goroutine.
type sotwStream struct {
	client *Client
	ads    discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	server string
	node   *corev3.Node // set until the first request was sent; xDS wants it in that one only
}

// runSotW asks for every subscription and works on the answers until the stream ends. The error is never nil.
func (c *Client) runSotW(ctx context.Context, conn *grpc.ClientConn, address string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream, whichever way we leave
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s := &sotwStream{client: c, ads: ads, server: address, node: c.cfg.Node}
	for _, sub := range c.cfg.Subscriptions {
		if err := s.request(c.subs[sub.TypeURL], "", nil); err != nil {
			return err
		}
	}
	for {
		resp, err := ads.Recv()
		if err != nil {
			return streamError(err)
		}
		if err := s.handle(ctx, resp); err != nil {
			return err
		}
	}
}

// handle passes a response to its handler and answers it.
func (s *sotwStream) handle(ctx context.Context, resp *discoveryv3.DiscoveryResponse) error {
	log := s.client.cfg.Log.With("address", s.server, "type_url", resp.GetTypeUrl(), "nonce", resp.GetNonce())
	sub := s.client.subs[resp.GetTypeUrl()]
	if sub == nil {
		log.Warn("response of a type that was not asked for ignored")
		return nil
	}
	rejected := sub.Handler(ctx, &Response{
		TypeURL:      resp.GetTypeUrl(),
		Version:      resp.GetVersionInfo(),
		Resources:    resp.GetResources(),
		Server:       s.server,
		ControlPlane: resp.GetControlPlane().GetIdentifier(),
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if rejected != nil {
		log.Warn("response rejected", "version", resp.GetVersionInfo(), "err", rejected)
	} else {
		sub.version = resp.GetVersionInfo()
	}
	return s.request(sub, resp.GetNonce(), rejected)
}

// request sends the state of sub: without a nonce as the first request of its type, with the nonce of a response as an
// acknowledgement, or, if rejected is set, as a rejection, which repeats the last version that was taken.
func (s *sotwStream) request(sub *subscription, nonce string, rejected error) error {
	req := &discoveryv3.DiscoveryRequest{
		Node:          s.node,
		TypeUrl:       sub.TypeURL,
		ResourceNames: sub.Names,
		VersionInfo:   sub.version,
		ResponseNonce: nonce,
	}
	if rejected != nil {
		req.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: nackReason(rejected)}
	}
	if err := s.ads.Send(req); err != nil {
		if errors.Is(err, io.EOF) {
			return s.reason()
		}
		return fmt.Errorf("request %s: %w", sub.TypeURL, err)
	}
	s.node = nil
	return nil
}

// reason returns why the server ended the stream, which gRPC tells the receiving side only.
func (s *sotwStream) reason() error {
	for {
		if _, err := s.ads.Recv(); err != nil {
			return streamError(err)
		}
	}
}

// nackReason is err's text, cut to maxNackReason and made fit for protobuf, which refuses broken UTF-8.
func nackReason(err error) string {
	text := err.Error()
	if len(text) > maxNackReason {
		text = text[:maxNackReason] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// streamError says in words that a server ended the stream without giving a reason.
func streamError(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended it")
	}
	return err
}
