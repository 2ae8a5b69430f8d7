package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/sources/consul/mapping"
)

// Services with names that make the same host keep different hosts across a restart.
func TestHostClash_PersistsAcrossRestart(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.set("web-api", "1")
		w.set("web_api", "2")
		served := func() (entries []string) {
			mapper, err := mapping.New(mapping.Options{}, nil)
			require.NoError(t, err)
			w.startWith(w, mapper)
			pass(time.Minute)
			w.stop()
			w.mu.Lock()
			defer w.mu.Unlock()
			for name, rs := range w.served {
				for _, resource := range rs {
					spec, err := resource.Spec()
					require.NoError(t, err)
					if se, ok := spec.(*networking.ServiceEntry); ok {
						entries = append(entries, fmt.Sprint(name, " ", resource.Key().Name, " ", se.GetHosts()))
					}
				}
			}
			return entries
		}
		before := served()
		require.Len(t, before, 2)
		w.mu.Lock()
		w.old = []string{"web-api", "web_api"}
		w.mu.Unlock()
		require.ElementsMatch(t, before, served())
	})
}
