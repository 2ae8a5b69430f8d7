package extend

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	extensionsv1alpha1 "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	sigsyaml "sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// read decodes a value that is written as YAML, and may refer to testdata/values.yaml.
func read[T any](t testing.TB, value T, text string) T {
	t.Helper()
	var document struct{ Value json.RawMessage }
	text = "value:\n " + strings.ReplaceAll(text, "\n", "\n ")
	if strings.Contains(text, "*") {
		values, err := os.ReadFile("testdata/values.yaml")
		require.NoError(t, err)
		text = string(values) + text
	}
	require.NoError(t, sigsyaml.Unmarshal([]byte(text), &document), text)
	if message, ok := any(value).(proto.Message); ok {
		envoytest.Read(t, message, string(document.Value))
	} else {
		require.NoError(t, json.Unmarshal(document.Value, value))
	}
	return value
}

// fixture decodes a value of a file of testdata.
func fixture[T any](t testing.TB, value T, file string) T {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	return read(t, value, string(text))
}

func decoded(o model.Object[*networking.EnvoyFilter]) *Filter {
	return &Filter{Key: o.Key, Created: o.Created, Spec: Decode(o.Key, o.Spec)}
}

// extension is one of an EnvoyFilter with these patches.
func extension(t testing.TB, patches string) *model.Extension {
	t.Helper()
	object := decoded(model.Object[*networking.EnvoyFilter]{
		Key:  resource.Key{Kind: resource.EnvoyFilter, Namespace: "default", Name: "a"},
		Spec: read(t, &networking.EnvoyFilter{}, "configPatches:\n"+patches),
	})
	return ForProfile([]*Filter{object}, nil, model.Profile{}, nil)
}

const types = "type.googleapis.com/envoy.extensions.filters."

func texts(findings model.Findings) (lines []string) {
	for _, f := range findings {
		if f.Why != "" {
			lines = append(lines, strings.TrimPrefix(f.Field, "spec.configPatches")+" "+f.Why)
		}
	}
	return lines
}

// TestGoldens applies the patches of each case to its resource. An answer has the resource, or the patches and the added
// resources if there is none, and then the findings.
func TestGoldens(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/*.txtar", func(c *envoytest.Case) {
		if text := c.Text("plugin.yaml"); text != "" {
			plugin := object(resource.WasmPlugin, "shop", "a", 0, read(c, &extensionsv1alpha1.WasmPlugin{}, text))
			e := ForProfile(nil, []*WasmPlugin{&plugin}, model.Profile{}, knownCluster)
			answer := ""
			for _, p := range e.Plugins {
				answer = envoytest.YAML(c, p.Filter)
				require.Empty(c, model.Refused(p.Filter.(interface{ Validate() error })))
			}
			for _, f := range e.Findings {
				answer += f.Field + ": " + f.Why + "\n"
			}
			c.Expect("want", answer)
			return
		}
		e := extension(c, c.Text("patches.yaml"))
		findings := e.Findings
		context := networking.EnvoyFilter_PatchContext_value[cmp.Or(strings.TrimSpace(c.Text("context")), "GATEWAY")]
		p := New(e, networking.EnvoyFilter_PatchContext(context), &findings)
		answer, served := "", true
		if text := c.Text("listener.yaml"); text != "" {
			shared := read(c, &listenerv3.Listener{}, text)
			var listener *listenerv3.Listener
			listener, served = p.Listener(shared)
			answer = summary(c, listener)
			require.True(c, proto.Equal(read(c, &listenerv3.Listener{}, text), shared), "the listener is shared")
		} else if text = c.Text("routes.yaml"); text != "" {
			answer = routesSummary(p.Routes(read(c, &routev3.RouteConfiguration{}, text)))
		} else if text = c.Text("cluster.yaml"); text != "" {
			var cluster *clusterv3.Cluster
			cluster, served = p.Cluster(read(c, &clusterv3.Cluster{}, text), strings.Fields(c.Text("host"))...)
			answer = envoytest.YAML(c, cluster)
		} else {
			answer = strings.Join(patchesAndAdditions(e, &findings), "\n")
		}
		if !served {
			answer = "removed"
		}
		for _, f := range findings {
			answer = strings.TrimSpace(answer) + "\n" + strings.TrimPrefix(f.Field, "spec.configPatches") + " " + cmp.Or(f.Why, "has an effect")
		}
		c.Expect("want", strings.TrimSpace(answer)+"\n")
	})
}

// patchesAndAdditions describes the patches, and the resources that they add.
func patchesAndAdditions(e *model.Extension, findings *model.Findings) (lines []string) {
	for _, p := range e.Patches {
		name := ""
		if filter, isFilter := p.Value.(*hcmv3.HttpFilter); isFilter {
			name = filter.GetName() + " " + filter.GetTypedConfig().GetTypeUrl()
		}
		lines = append(lines, fmt.Sprint("patch ", strings.TrimPrefix(p.Field, "spec.configPatches"), " ", p.ApplyTo, " ", name))
	}
	for _, m := range Added(e, model.Sidecar, findings) {
		lines = append(lines, "added "+m.(namedMessage).GetName())
	}
	return lines
}

// summary is a listener in a line: its filters, its chains, theirs, and theirs of HTTP.
func summary(t testing.TB, listener *listenerv3.Listener) string {
	t.Helper()
	var b strings.Builder
	for _, f := range listener.GetListenerFilters() {
		b.WriteString(f.GetName() + " ")
	}
	for _, filterChain := range append(listener.GetFilterChains(), listener.GetDefaultFilterChain()) {
		if filterChain == nil {
			continue
		}
		b.WriteString("| " + filterChain.GetName() + ":")
		for _, f := range filterChain.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if f.GetTypedConfig().UnmarshalTo(m) != nil {
				b.WriteString(" " + f.GetName())
				continue
			}
			b.WriteString(" " + m.GetStatPrefix() + "(")
			for i, h := range m.GetHttpFilters() {
				b.WriteString(strings.Repeat(" ", min(i, 1)) + h.GetName())
			}
			b.WriteString(")")
		}
		b.WriteString(" ")
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(b.String()), "envoy.filters.http.", ""), "envoy.filters.network.", "")
}

// routesSummary is a route configuration in a line: its hosts, and the prefixes and timeouts of their routes.
func routesSummary(configuration *routev3.RouteConfiguration) string {
	var builder strings.Builder
	for _, v := range configuration.GetVirtualHosts() {
		builder.WriteString("| " + v.GetName() + ":")
		for _, r := range v.GetRoutes() {
			builder.WriteString(" " + r.GetMatch().GetPrefix())
			if d := r.GetRoute().GetTimeout(); d != nil {
				builder.WriteString(d.AsDuration().String())
			}
		}
		builder.WriteString(" ")
	}
	return builder.String()
}
