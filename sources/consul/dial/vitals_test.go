package dial

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestVitals_OfWorstScope(t *testing.T) {
	vitals := &Vitals{}
	require.Zero(t, testutil.CollectAndCount(vitals), "no server was queried yet")
	vitals.Set("datacenter dc1", Pulse{KnownLeader: true, LastContact: 20 * time.Millisecond})
	vitals.Set("datacenter dc2", Pulse{LastContact: 3 * time.Second})
	vitals.Set("datacenter dc3", Pulse{KnownLeader: true})
	require.NoError(t, testutil.CollectAndCompare(vitals, strings.NewReader(`
		# HELP tributary_consul_known_leader Whether the server that answers knows a leader (1), as last asked.
		# TYPE tributary_consul_known_leader gauge
		tributary_consul_known_leader 0
		# HELP tributary_consul_last_contact_seconds How long ago the server that answers heard of its leader, as last asked.
		# TYPE tributary_consul_last_contact_seconds gauge
		tributary_consul_last_contact_seconds 3
	`)))
	vitals.Set("datacenter dc2", Pulse{KnownLeader: true})
	require.NoError(t, testutil.CollectAndCompare(vitals, strings.NewReader(`
		# HELP tributary_consul_known_leader Whether the server that answers knows a leader (1), as last asked.
		# TYPE tributary_consul_known_leader gauge
		tributary_consul_known_leader 1
	`), "tributary_consul_known_leader"))
}
