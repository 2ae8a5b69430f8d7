package kube

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/kube/kubetest"
)

var (
	modelSeeds = flag.Uint64("model.seeds", 12, "how many random histories TestModel goes through")
	modelFirst = flag.Uint64("model.first", 0, "the seed of the first one")
)

// TestModel makes random changes and faults. No object goes that was not deleted; at the end the served objects are
// those of the cluster.
func TestModel(t *testing.T) {
	faults := []kubetest.Fault{
		{Status: http.StatusForbidden},
		{Status: http.StatusUnauthorized},
		{Status: http.StatusNotFound},
		{Status: http.StatusGone},
		{Status: http.StatusInternalServerError},
		{Status: http.StatusForbidden, ListsOnly: true},
		{Partial: true, Event: http.StatusGone},
		{Expired: true},
		{Event: http.StatusGone},
		{Silent: true},
		{Behind: 4, Event: http.StatusGone},
		{Behind: 2},
	}
	for seed := *modelFirst; seed < *modelFirst+*modelSeeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same cases each time
			server := istioServer(t)
			served, deleted, revision := make(map[string]int), make(map[string]int), 0
			s := func() *Source {
				s := quick(t, server, Settings{Hold: time.Hour})
				s.settleTime = time.Hour // an older revision is ignored
				return s
			}
			r := start(t, server, s()).synced()
			for range 150 {
				name := fmt.Sprint("o", random.IntN(7))
				switch n := random.IntN(20); {
				case n < 9:
					revision++
					served[name] = 80 + revision
					put(server, revision, name)
				case n < 12:
					if served[name] > 0 {
						deleted[name]++
						delete(served, name)
					}
					server.Delete(entries, "shop", name)
				case n < 15:
					server.Fault(entries, faults[random.IntN(len(faults))])
					server.Cut()
				case n == 15:
					server.Heal()
					server.Cut()
				case n == 16:
					server.Compact()
				case n == 17:
					server.Down(true)
					time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
					server.Down(false)
				case n == 18 && random.IntN(3) == 0: // the server starts again, and lists its CRDs only later
					server.Unlist(entries)
					server.Cut()
					time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
					if random.IntN(2) == 0 {
						r.Use(s())
					}
					server.Unlist()
				case n == 18:
					r.Use(s())
				default:
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
				}
			}
			server.Heal()
			server.Cut()
			r.Await("it serves the objects of the cluster", func() bool { return fmt.Sprint(r.ports()) == fmt.Sprint(served) })
			r.AwaitState(sources.Healthy, "")
			for _, key := range r.table.went() {
				deleted[key.Name]--
				require.GreaterOrEqual(t, deleted[key.Name], 0, "%s went more often than it was deleted", key)
			}
		})
	}
}

// ports returns the port of each ServiceEntry that is served, which says its revision.
func (r *rig) ports() map[string]int {
	ports := make(map[string]int)
	for o := range r.table.Snapshot().List(resource.ServiceEntry, "") {
		spec, err := o.Spec()
		require.NoError(r.T, err)
		ports[o.Key().Name] = int(spec.(*networking.ServiceEntry).Ports[0].Number)
	}
	return ports
}
