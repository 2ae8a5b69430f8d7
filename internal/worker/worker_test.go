package worker_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAPanicFailsTheGroup(t *testing.T) {
	group, ctx := worker.New(t.Context())
	group.Go(func() { <-ctx.Done() })
	group.Go(func() {
		group.Go(func() { panic(io.ErrUnexpectedEOF) })
		<-ctx.Done()
	})
	err := group.Wait()
	require.EqualError(t, err, "panic: unexpected EOF")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, err, context.Cause(ctx))
	var p *worker.Panic
	require.ErrorAs(t, err, &p)
	require.Contains(t, string(p.Stack), "TestAPanicFailsTheGroup")
	group.Fail(errors.New("later"))
	require.Equal(t, err, group.Wait())
}

func TestStop(t *testing.T) {
	group, ctx := worker.New(t.Context())
	ended := false
	group.Go(func() {
		<-ctx.Done()
		ended = true
	})
	group.Stop()
	require.True(t, ended)
	require.NoError(t, group.Wait())
}

func TestDo(t *testing.T) {
	require.NoError(t, worker.Do(func() error { return nil }))
	require.Equal(t, io.EOF, worker.Do(func() error { return io.EOF }))
	first := worker.Do(func() error { panic("no") })
	require.EqualError(t, first, "panic: no")
	require.Same(t, first, worker.Do(func() error { panic(first) }), "it is passed on as it was")
}

func TestEach(t *testing.T) {
	for _, processors := range []int{1, 3} {
		var calls [10]atomic.Int32
		worker.Each(len(calls), processors, func(i int) { calls[i].Add(1) })
		for i := range calls {
			require.Equal(t, int32(1), calls[i].Load())
		}
		require.Panics(t, func() { worker.Each(2, processors, func(int) { panic("no") }) })
	}
	worker.Each(0, 3, func(int) { t.Error("there is no call") })
}

// TestEach_PanicText: the runtime prints "panic: " before the text of a panic that ends the process.
func TestEach_PanicText(t *testing.T) {
	recovered := func() (value any) {
		defer func() { value = recover() }()
		worker.Each(2, 2, func(int) { panic("no") })
		return nil
	}()
	require.Regexp(t, `^no\n\ngoroutine (?s).*TestEach_PanicText`, recovered)
	err := worker.Do(func() error { worker.Each(2, 2, func(int) { panic("no") }); return nil })
	require.EqualError(t, err, "panic: no")
	_, isPanic := err.(*worker.Panic) //nolint:errorlint // as the callers of Do get it
	require.True(t, isPanic)
}

func TestWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, worker.Wait(ctx, nil, time.Nanosecond))
	wakeup := make(chan struct{}, 1)
	wakeup <- struct{}{}
	require.NoError(t, worker.Wait(ctx, wakeup, time.Hour))
	cancel()
	require.ErrorIs(t, worker.Wait(ctx, nil, time.Hour), context.Canceled)
}
