// Package engine puts the xDS servers that are compared behind one interface.
package engine

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"tributary/server/xds"
)

// Engine is an xDS server under test. It serves one type, TypeURL, to every stream.
type Engine interface {
	// Options are the options that the engine needs of its gRPC server.
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
	Paced     = "paced" // tributary as it is by default
	Linear    = "linear"
	Snapshot  = "snapshot"
)

// Names lists the engines; the one that the others are measured against comes first.
func Names() []string { return []string{Floor, Tributary, Paced, Linear, Snapshot} }

// Compared lists those that a single change is timed on.
func Compared() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return name == Paced })
}

// New makes the engine of that name. It serves until ctx ends.
func New(ctx context.Context, name string) (Engine, error) {
	switch name {
	case Floor:
		return newFloor(), nil
	case Tributary:
		return newTributary(xds.Pacing{Least: -1}), nil
	case Paced:
		return newTributary(xds.Pacing{}), nil
	case Linear:
		return newLinear(ctx), nil
	case Snapshot:
		return newSnapshot(ctx), nil
	}
	return nil, fmt.Errorf("no engine is called %q: there are %q", name, Names())
}
