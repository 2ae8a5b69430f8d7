package consulkv

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore/storetest"
)

// TestStoreOnConsul runs the suite on a real Consul, if one is given as TRIBUTARY_TEST_CONSUL=host:port. The end-to-end
// tests do so.
func TestStoreOnConsul(t *testing.T) {
	addr := os.Getenv("TRIBUTARY_TEST_CONSUL")
	if addr == "" {
		t.Skip("TRIBUTARY_TEST_CONSUL is not set")
	}
	var opened atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s, err := Open(fmt.Sprintf("consul-kv://%s/storetest-%d-%d", addr, os.Getpid(), opened.Add(1)), Settings{})
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := s.place.client.KV().DeleteTree(s.place.prefix, nil)
			require.NoError(t, err)
			s.Close()
		})
		return storetest.Subject{Store: s, Reader: s.Reader(), Backed: true}
	})
}
