package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources/consul"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
	"tributary/sources/xds"
)

func TestConsulSettings(t *testing.T) {
	c := parsed(t, "/etc/tributary/t.yaml", `
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
`)
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
