package consul

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/sources/consul/mapping"
)

// Services with names that make the same host keep different hosts across a restart.
func TestHostClash_PersistsAcrossRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("web-api", instanceWithID("1")); f.set("web_api", instanceWithID("2")) })
		served := func() (entries []string) {
			settings := Settings{}
			require.NoError(t, settings.complete())
			mapper, err := mapping.New(mapping.Options{}, nil)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = newRun(settings, newSinkPublisher(w, mapper), w, 0, newMetrics()).loop(ctx)
			}()
			pass(time.Minute)
			stop()
			<-ended
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
