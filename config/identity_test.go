package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestIdentity holds what makes another source of one, and what does not.
func TestIdentity(t *testing.T) {
	identity := func(source string) string {
		c, err := config.Parse("/etc/tributary/t.yaml", []byte("configSources: [{"+source+"}]"))
		require.NoError(t, err, source)
		return c.ConfigSources[0].Identity()
	}
	for _, scheme := range []struct {
		base          string
		same, differs []string
	}{
		{
			"address: fs:///srv/rules",
			[]string{
				"name: other", "precedence: 5", "guard: off", "merge: endpoints", "quietDelay: 1s, maxDelay: 2s, rescanInterval: 1m",
				"maxFileBytes: 5",
			},
			[]string{"defaultNamespace: mesh", "unknownFields: warn", "transform: {namespaces: {a: b}}"},
		},
		{
			"address: 'xds://a:1'",
			[]string{"tlsSettings: {mode: SIMPLE}, tokenFile: t", "mode: sotw", "cacheDir: /c", "resync: 2h", "maxMessageBytes: 5", "resync: 2h", "locality: a/b"},
			[]string{"subscribedResources: [Gateway]", "revision: blue", "nodeMetadata: {a: b}", "nodeID: me", "transform: {namespaces: {a: b}}"},
		},
		{
			"address: 'consul://a:1'",
			[]string{"stale: false", "wait: 1m", "resync: 1h", "grace: 1m", "resetHold: 1m", "rampRate: 3", "maxConcurrentWatches: 3", "requireConsistent: true, stale: false", "tokenFile: /t"},
			[]string{"hostTemplate: '{service}.x'", "datacenters: [dc1]", "tags: [mesh]", "vips: none"},
		},
		{
			"address: 'zookeeper://a:1'",
			[]string{"delay: 2s", "resync: 1h", "hold: 3m", "keepEmpty: 1h", "grace: 1m"},
			[]string{"interfaces: [a.B]", "namespace: mesh", "vips: none"},
		},
		{
			"address: 'consul-kv://a:1/b'",
			[]string{"wait: 1m", "tokenFile: /t"},
			[]string{"defaultNamespace: mesh"},
		},
	} {
		seen := map[string]string{identity(scheme.base): ""}
		for _, more := range scheme.same {
			require.Contains(t, seen, identity(scheme.base+", "+more), more)
		}
		for _, more := range scheme.differs {
			id := identity(scheme.base + ", " + more)
			require.NotContains(t, seen, id, more)
			seen[id] = more
		}
	}
	require.NotEqual(t, identity("address: fs:///a/rules"), identity("address: fs:///b/rules"))
	require.Regexp(t, `^rules-[0-9a-f]{16}$`, identity("address: fs:///srv/rules"))
}
