package sources

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
)

// failing is a source that cannot reach its system.
type failing struct{}

func (failing) Run(ctx context.Context, sink Sink) error {
	sink.Report(Health{State: Unreachable, Message: "no route to 192.0.2.1"})
	<-ctx.Done()
	return ctx.Err()
}

// The watch error handler of a config store is told what its source reports.
func TestWatchErrorHandlerIsToldOfFailures(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		store := memstore.New()
		var got []string
		store.SetWatchErrorHandler(func(err error) { got = append(got, err.Error()) })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { store.Run(ctx) })
		require.NoError(t, s.Reconfigure([]Spec{{Name: "a", Table: store, Source: failing{}}}))
		synctest.Wait()
		cancel()
		running.Wait()
		require.Equal(t, []string{"source a is unreachable: no route to 192.0.2.1"}, got)
	})
}
