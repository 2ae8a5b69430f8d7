package extend

import (
	"os"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/envoy/model"
)

// extensionOf has EnvoyFilters of a namespace and of the root namespace.
func extensionOf(t *testing.T, guards bool, patches map[string][]string) *model.Extension {
	t.Helper()
	var filters []*Filter
	for _, namespace := range []string{"default", model.RootNamespace} {
		if len(patches[namespace]) > 0 {
			filters = append(filters, decoded(model.Object[*networking.EnvoyFilter]{
				Key:  resource.Key{Kind: resource.EnvoyFilter, Namespace: namespace, Name: "a"},
				Spec: read(t, &networking.EnvoyFilter{}, "configPatches:\n- "+strings.Join(patches[namespace], "\n- ")),
			}))
		}
	}
	e := ForProfile(filters, nil, model.Profile{}, nil)
	e.Guards = guards
	require.Empty(t, texts(e.Findings))
	return e
}

// patchSecured returns the secured listener with patches, or nil, and the findings.
func patchSecured(t *testing.T, guards bool, patches map[string][]string) (*listenerv3.Listener, []string) {
	t.Helper()
	var findings model.Findings
	e := extensionOf(t, guards, patches)
	l, served := New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Listener(fixture(t, &listenerv3.Listener{}, "secured.yaml"))
	if !served {
		return nil, texts(findings.Sorted())
	}
	return l, texts(findings.Sorted())
}

// A patch that bypasses policies is left out if it is of the Envoy's own namespace and only the root namespace may do so.
func TestGuard_PatchesOfNamespaces(t *testing.T) {
	t.Parallel()
	unpatched := fixture(t, &listenerv3.Listener{}, "secured.yaml")
	for _, patch := range patchTexts(t, "bypassing.yaml") {
		for _, namespace := range []string{"default", model.RootNamespace} {
			for _, guards := range []bool{false, true} {
				l, findings := patchSecured(t, guards, map[string][]string{namespace: {patch}})
				guarded := guards && namespace == "default"
				require.Equal(t, guarded, l != nil && proto.Equal(unpatched, l), "%s in %s, %v: %v", patch, namespace, guards, findings)
				if guarded {
					require.Equal(t, []string{"[0] " + rootOnly}, findings, patch)
				} else {
					require.NotContains(t, strings.Join(findings, "\n"), rootOnly, patch)
				}
			}
		}
	}
	for _, patch := range patchTexts(t, "allowed.yaml") {
		open, _ := patchSecured(t, false, map[string][]string{"default": {patch}})
		l, findings := patchSecured(t, true, map[string][]string{"default": {patch}})
		require.True(t, proto.Equal(open, l), "%s: %v", patch, findings)
		require.False(t, proto.Equal(unpatched, l), patch)
		require.NotContains(t, strings.Join(findings, "\n"), rootOnly, patch)
	}
}

// Two patches that bypass policies in turns are both left out, with patches of the root namespace and harmless ones between them.
func TestGuard_PairsOfPatches(t *testing.T) {
	testutil.OneGoroutine(t)
	t.Parallel()
	patches := patchTexts(t, "bypassing.yaml")
	const inserted = "{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: *asking}}"
	const removed = "{applyTo: HTTP_FILTER, match: *subTokens, patch: {operation: REMOVE}}"
	harmless := patchTexts(t, "allowed.yaml")[0]
	for _, root := range [][]string{nil, {inserted}, {removed}} {
		expected, _ := patchSecured(t, true, map[string][]string{"default": {harmless}, model.RootNamespace: root})
		for i, first := range patches {
			for _, next := range []int{1, 7, 23} {
				second := patches[(i+next)%len(patches)]
				l, findings := patchSecured(t, true, map[string][]string{
					"default": {first, harmless, second}, model.RootNamespace: root,
				})
				require.True(t, proto.Equal(expected, l), "%s, %s: %v", first, second, findings)
			}
		}
	}
}

// Listeners without policies and routes without configuration of filters are patched without the guard. Patches above
// the measured number are left out if some bypass policies, and so are patches that Envoy would refuse.
func TestGuard_Limits(t *testing.T) {
	t.Parallel()
	var findings model.Findings
	text, err := os.ReadFile("testdata/secured.yaml")
	require.NoError(t, err)
	open := strings.NewReplacer("*asking, *tokens, *rbac, ", "", "*secureTCP, ", "", "*secureTLS", "null").Replace(string(text))
	bypassing := patchTexts(t, "bypassing.yaml")
	for _, patch := range patchTexts(t, "allowed.yaml") {
		e := extensionOf(t, true, map[string][]string{"default": {
			patch, bypassing[0], "{applyTo: FILTER_CHAIN, match: {listener: {filterChain: {name: mail}}}, patch: {operation: REMOVE}}",
		}})
		_, served := New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Listener(read(t, &listenerv3.Listener{}, open))
		require.True(t, served)
		require.NotContains(t, strings.Join(texts(findings), "\n"), rootOnly, patch)
	}
	for _, patch := range bypassing {
		if strings.Contains(patch, "typed_per_filter_config") {
			routes := `{name: "80", virtual_hosts: [{name: v, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: a}}]}]}`
			before := read(t, &routev3.RouteConfiguration{}, routes)
			e := extensionOf(t, true, map[string][]string{"default": {patch}})
			require.True(t, proto.Equal(before, New(e, networking.EnvoyFilter_SIDECAR_INBOUND, &findings).Routes(before)), patch)
		}
	}
	many := []string{"{applyTo: HTTP_FILTER, match: *subBuffer, patch: {operation: MERGE, value: {name: invalid, typed_config: " +
		`{"@type": ` + types + "http.buffer.v3.Buffer, max_request_bytes: 0}}}}"}
	for range maxMeasured {
		many = append(many, "{applyTo: LISTENER, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 7}}}")
	}
	unpatched := fixture(t, &listenerv3.Listener{}, "secured.yaml")
	limited := read(t, &listenerv3.Listener{}, "{per_connection_buffer_limit_bytes: 7}")
	unpatched.PerConnectionBufferLimitBytes = limited.PerConnectionBufferLimitBytes
	many = append(many, "{applyTo: HTTP_FILTER, match: *subRBAC, patch: {operation: REMOVE}}")
	l, _ := patchSecured(t, true, map[string][]string{"default": many})
	require.Equal(t, summary(t, unpatched), summary(t, l))
}

// Listeners that patches add have no policies.
func TestGuard_AddedListeners(t *testing.T) {
	t.Parallel()
	const added = "{applyTo: LISTENER, patch: {operation: ADD, value: {name: own, " +
		"address: {socket_address: {address: 0.0.0.0, port_value: 81}}, " +
		"filter_chains: [{filters: [*tcp]}]}}}"
	for namespace, guarded := range map[string]bool{"default": true, model.RootNamespace: false} {
		for _, guards := range []bool{false, true} {
			var findings model.Findings
			listeners := Added(extensionOf(t, guards, map[string][]string{namespace: {added}}), model.Sidecar, &findings)
			require.Equal(t, guards && guarded, len(listeners) == 0, "%s, %v: %v", namespace, guards, texts(findings))
		}
	}
}
