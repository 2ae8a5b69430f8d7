package debug

import (
	"context"
	"errors"
	"io"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// CSDS is the client status discovery service. The status of clients says how they stand with each type.
type CSDS struct {
	statusv3.UnimplementedClientStatusDiscoveryServiceServer
	list func(match func(*corev3.Node) bool) []*statusv3.ClientConfig
}

// OfClients returns the service that tells of those who are connected here.
func OfClients(clients Clients) *CSDS {
	return &CSDS{list: func(match func(*corev3.Node) bool) (all []*statusv3.ClientConfig) {
		for c := range Who(clients) {
			if match(c.Node) {
				all = append(all, config(&c))
			}
		}
		return all
	}}
}

// OfSelf returns the service that tells how this program stands with those whose client it is.
func OfSelf(upstreams func() []*statusv3.ClientConfig) *CSDS {
	return &CSDS{list: func(match func(*corev3.Node) bool) (all []*statusv3.ClientConfig) {
		for _, c := range upstreams() {
			if match(c.GetNode()) {
				all = append(all, c)
			}
		}
		return all
	}}
}

// FetchClientStatus implements the service.
func (s *CSDS) FetchClientStatus(_ context.Context, r *statusv3.ClientStatusRequest) (*statusv3.ClientStatusResponse, error) {
	return s.answer(r.GetNodeMatchers())
}

// StreamClientStatus implements the service: each request has its answer.
func (s *CSDS) StreamClientStatus(stream statusv3.ClientStatusDiscoveryService_StreamClientStatusServer) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := s.answer(r.GetNodeMatchers())
		if err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s *CSDS) answer(matchers []*matcherv3.NodeMatcher) (*statusv3.ClientStatusResponse, error) {
	match, err := nodes(matchers)
	if err != nil {
		return nil, err
	}
	return &statusv3.ClientStatusResponse{Config: s.list(match)}, nil
}
