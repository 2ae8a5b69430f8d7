package sourcetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources"
)

// Running is a source that runs in a supervisor of its own, as in the program.
type Running struct {
	T          testing.TB
	Supervisor *sources.Supervisor
	Stop       func() // may be called twice

	spec sources.Spec
}

// Start runs a source until Stop, or until the test ends.
func Start(t testing.TB, spec sources.Spec, options ...sources.Options) *Running {
	t.Helper()
	r := &Running{T: t, Supervisor: sources.NewSupervisor(append(options, sources.Options{})[0]), spec: spec}
	r.Use(spec.Source)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Supervisor.Run(ctx) }()
	r.Stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(r.Stop)
	return r
}

// Use ends the source, and runs another one on the published state.
func (r *Running) Use(source sources.Source) {
	r.T.Helper()
	r.spec.Source = source
	require.NoError(r.T, r.Supervisor.Reconfigure([]sources.Spec{r.spec}))
}

// Replace is Use with something that happens after the end of the one and before the start of the other.
func (r *Running) Replace(source sources.Source, meanwhile func()) {
	r.T.Helper()
	r.Use(idle{})
	meanwhile()
	r.Use(source)
}

// Status is that of the source.
func (r *Running) Status() sources.Status { return r.Supervisor.Status()[0] }

// ServiceEntry returns a published one; nil without.
func (r *Running) ServiceEntry(namespace, name string) *networking.ServiceEntry {
	r.T.Helper()
	object := r.spec.Table.Snapshot().Get(resource.Key{Kind: resource.ServiceEntry, Namespace: namespace, Name: name})
	if object == nil {
		return nil
	}
	spec, err := object.Spec()
	require.NoError(r.T, err)
	return spec.(*networking.ServiceEntry)
}

// Await waits until ok holds.
func (r *Running) Await(condition string, ok func() bool) {
	r.T.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			var served []string
			for object := range r.spec.Table.Snapshot().All() {
				served = append(served, object.Key().String())
			}
			require.Fail(r.T, "not in time", "%s; served: %v; status: %+v", condition, served, r.Status())
		}
	}
}

// AwaitSync waits until the source is synced.
func (r *Running) AwaitSync() {
	r.T.Helper()
	r.Await("it is synced", r.spec.Table.Synced)
}

// AwaitState waits until the source has a state, and a message with each part.
func (r *Running) AwaitState(state sources.State, parts ...string) {
	r.T.Helper()
	r.Await(fmt.Sprintf("it is %s, saying %q", state, parts), func() bool {
		status := r.Status()
		return status.State == state &&
			!slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(status.Message, part) })
	})
}
