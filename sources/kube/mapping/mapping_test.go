package mapping_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/kube/mapping"
	"tributary/sources/sourcetest"
)

// example is a file of testdata: options, and objects of a cluster.
type example struct {
	Why     string
	Options mapping.Options
	Objects []json.RawMessage
}

func TestGolden(t *testing.T) {
	sourcetest.RunGolden(t, func(t *testing.T, g example) string {
		var builder strings.Builder
		fmt.Fprintf(&builder, "# %s\n", g.Why)
		inputs := inputsOf(t, g.Objects)
		rand.Shuffle(len(inputs[0].Slices), func(i, j int) {
			inputs[0].Slices[i], inputs[0].Slices[j] = inputs[0].Slices[j], inputs[0].Slices[i]
		})
		for _, input := range inputs {
			content := mapOne(t, g.Options, input)
			for _, l := range content.LeftOut {
				fmt.Fprintf(&builder, "# left out: %s\n", l)
			}
			builder.WriteString(sourcetest.Show(t, content.Resources, content.Warnings...))
		}
		return builder.String()
	})
}

func inputsOf(t require.TestingT, objects []json.RawMessage) (inputs []mapping.Input) {
	nodes := map[string]*mapping.Node{}
	read := func(raw json.RawMessage, into any) { require.NoError(t, json.Unmarshal(raw, into)) }
	kinds := map[string][]json.RawMessage{}
	for _, raw := range objects {
		var kind struct{ Kind string }
		read(raw, &kind)
		kinds[kind.Kind] = append(kinds[kind.Kind], raw)
	}
	for _, raw := range kinds["Node"] {
		var node mapping.Node
		var named struct{ Metadata struct{ Name string } }
		read(raw, &node)
		read(raw, &named)
		nodes[named.Metadata.Name] = &node
	}
	for _, raw := range kinds["Service"] {
		var service mapping.Service
		read(raw, &service)
		input := mapping.Input{Service: &service, Nodes: nodes}
		for _, raw := range kinds["EndpointSlice"] {
			var slice mapping.Slice
			read(raw, &slice)
			if slice.Meta.Labels.Service == service.Meta.Name {
				input.Slices = append(input.Slices, &slice)
			}
		}
		for _, raw := range kinds["ServiceExport"] {
			var e struct{ Metadata struct{ Name string } }
			read(raw, &e)
			input.Exported = input.Exported || e.Metadata.Name == service.Meta.Name
		}
		inputs = append(inputs, input)
	}
	return inputs
}

func mapOne(t require.TestingT, o mapping.Options, input mapping.Input) sources.Content {
	m, err := mapping.New(o, sourcetest.VIPs{}, "")
	require.NoError(t, err)
	content := m.Map(input)
	require.Empty(t, content.Rejects)
	for _, r := range content.Resources {
		_, err := resource.Validate(r)
		require.NoError(t, err)
	}
	return content
}

// TestAnyService has any Service: its objects must be valid, have each port once, and be the same in any order of
// slices.
func TestAnyService(t *testing.T) {
	text := func(t *rapid.T, choices ...string) string { return rapid.SampledFrom(choices).Draw(t, "text") }
	rapid.Check(t, func(t *rapid.T) {
		var service mapping.Service
		service.Meta.Namespace, service.Meta.Name = "shop", text(t, "reviews", "a-1", strings.Repeat("x", 63))
		service.Spec.Type = text(t, "ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
		service.Spec.ExternalName = text(t, "", "a.example", "10.0.0.1", "x.svc", "*")
		portNames := []string{"http", "tcp-a", "b"}
		for i := range rapid.IntRange(0, 3).Draw(t, "ports") {
			service.Spec.Ports = append(service.Spec.Ports, mapping.ServicePort{
				Name: portNames[i], Protocol: text(t, "TCP", "UDP", "SCTP"), Port: rapid.Uint32Range(80, 82).Draw(t, "port"),
			})
		}
		input := mapping.Input{Service: &service}
		for i := range rapid.IntRange(0, 4).Draw(t, "slices") {
			slice := &mapping.Slice{AddressType: text(t, "IPv4", "IPv6", "FQDN")}
			slice.Meta.Name = fmt.Sprint("s", i)
			var endpoints []map[string]any
			for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
				conditions, addresses := map[string]any{}, []string{}
				if a := text(t, "10.0.0.1", "10.0.0.2", "fd00::1", "fe80::1", "x", ""); a != "" {
					addresses = []string{a, "10.0.0.3"}
				}
				for _, c := range []string{"ready", "serving", "terminating"} {
					conditions[c] = rapid.SampledFrom([]*bool{nil, new(bool), new(true)}).Draw(t, "condition")
				}
				endpoints = append(endpoints, map[string]any{
					"addresses": addresses, "conditions": conditions, "zone": text(t, "", "z1", "z2"),
				})
			}
			raw, err := json.Marshal(map[string]any{"endpoints": endpoints, "ports": []map[string]any{
				{"name": text(t, portNames...), "protocol": text(t, "TCP", "UDP"), "port": rapid.Uint32Range(0, 3).Draw(t, "port")},
			}})
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, slice))
			input.Slices = append(input.Slices, slice)
		}
		o := mapping.Options{Region: "r", Endpoints: text(t, mapping.EndpointsPods, mapping.EndpointsNodePorts, mapping.EndpointsLoadBalancer)}
		content := mapOne(t, o, input)
		ports := map[uint32]bool{}
		for _, r := range content.Resources {
			spec, err := r.Spec()
			require.NoError(t, err)
			for _, p := range spec.(*networking.ServiceEntry).Ports {
				require.False(t, ports[p.Number])
				ports[p.Number] = true
			}
			for _, e := range spec.(*networking.ServiceEntry).Endpoints {
				require.Len(t, e.Ports, len(spec.(*networking.ServiceEntry).Ports), "otherwise the port of the Service would be called")
			}
		}
		rand.Shuffle(len(input.Slices), func(i, j int) { input.Slices[i], input.Slices[j] = input.Slices[j], input.Slices[i] })
		require.Equal(t, sourcetest.Show(t, content.Resources), sourcetest.Show(t, mapOne(t, o, input).Resources))
	})
}

func TestOptions(t *testing.T) {
	for want, options := range map[string]mapping.Options{
		"export: want all or serviceExports, got \"some\"":                {Export: "some"},
		"endpoints: want pods, nodePorts or loadBalancer, got \"inline\"": {Endpoints: "inline"},
		"hostTemplate: \"{service}.x\" must contain":                      {HostTemplate: "{service}.x"},
		"hostTemplate: unknown {cluster}":                                 {HostTemplate: "{service}.{namespace}.{cluster}"},
		"region: \"a/b\" is no region":                                    {Region: "a/b"},
		"vips: want tcp, all or none, got \"x\"":                          {VIPs: "x"},
	} {
		_, err := mapping.New(options, nil, "")
		require.ErrorContains(t, err, want)
	}
}

// TestWrongAddress: an invalid address removes no endpoint beside it.
func TestWrongAddress(t *testing.T) {
	input := mapping.Input{Service: new(mapping.Service), Slices: []*mapping.Slice{new(mapping.Slice)}}
	input.Service.Meta.Namespace, input.Service.Meta.Name, input.Service.Spec.Ports = "shop", "web", []mapping.ServicePort{{Port: 80}}
	require.NoError(t, json.Unmarshal([]byte(`{"ports": [{"port": 8080}], "endpoints": [
		{"addresses": ["10.0.0.1,10.0.0.2"]}, {"addresses": ["10.0.0.3"], "zone": "a"}]}`), input.Slices[0]))
	out := mapOne(t, mapping.Options{Region: "r"}, input)
	require.Len(t, out.LeftOut, 1)
	spec, err := out.Resources[0].Spec()
	require.NoError(t, err)
	require.Len(t, spec.(*networking.ServiceEntry).Endpoints, 1)
	require.Equal(t, "r/a", spec.(*networking.ServiceEntry).Endpoints[0].Locality)
}

// TestNodesOfOneAddress: several nodes have the same address; the mapping is the same each time.
func TestNodesOfOneAddress(t *testing.T) {
	input := mapping.Input{Service: new(mapping.Service), Nodes: make(map[string]*mapping.Node)}
	require.NoError(t, json.Unmarshal([]byte(`{"metadata": {"namespace": "shop", "name": "web"},
		"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}`), input.Service))
	for _, name := range []string{"a", "b", "c"} {
		input.Nodes[name] = new(mapping.Node)
		require.NoError(t, json.Unmarshal([]byte(`{"metadata": {"name": "`+name+`", "labels": {"topology.kubernetes.io/region": "`+name+`"}},
			"status": {"addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}], "conditions": [{"type": "Ready", "status": "True"}]}}`),
			input.Nodes[name]))
	}
	want := mapOne(t, mapping.Options{Endpoints: mapping.EndpointsNodePorts}, input)
	require.Len(t, want.Resources, 1)
	for range 50 {
		got := mapOne(t, mapping.Options{Endpoints: mapping.EndpointsNodePorts}, input)
		require.Equal(t, want.Resources[0].Version(), got.Resources[0].Version())
	}
}
