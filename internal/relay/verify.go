package relay

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/resource"
	"tributary/server/verify"
	"tributary/server/xds"
)

// newWatches makes those who verify the istiods of a configuration.
func newWatches(all []config.Verify, view *aggregate.View, engine *xds.Server, log *slog.Logger, metrics prometheus.Registerer) (verify.Watches, error) {
	var watches verify.Watches
	for _, v := range all {
		watches = append(watches, verify.NewWatch(verify.Options{
			Istiod: verify.Istiod{URL: v.Istiod, Client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}},
			Every:  time.Duration(v.Every), Log: log,
			Served: func() verify.Served {
				return verify.Served{Objects: slices.Collect(view.Snapshot().All()), Asked: asked(engine.Clients())}
			},
		}))
	}
	return watches, metrics.Register(watches)
}

// asked says which kinds clients ask for.
func asked(clients []xds.ClientStatus) func(resource.Kind) bool {
	kinds := make(map[resource.Kind]bool)
	for _, c := range clients {
		for _, t := range c.Types {
			if parts := strings.Split(t.TypeURL, "/"); len(parts) == 3 {
				kinds[resource.Kind(parts[2])] = true
			}
		}
	}
	return func(kind resource.Kind) bool { return kinds[kind] }
}
