package envoy

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/resource"
	"tributary/server/envoy/model"
)

const observed = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec: {hosts: [echo.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: spans, namespace: default}
spec: {hosts: [spans.internal], exportTo: [default, shop, istio-system], ports: [{number: 9411, name: http, protocol: HTTP}], ` +
	`resolution: STATIC, endpoints: [{address: 10.0.0.2}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec: {selector: {app: one}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec:
  accessLogFormat: "mesh %PROTOCOL%"
  defaultConfig: {tracing: {sampling: 7, customTags: {b: {literal: {value: mesh}}}}}
  extensionProviders:
  - {name: Own, envoyFileAccessLog: {path: /var/log/own, logFormat: {labels: {code: "%RESPONSE_CODE%"}}}}
  - {name: zipkin, zipkin: {service: default/spans.internal, port: 9411}}
`

func telemetryText(name, namespace, spec string) string {
	return fmt.Sprintf("---\napiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", name,
		namespace, spec)
}

// managerOf returns the manager of HTTP on port 80 of a client.
func managerOf(t *testing.T, c *Catalog, n *corev3.Node) *hcmv3.HttpConnectionManager {
	t.Helper()
	for name, m := range dump(t, c, n) {
		if l, ok := m.(*listenerv3.Listener); ok && strings.HasSuffix(name, "_80") {
			manager := new(hcmv3.HttpConnectionManager)
			require.NoError(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager))
			return manager
		}
	}
	t.Fatal("no listener")
	return nil
}

// observedBy describes a client's access logs and tracing.
func observedBy(t *testing.T, c *Catalog, n *corev3.Node) string {
	t.Helper()
	m := managerOf(t, c, n)
	var logs []string
	for _, accessLog := range m.GetAccessLog() {
		file := new(filev3.FileAccessLog)
		require.NoError(t, accessLog.GetTypedConfig().UnmarshalTo(file))
		text := file.GetPath() + " " + file.GetLogFormat().GetTextFormatSource().GetInlineString()
		for k, v := range file.GetLogFormat().GetJsonFormat().GetFields() {
			text += k + "=" + v.GetStringValue()
		}
		if f := accessLog.GetFilter().GetExtensionFilter(); f != nil {
			expression := new(celv3.ExpressionFilter)
			require.NoError(t, f.GetTypedConfig().UnmarshalTo(expression))
			text += " if " + expression.GetExpression()
		}
		logs = append(logs, strings.ReplaceAll(text, "\n", ""))
	}
	if tr := m.GetTracing(); tr != nil {
		text := fmt.Sprint(tr.GetProvider().GetName(), " ", tr.GetRandomSampling().GetValue())
		for _, tag := range tr.GetCustomTags() {
			text += " " + tag.GetTag() + "=" + tag.GetLiteral().GetValue()
		}
		logs = append(logs, text)
	}
	return strings.Join(logs, "; ")
}

// Telemetry of the root namespace, the namespace and the workload configure logs and traces, and each overrides the one
// before; with each change all listeners follow, including those of gateways.
func TestTelemetriesOverrideEachOther(t *testing.T) {
	s := newSteps(Options{})
	labelled, unlabelled, far := node("default", "", ""), node("default", "", ""), node("shop", "", "")
	unlabelled.Metadata.Fields[model.MetadataLabels] = structpb.NewStructValue(&structpb.Struct{})
	gateway := gatewayNode("default")
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, n := range []*corev3.Node{labelled, unlabelled, far, gateway} {
			got = append(got, observedBy(t, s.c, n))
		}
		require.Equal(t, want, got)
	}
	s.change(t, observed)
	expect("", "", "", "")

	s.change(t, telemetryText("root", "istio-system", "{accessLogging: [{providers: [{name: envoy}]}], tracing: [{providers: [{name: zipkin}]}]}"))
	const byMesh = "/dev/stdout mesh %PROTOCOL%"
	const traced = "; envoy.tracers.zipkin 7 b=mesh"
	expect(byMesh+traced, byMesh+traced, byMesh+traced, byMesh+traced)

	s.change(t, telemetryText("all", "default", "{accessLogging: [{providers: [{name: own}], filter: {expression: response.code >= 400}}], "+
		"tracing: [{randomSamplingPercentage: 50}]}"))
	const ownLog = "/var/log/own code=%RESPONSE_CODE% if response.code >= 400"
	const half = "; envoy.tracers.zipkin 50 b=mesh"
	expect(ownLog+half, ownLog+half, byMesh+traced, ownLog+half)

	s.change(t, telemetryText("one", "default", "{selector: {matchLabels: {app: one}}, accessLogging: [{disabled: true}], tracing: "+
		"[{disableSpanReporting: true}]}"))
	expect("", ownLog+half, byMesh+traced, "")

	s.change(t, telemetryText("one", "default", "{selector: {matchLabels: {app: one}}, accessLogging: [{match: {mode: SERVER}, disabled: true}], "+
		"tracing: [{customTags: {a: {literal: {value: x}}}}]}"))
	expect(ownLog+"; envoy.tracers.zipkin 50 a=x", ownLog+half, byMesh+traced, ownLog+"; envoy.tracers.zipkin 50 a=x")

	key := func(name, namespace string) resource.Key {
		return resource.Key{Kind: resource.Telemetry, Namespace: namespace, Name: name}
	}
	// Envoy refuses a tracer with a missing cluster
	s.change(t, "", resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "spans"})
	expect(ownLog, ownLog, byMesh, ownLog)
	require.Contains(t, strings.Join(s.c.WithoutEffect(s.table.Snapshot().Get(key("root", "istio-system"))), "\n"),
		"spec.tracing[0].providers has no effect on Envoys: provider zipkin: there is no service default/spans.internal here: "+
			"nothing is traced")

	s.change(t, "", key("one", "default"), key("all", "default"), key("root", "istio-system"))
	expect("", "", "", "")
	s.change(t, "apiVersion: core/v1alpha1\nkind: MeshConfig\nmetadata: {name: istio}\nspec: {accessLogFile: /var/log/all, accessLogEncoding: "+
		"JSON, accessLogFormat: '{\"p\": \"%PROTOCOL%\"}', enableTracing: true}\n")
	for _, n := range []*corev3.Node{labelled, far, gateway} {
		require.Equal(t, "/var/log/all p=%PROTOCOL%; "+" 1", observedBy(t, s.c, n))
	}
}

// Accepted log settings cause no findings: e2e checks the same settings with a real Envoy.
func TestAccessLog_AcceptedSettings(t *testing.T) {
	table := meshOf(t, "logs.yaml")
	findings, err := Findings(table)
	require.NoError(t, err)
	for r := range table.Snapshot().All() {
		require.Empty(t, findings(r), r.Key())
	}
	require.Contains(t, observedBy(t, catalogOfTable(table), node("default", "", "")), "%STREAM_ID%")
}
