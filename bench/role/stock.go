package role

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// stockOptions are those of the example that comes with go-control-plane (internal/example/server.go), which control
// planes are made of.
func stockOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(1_000_000),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
	}
}

// Touch replaces one resource, and does not wait until the server has come to rest: under attack it never does.
func (s *Server) Touch(_ struct{}, reply *Changed) error {
	items := s.next(1)
	reply.Change, reply.Applied, reply.At = s.changes, 1, time.Now()
	return s.engine.Publish(items)
}
