package consulkv

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/sources/consul/consultest"
)

func TestMain(m *testing.M) {
	for _, v := range os.Environ() { // the variables of the user who runs the tests do not count
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CONSUL_") {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// impatient makes a place that loses no time.
func impatient(p *place) {
	p.minInterval, p.pulseInterval = time.Millisecond, 5*time.Millisecond
	p.newBackOff = func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) }
}

func newSource(t testing.TB, c *consultest.Server, settings Settings) *Source {
	t.Helper()
	s, err := New("consul-kv://"+c.Address()+"/mesh", settings)
	require.NoError(t, err)
	impatient(s.place)
	return s
}

func newStore(t *testing.T, c *consultest.Server) *Store {
	t.Helper()
	store, err := Open("consul-kv://"+c.Address()+"/mesh", Settings{})
	require.NoError(t, err)
	impatient(store.place)
	t.Cleanup(store.Close)
	return store
}
