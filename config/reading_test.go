package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestReading has the settings that change the published objects, and those that do not.
func TestReading(t *testing.T) {
	source := func(text string) config.Source {
		c := parsed(t, "/etc/tributary/t.yaml", "configSources: [{"+text+"}]")
		return c.ConfigSources[0]
	}
	for _, scheme := range []struct {
		base          string
		same, another []string
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
		},
		{
			"address: 'xds://a:1'",
			[]string{
				"partialStart: true",
				"tlsSettings: {mode: SIMPLE}, tokenFile: t", "mode: sotw", "resync: 2h", "maxMessageBytes: 5", "resync: 2h",
				"locality: a/b",
			},
			[]string{
				"transform: {namespaces: {a: b}}", "validation: warn", "subscribedResources: [Gateway]",
				"revision: blue", "nodeMetadata: {a: b}", "nodeID: me",
			},
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
		},
		{
			"address: 'zookeeper://a:1', sidecars: {label: app}",
			[]string{"hold: 3m"},
			nil,
		},
		{
			"address: 'nacos://a:1?kind=services'",
			[]string{"delay: 2s", "interval: 3s", "keepEmpty: 1h", "namespace: nacos", "vips: tcp", "labelMeta: [version]"},
			[]string{"groups: [A]", "namespace: mesh", "vips: none"},
		},
		{
			"address: 'k8s:///etc/kubeconfig'",
			[]string{"unknownFields: warn", "domainSuffix: cluster.local", "hold: 1m", "partialStart: true"},
			[]string{
				"unknownFields: error", "namespaces: [a]", "kinds: [VirtualService]", "labelSelector: a=b", "revision: blue", "domainSuffix: b.c",
				"services: {}", "derive: {}",
			},
		},
		{
			"address: 'k8s://a:1', services: {}",
			[]string{"hold: 1m", "tokenFile: t", "tlsSettings: {mode: SIMPLE}"},
			[]string{"kinds: [none]"},
		},
		{
			"address: 'consul-kv://a:1/b'",
			[]string{"wait: 1m", "tokenFile: /t", "defaultNamespace: default"},
			[]string{"defaultNamespace: mesh"},
		},
	} {
		base := source(scheme.base)
		readings := map[string]bool{base.Reading(): true}
		for _, more := range scheme.same {
			s := source(scheme.base + ", " + more)
			require.Equal(t, base.Reading(), s.Reading(), more)
		}
		for _, more := range scheme.another {
			s := source(scheme.base + ", " + more)
			require.False(t, readings[s.Reading()], more)
			readings[s.Reading()] = true
		}
	}
	a, b := source("address: fs:///a/rules"), source("address: fs:///b/rules")
	require.NotEqual(t, a.Reading(), b.Reading())
}

// TestReading_Paths: a directory is one and the same however its path is written, and the same words are two directories where they
// mean two.
func TestReading_Paths(t *testing.T) {
	reading := func(file, address string) string {
		c := parsed(t, file, "configSources: [{name: rules, address: '"+address+"'}]")
		return c.ConfigSources[0].Reading()
	}
	staging, prod := filepath.Join(t.TempDir(), "staging"), filepath.Join(t.TempDir(), "prod")
	require.NoError(t, os.Mkdir(staging, 0o700))
	require.NoError(t, os.Mkdir(prod, 0o700))
	t.Chdir(staging)
	atStaging := reading("tributary.yaml", "fs://./rules")
	require.Equal(t, atStaging, reading(staging+"/tributary.yaml", "fs://./rules"))
	require.Equal(t, atStaging, reading("/etc/tributary.yaml", "fs://"+staging+"/x/../rules/"))
	require.Equal(t, atStaging, reading("../staging/tributary.yaml", "fs://./rules"))
	t.Chdir(prod)
	require.NotEqual(t, atStaging, reading("tributary.yaml", "fs://./rules"))
}
