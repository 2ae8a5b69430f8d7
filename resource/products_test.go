package resource_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/resource"
)

// series is a list in YAML with n elements; # in the element is its number.
func series(n int, element string) string {
	var list []string
	for i := range n {
		list = append(list, strings.ReplaceAll(element, "#", fmt.Sprint(i)))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func TestCheckProducts(t *testing.T) {
	routes := func(hosts, routes int) string {
		return "VirtualService\nspec: {hosts: " + series(hosts, "a#.example.com") + ", http: " +
			series(routes, "{match: [{uri: {prefix: /p#}}], route: [{destination: {host: a}}]}") + "}"
	}
	ports := func(hosts, ports, endpoints int) string {
		return "ServiceEntry\nspec: {hosts: " + series(hosts, "a#.example.com") + ", ports: " +
			series(ports, "{number: 1#, name: p#, protocol: HTTP}") + ", endpoints: " + series(endpoints, "{address: 10.0.0.#}") + "}"
	}
	connections := func(hosts, routes int) string {
		return "VirtualService\nspec: {hosts: " + series(hosts, "a#.example.com") + ", tls: " +
			series(routes, "{match: [{sniHosts: [a#.example.com]}], route: [{destination: {host: a}}]}") + "}"
	}
	patches := func(n int) string {
		return "EnvoyFilter\nspec: {configPatches: " + series(n, "{applyTo: CLUSTER, patch: {operation: REMOVE}}") + "}"
	}
	for name, tt := range map[string]struct {
		object string
		most   int64
		want   string
	}{
		"2,000 hosts × 500 TLS routes": {
			connections(2000, 500), 0,
			"2000 hosts × 500 routes × 1 gateways are estimated at 4008 MB of memory: split the object, or raise limits.productBytes, " +
				"which is 268435456",
		},
		"2,000 hosts × 500 routes":     {routes(2000, 500), 0, "2000 hosts × 500 routes × 1 gateways are estimated at 2021 MB"},
		"500 hosts × 200 routes":       {routes(500, 200), 0, ""},
		"1,000 hosts × 2 ports":        {ports(1000, 2, 20), 0, ""},
		"one host × 10,000 routes":     {routes(1, 10_000), 0, ""},
		"500 hosts × 100 ports":        {ports(500, 100, 1), 0, "500 hosts × 100 ports × (1 endpoints + 0 addresses)"},
		"one host × 20,000 endpoints":  {ports(1, 2, 20_000), 0, ""},
		"100 hosts × ports, endpoints": {ports(100, 100, 100), 0, "100 hosts × 100 ports × (100 endpoints + 0 addresses)"},
		"1,000 patches":                {patches(1000), 0, ""},
		"6,000 patches":                {patches(6000), 0, "6000 patches"},
		"a raised limit":               {connections(2000, 500), 5 << 30, ""},
		"no limit":                     {connections(2000, 500), -1, ""},
		"a low limit":                  {routes(2, 2), 1000, "2 hosts × 2 routes × 1 gateways"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "apiVersion: networking.istio.io/v1alpha3\nmetadata: {name: a, namespace: default}\nkind: " + tt.object
			docs := resource.Decode("a.yaml", []byte(text), resource.Options{})
			require.Len(t, docs, 1)
			require.Empty(t, docs[0].Errors)
			err := resource.CheckProducts(docs[0].Resource, tt.most)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "a.yaml:1: ")
			_, err = resource.Lenient(nil, err)
			require.Error(t, err, "it is no rule of Istio's")
		})
	}
}

// The count of an object does not depend on the order of the fields in its body: a server may send them in any order.
func TestMultiplied_OrderOfFields(t *testing.T) {
	for _, object := range []string{
		"ServiceEntry\nspec: {resolution: STATIC, endpoints: [{address: 10.0.0.1}], hosts: " + series(80, "h#.example.com") +
			", ports: " + series(3, "{number: 8#, name: p#, protocol: HTTP}") + "}",
		"VirtualService\nspec: {hosts: " + series(80, "h#.example.com") + ", http: " +
			series(9, "{match: [{uri: {prefix: /p#}}], route: [{destination: {host: a}}]}") + "}",
		"VirtualService\nspec: {hosts: [a.example.com], http: " + series(9, "{delegate: {name: d}}") + "}",
	} {
		text := "apiVersion: networking.istio.io/v1\nmetadata: {name: a, namespace: default}\nkind: " + object
		docs := resource.Decode("a.yaml", []byte(text), resource.Options{})
		require.Empty(t, docs[0].Errors)
		original := docs[0].Resource
		lookup := func(resource.Key) *resource.Resource { return original }
		counted := resource.Multiplied(original, lookup)
		require.Positive(t, counted)
		var fields [][]byte
		for body := original.Body(); len(body) > 0; {
			_, _, size := protowire.ConsumeField(body)
			require.Positive(t, size)
			fields, body = append(fields, body[:size]), body[size:]
		}
		random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a test
		for range 20 {
			random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
			body := bytes.Join(fields, nil)
			require.Equal(t, counted, resource.Multiplied(resource.FromBody(resource.Meta{Key: original.Key()}, body), lookup))
		}
	}
}
