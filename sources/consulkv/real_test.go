package consulkv

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStoreOnConsul runs the suite on a real Consul, if one is given as TRIBUTARY_TEST_CONSUL=host:port. The end-to-end
// tests do so.
func TestStoreOnConsul(t *testing.T) {
	addr := os.Getenv("TRIBUTARY_TEST_CONSUL")
	if addr == "" {
		t.Skip("TRIBUTARY_TEST_CONSUL is not set")
	}
	open := func(t *testing.T) *Store {
		s, err := Open(fmt.Sprintf("consul-kv://%s/storetest-%d", addr, os.Getpid()), Settings{})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	s := open(t)
	t.Cleanup(func() {
		_, err := s.place.client.KV().DeleteTree(s.place.prefix, nil)
		require.NoError(t, err)
	})
	testContract(t, open)
}
