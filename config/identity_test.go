package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestIdentity has settings that change a source's identity, settings that change only its reading, and settings that
// change neither.
func TestIdentity(t *testing.T) {
	source := func(text string) config.Source {
		c, err := config.Parse("/etc/tributary/t.yaml", []byte("configSources: [{"+text+"}]"))
		require.NoError(t, err, text)
		return c.ConfigSources[0]
	}
	for _, scheme := range []struct {
		base                    string
		same, readings, another []string
	}{
		{
			"address: fs:///srv/rules",
			[]string{
				"name: other", "precedence: 5", "guard: off", "merge: endpoints", "quietDelay: 1s, maxDelay: 2s, rescanInterval: 1m",
				"maxFileBytes: 5", "defaultNamespace: default", "unknownFields: error", "foreignKinds: warn", "foreignKinds: error",
				"validation: enforce", "transform: {}", "partialStart: true", "emptyGrace: 5s",
			},
			[]string{
				"defaultNamespace: mesh", "unknownFields: warn", "domainSuffix: cluster.local", "validation: warn",
				"transform: {namespaces: {a: b}}", "transform: {labels: {add: {a: b}}}",
			},
			nil,
		},
		{
			"address: 'xds://a:1'",
			[]string{
				"partialStart: true",
				"tlsSettings: {mode: SIMPLE}, tokenFile: t", "mode: sotw", "resync: 2h", "maxMessageBytes: 5", "resync: 2h",
				"locality: a/b",
			},
			[]string{"transform: {namespaces: {a: b}}", "validation: warn"},
			[]string{"subscribedResources: [Gateway]", "revision: blue", "nodeMetadata: {a: b}", "nodeID: me"},
		},
		{
			"address: 'consul://a:1'",
			[]string{
				"stale: false", "wait: 1m", "resync: 1h", "grace: 1m", "resetHold: 1m", "rampRate: 3", "maxConcurrentWatches: 3",
				"requireConsistent: true, stale: false", "tokenFile: /t", "maxStale: 20s", "hostTemplate: '{service}.service.consul'",
				"aliases: datacenter",
				"namespace: consul", "vips: tcp", "strictChecks: [passing, warning]",
			},
			[]string{"transform: {namespaces: {a: b}}", "hostTemplate: '{service}.x'", "datacenters: [dc1]", "tags: [mesh]", "vips: none"},
			nil,
		},
		{
			"address: 'zookeeper://a:1'",
			[]string{
				"delay: 2s", "resync: 1h", "hold: 3m", "keepEmpty: 1h", "grace: 1m", "namespace: dubbo", "registerMode: all",
				"askProviders: true",
			},
			[]string{
				"transform: {namespaces: {a: b}}", "interfaces: [a.B]", "namespace: mesh", "vips: none", "askProviders: false", "subsets: version",
				"warmUp: 1m", "sidecars: {}",
			},
			nil,
		},
		{
			"address: 'zookeeper://a:1', sidecars: {label: app}",
			[]string{"hold: 3m"},
			nil, nil,
		},
		{
			"address: 'nacos://a:1?kind=services'",
			[]string{"delay: 2s", "interval: 3s", "keepEmpty: 1h", "namespace: nacos", "vips: tcp", "labelMeta: [version]"},
			[]string{"groups: [A]", "namespace: mesh", "vips: none"},
			nil,
		},
		{
			"address: 'k8s:///etc/kubeconfig'",
			[]string{"unknownFields: warn", "domainSuffix: cluster.local", "hold: 1m", "partialStart: true"},
			[]string{
				"unknownFields: error", "namespaces: [a]", "kinds: [VirtualService]", "labelSelector: a=b", "revision: blue", "domainSuffix: b.c",
				"services: {}", "derive: {}",
			},
			nil,
		},
		{
			"address: 'k8s://a:1', services: {}",
			[]string{"hold: 1m", "tokenFile: t", "tlsSettings: {mode: SIMPLE}"},
			[]string{"kinds: [none]"},
			nil,
		},
		{
			"address: 'consul-kv://a:1/b'",
			[]string{"wait: 1m", "tokenFile: /t", "defaultNamespace: default"},
			[]string{"defaultNamespace: mesh"},
			nil,
		},
	} {
		base := source(scheme.base)
		places, readings := map[string]bool{base.Identity(): true}, map[string]bool{base.Reading(): true}
		for _, setting := range scheme.same {
			s := source(scheme.base + ", " + setting)
			require.Equal(t, base.Identity(), s.Identity(), setting)
			require.Equal(t, base.Reading(), s.Reading(), setting)
		}
		for _, setting := range scheme.readings {
			s := source(scheme.base + ", " + setting)
			require.Equal(t, base.Identity(), s.Identity(), setting)
			require.False(t, readings[s.Reading()], setting)
			readings[s.Reading()] = true
		}
		for _, setting := range scheme.another {
			s := source(scheme.base + ", " + setting)
			require.False(t, places[s.Identity()], setting)
			places[s.Identity()] = true
		}
	}
	a, b := source("address: fs:///a/rules"), source("address: fs:///b/rules")
	require.NotEqual(t, a.Identity(), b.Identity())
	require.Regexp(t, `^rules-[0-9a-f]{16}$`, a.Identity())
	require.Regexp(t, `^[0-9a-f]{8}$`, a.Reading())
}

// TestIdentityOfPaths: a directory is one and the same however its path is written, and the same words are two directories where they
// mean two.
func TestIdentityOfPaths(t *testing.T) {
	identity := func(file, address string) string {
		c, err := config.Parse(file, []byte("configSources: [{name: rules, address: '"+address+"'}]"))
		require.NoError(t, err)
		return c.ConfigSources[0].Identity()
	}
	staging, prod := filepath.Join(t.TempDir(), "staging"), filepath.Join(t.TempDir(), "prod")
	require.NoError(t, os.Mkdir(staging, 0o700))
	require.NoError(t, os.Mkdir(prod, 0o700))
	t.Chdir(staging)
	atStaging := identity("tributary.yaml", "fs://./rules")
	require.Equal(t, atStaging, identity(staging+"/tributary.yaml", "fs://./rules"))
	require.Equal(t, atStaging, identity("/etc/tributary.yaml", "fs://"+staging+"/x/../rules/"))
	require.Equal(t, atStaging, identity("../staging/tributary.yaml", "fs://./rules"))
	t.Chdir(prod)
	require.NotEqual(t, atStaging, identity("tributary.yaml", "fs://./rules"))
}
