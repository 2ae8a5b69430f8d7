package consulkv

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
)

// BenchmarkBelieved_KeysDeleted reads a prefix whose keys were all deleted.
func BenchmarkBelieved_KeysDeleted(b *testing.B) {
	c := consultest.New(b)
	place, err := newPlace("consul-kv://"+c.Address()+"/mesh", Settings{})
	require.NoError(b, err)
	memory := newMemory(time.Minute)
	memory.hasBaseline = true
	for i := range 50_000 {
		memory.keys.Put(fmt.Sprintf("mesh/destinationrules/production/rule-%05d", i), indexes{1, 1})
	}
	r := &run{Source: &Source{place: place}, memory: memory}
	for b.Loop() {
		_, _, err := r.trustedListing(b.Context(), 0, false)
		require.NoError(b, err)
	}
	place.client.Close()
}
