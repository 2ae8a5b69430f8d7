// Package engine puts the xDS servers that are compared behind one interface.
package engine

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
)

// Engine is an xDS server under test. It serves one type, TypeURL, to every stream.
type Engine interface {
	// Options are what the engine needs of the gRPC server that carries it.
	Options() []grpc.ServerOption
	// Register adds the aggregated discovery service to s.
	Register(s *grpc.Server)
	// Publish adds or replaces items, all at once. It is not called concurrently.
	Publish(items []Item) error
}

// The engines by name.
const (
	Floor     = "floor"
	Tributary = "tributary"
	Linear    = "linear"
	Snapshot  = "snapshot"
)

// Names lists the engines; the one that the others are measured against comes first.
func Names() []string { return []string{Floor, Tributary, Linear, Snapshot} }

// New makes the engine of that name. It serves until ctx ends.
func New(ctx context.Context, name string) (Engine, error) {
	switch name {
	case Floor:
		return newFloor(), nil
	case Tributary:
		return newTributary(), nil
	case Linear:
		return newLinear(ctx), nil
	case Snapshot:
		return newSnapshot(ctx), nil
	}
	return nil, fmt.Errorf("no engine is called %q: there are %q", name, Names())
}
