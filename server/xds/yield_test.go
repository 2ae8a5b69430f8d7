package xds

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Other goroutines run while a stream works on very many names.
func TestManyNames_YieldProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var ran atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		ran.Store(true)
	}()
	var w subscriptionNames
	for i := 0; i < 8*600 && !ran.Load(); i++ { // the runtime may have something else to run first
		w.add(fmt.Sprint(i), initialState)
	}
	require.True(t, ran.Load())
	<-stopped
}
