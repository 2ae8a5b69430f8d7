package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"

	"tributary/e2e/fixture"
	"tributary/server/xds"
)

// TestReplicasAgree has an istiod behind each of two tributaries that learn of the same rules in opposite order. Of rules that
// want the same host, both use the one of the first source; of one source, the first by name; and one that names a time
// of creation is the last.
func TestReplicasAgree(t *testing.T) {
	t.Parallel()
	const ( // hosts
		sources = "sources.mesh.internal"
		names   = "names.mesh.internal"
		times   = "times.mesh.internal"
	)
	files := []struct{ dir, name, content string }{
		{"second", "sources.yaml", rule("a-of-second", sources, "")},
		{"first", "sources.yaml", rule("b-of-first", sources, "")},
		{"first", "names.yaml", rule("a", names, "")},
		{"first", "more-names.yaml", rule("b", names, "")},
		{"second", "times.yaml", rule("undated", times, "")},
		{"first", "times.yaml", rule("dated", times, "2026-01-02T03:04:05Z")},
	}
	want := map[string]string{sources: "b-of-first", names: "a", times: "undated"}

	var istiods []*fixture.Istiod
	for replica := range 2 {
		dir := t.TempDir()
		first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
		for _, d := range []string{first, second} {
			require.NoError(t, os.Mkdir(d, 0o700))
		}
		for _, host := range []string{"sources", "names", "times"} {
			write(t, first, host+"-host.yaml", serviceEntry(host, 80))
		}
		tributary := fixture.StartTributary(t, fixture.Files("first", first), fixture.Files("second", second))
		istiod := tributary.StartIstiod(t)
		for i := range files {
			f := files[i]
			if replica == 1 {
				f = files[len(files)-1-i]
			}
			write(t, filepath.Join(dir, f.dir), f.name, f.content)
			istiod.AwaitFolders(t, first, second)
			time.Sleep(1100 * time.Millisecond) // istiod counts seconds: later objects are younger, if istiod compares their ages
		}
		istiods = append(istiods, istiod)
	}
	for _, istiod := range istiods {
		istiod.Await(t, func() error {
			got := routes(t, istiod)
			for host, name := range want {
				if got[host] != name {
					return fmt.Errorf("the routes in force are %v, want %v", got, want)
				}
			}
			return nil
		})
	}
	require.Equal(t, routes(t, istiods[0]), routes(t, istiods[1]))
}

// TestEarlierSourceKeepsHost has an istiod with a client in another namespace than two ServiceEntries with one host, of
// two sources: it gets the endpoints of the first source, for any order of times, and so does an Envoy of tributary.
func TestEarlierSourceKeepsHost(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	entry := func(namespace, host, address, created string) string {
		if created != "" {
			created = ", creationTimestamp: " + created
		}
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s%s}
spec:
  hosts: [%s]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: %s}]
`, strings.ReplaceAll(host, ".", "-"), namespace, created, host, address)
	}
	const old, young = "2025-01-02T03:04:05Z", "2026-01-02T03:04:05Z"
	hosts := []string{}
	for name, times := range map[string][2]string{
		"dated": {young, ""}, "younger": {young, old}, "older": {old, young}, "undated": {"", ""}, "registry": {"", old},
	} {
		host := name + ".prod.svc.cluster.local"
		hosts = append(hosts, host)
		write(t, first, name+".yaml", entry("prod", host, "10.0.0.1", times[0]))
		write(t, second, name+".yaml", entry("dubbo", host, "10.0.0.2", times[1]))
	}
	tributary := fixture.StartTributary(t, fixture.Files("k8s", first), fixture.Files("zookeeper", second))
	tributary.AwaitReady(t)
	istiod := tributary.StartIstiod(t)
	istiod.AwaitFolders(t, first, second)
	istiod.Await(t, func() error {
		for _, server := range []string{istiod.GRPC, tributary.XDS} {
			stream := fixture.OpenStream(t, server, "sidecar~127.0.0.1~vm1.shop~shop.svc.cluster.local")
			var names []string
			for _, host := range hosts {
				names = append(names, "outbound|80||"+host)
			}
			stream.Send(t, &discoveryv3.DiscoveryRequest{TypeUrl: xds.EndpointURL, ResourceNames: names})
			answered := stream.Next(t).GetResources()
			if len(answered) != len(hosts) {
				return fmt.Errorf("%s has %d of %d clusters", server, len(answered), len(hosts))
			}
			for _, a := range answered {
				if text := prototext.Format(a); !strings.Contains(text, "10.0.0.1") || strings.Contains(text, "10.0.0.2") {
					return fmt.Errorf("%s: %s", server, text)
				}
			}
		}
		return nil
	})
}

// rule is a VirtualService with a route of its own name.
func rule(name, host, created string) string {
	if created != "" {
		created = ", creationTimestamp: " + created
	}
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop%[3]s}
spec: {hosts: [%[2]s], http: [{name: %[1]s, route: [{destination: {host: %[2]s}}]}]}
`, name, host, created)
}

// routes are the names of the routes that istiod would have a sidecar use, by host.
func routes(t *testing.T, istiod *fixture.Istiod) map[string]string {
	t.Helper()
	stream := fixture.OpenStream(t, istiod.GRPC, "sidecar~127.0.0.1~vm1.shop~shop.svc.cluster.local")
	stream.Send(t, &discoveryv3.DiscoveryRequest{TypeUrl: xds.RouteURL, ResourceNames: []string{"80"}})
	names := make(map[string]string)
	for _, a := range stream.Next(t).GetResources() {
		var config routev3.RouteConfiguration
		require.NoError(t, a.UnmarshalTo(&config))
		for _, host := range config.GetVirtualHosts() {
			for _, domain := range host.GetDomains() {
				names[domain] = host.GetRoutes()[0].GetName()
			}
		}
	}
	return names
}
