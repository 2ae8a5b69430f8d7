package consul

import (
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources/consul/consultest"
	"tributary/sources/consul/mapping"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
)

func TestFilter_ReadsSelectedLevels(t *testing.T) {
	named := func(want string) func(string) bool { return func(name string) bool { return name == want } }
	filter := Filter{Interfaces: named("com.acme.Demo"), Applications: named("shop")}
	require.True(t, filter.matches("com.acme.Demo", provider.OfInterfaces))
	require.True(t, filter.matches("shop", provider.OfApplications))
	require.False(t, filter.matches("com.acme.Other", provider.OfInterfaces))
	require.False(t, filter.matches("shop", provider.OfInterfaces))
	require.False(t, filter.matches("com.acme.Demo", provider.OfApplications))
	require.False(t, Filter{}.matches("shop", provider.OfInterfaces|provider.OfApplications))
}

// The providers of earlier runs that an answer lacks are lost. A provider of a listed application counts there, not for
// its interface.
func TestLost_CountsMissingProviders(t *testing.T) {
	const service = "com.acme.Demo"
	follower := &follower{
		registry: &Registry{listed: map[string]provider.Levels{"shop": provider.OfApplications}},
		before: map[string][]backend.PublishedProvider{service: {
			{Interface: service, Application: "bank", Address: "10.0.0.5", Port: 20880},
			{Interface: service, Application: "bank", Address: "10.0.0.6", Port: 20880},
			{Interface: service, Application: "shop", Address: "10.0.0.7", Port: 50051},
		}},
	}
	answer := func(hosts ...string) []mapping.Service {
		var entries []*api.ServiceEntry
		for _, host := range hosts {
			entries = append(entries, consultest.Provider(service, host, ""))
		}
		return []mapping.Service{{Name: service, Entries: entries}}
	}
	require.Zero(t, follower.Lost(service, answer("10.0.0.5", "10.0.0.6")))
	require.Equal(t, 1, follower.Lost(service, answer("10.0.0.6", "10.0.0.9")))
	require.Equal(t, 2, follower.Lost(service, nil))
	require.Zero(t, follower.Lost("com.acme.Other", nil))
}
