package process

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody can connect who may not, not even in the moment in which the socket is made.
func TestASocketIsNeverOpenToMoreThanItsMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := t.TempDir() + "/s.sock"
	var seen atomic.Uint32
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if i, err := os.Lstat(path); err == nil && i.Mode().Perm()&^0o600 != 0 {
				seen.Store(uint32(i.Mode().Perm()))
			}
		}
	}()
	for range 500 {
		lis, err := Listen(t.Context(), "unix://"+path+"?mode=0600")
		require.NoError(t, err)
		require.NoError(t, lis.Close())
	}
	close(stop)
	<-ended
	require.Zero(t, seen.Load(), "mode %o", seen.Load())
}
