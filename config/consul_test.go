package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources/consul"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
	"tributary/sources/xds"
)

func TestConsulSettings(t *testing.T) {
	c, err := config.Parse("/etc/tributary/t.yaml", []byte(`
configSources:
- address: consul+https://consul.example:8501?dc=dc1
  tlsSettings: {mode: SIMPLE, caCertificates: ca.pem}
  tokenFile: token
  datacenters: [dc1, dc2]
  namespaces: [n]
  partitions: [p]
  peers: [x]
  services: [web*]
  skip: [web-old]
  tags: [mesh]
  filter: ServiceMeta.a == b
  healthFilter: Node.Meta.c == d
  stale: false
  requireConsistent: true
  wait: 1m
  maxConcurrentWatches: 500
  rampRate: 20
  resync: 1h
  grace: 1m30s
  resetHold: 20m
  hostTemplate: "{service}.{datacenter}.example"
  aliases: none
  namespace: mesh
  protocolMeta: proto
  defaultProtocol: http
  servicePort: 80
  servicePortMeta: port
  tagSeparators: ["="]
  labelTags: [canary]
  labelPrefix: consul/
  localityFrom: [meta, datacenter]
  taggedAddress: wan
  strictChecks: [passing]
  endpoints: workloadEntries
  vips: all
`))
	require.NoError(t, err)
	no := false
	require.Equal(t, consul.Settings{
		Datacenters: []string{"dc1", "dc2"}, Namespaces: []string{"n"}, Partitions: []string{"p"}, Peers: []string{"x"},
		Services: []string{"web*"}, Skip: []string{"web-old"}, Tags: []string{"mesh"},
		Filter: "ServiceMeta.a == b", HealthFilter: "Node.Meta.c == d",
		Stale: &no, RequireConsistent: true, Wait: time.Minute, MaxConcurrentWatches: 500, RampRate: 20,
		Resync: time.Hour, Grace: 90 * time.Second, ResetHold: 20 * time.Minute,
		TokenFile: "/etc/tributary/token", TLS: &xds.TLS{Mode: "SIMPLE", CACertificates: "/etc/tributary/ca.pem"},
		Mapping: mapping.Options{
			MappingOptions: registry.MappingOptions{
				HostTemplate: "{service}.{datacenter}.example", Namespace: "mesh", ProtocolMeta: "proto", DefaultProtocol: "http",
				ServicePort: 80, ServicePortMeta: "port", VIPs: "all",
			},
			Aliases: "none", TagSeparators: []string{"="},
			Tags: []string{"canary"}, LabelPrefix: "consul/", LocalityFrom: []string{"meta", "datacenter"}, TaggedAddress: "wan",
			StrictChecks: []string{"passing"}, Endpoints: "workloadEntries",
		},
	}, c.ConfigSources[0].Settings.(*config.Consul).Source())
}

func TestConsulNames(t *testing.T) {
	for address, want := range map[string]string{
		"consul://127.0.0.1:8500":      "127.0.0.1-8500",
		"consul+https://c.example:443": "c.example-443",
		"consul:///":                   "consul",
		"consul+https:///":             "consul",
	} {
		c, err := config.New("test", config.Config{ConfigSources: []config.Source{{Address: address}}})
		require.NoError(t, err, address)
		require.Equal(t, want, c.ConfigSources[0].Name)
	}
}

func TestConsulSettings_Invalid(t *testing.T) {
	_, err := config.Parse("t.yaml", []byte(`
configSources:
- {address: "consul://a", name: a}
- {address: "consul://a:1", name: b, wait: 1h}
- {address: "consul://a:1", name: c, subscribedResources: [], quietDelay: 1s, mode: sotw, tokenFile: x}
- {address: "fs:///d", name: d, peers: [x]}
- {address: "xds://a:1", name: e, stale: true}
- address: consul://a:1
  name: f
  datacenters:
  - dc1
  - dc1
- {address: "consul://a:1", name: g, stale: maybe}
- {address: "consul://a:1", name: h, hostTemplate: "{nothing}"}
- {address: "consul://a:1", name: i, labelTags: [""]}
- {address: "consul+https://a:1", name: j, tlsSettings: {mode: DISABLE}}
`))
	var e *config.Error
	require.ErrorAs(t, err, &e)
	for i, line := range strings.Split(e.Error(), "\n") {
		want := []string{
			"t.yaml:3:13: configSources[0].address: ",
			"t.yaml:4:44: configSources[1].wait: want 1s to 10m0s, got 1h0m0s",
			"t.yaml:5:38: configSources[2].subscribedResources: not for consul addresses",
			"t.yaml:5:63: configSources[2].quietDelay: not for consul addresses",
			"t.yaml:5:79: configSources[2].mode: not for consul addresses",
			"t.yaml:6:33: configSources[3].peers: not for fs addresses",
			"t.yaml:7:35: configSources[4].stale: not for xds addresses",
			"t.yaml:11:3: configSources[5].datacenters: dc1 is there twice",
			"t.yaml:13:45: configSources[6].stale: want true or false",
			"t.yaml:14:52: configSources[7].hostTemplate: ",
			"t.yaml:15:49: configSources[8].labelTags: ",
			"t.yaml:16:64: configSources[9].tlsSettings.mode: ",
		}
		require.Less(t, i, len(want), line)
		assert.True(t, strings.HasPrefix(line, want[i]), line)
	}
}
