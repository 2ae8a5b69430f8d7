package verify_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/server/verify"
)

// The versions of a tributary: of a resource, and of all of a type.
const current, earlier, ofAll = "AAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCCC"

// bootstrapOf returns the section of a dump that has the node.
func bootstrapOf(api string) string {
	return `{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": {"node": {"id": "web", "metadata": ` +
		`{"NAMESPACE": "shop"}, "extensions": [{"name": "x"}]},
	 "static_resources": {"clusters": [{"name": "xds"}]}, "dynamic_resources": {"ads_config": {"api_type": ` +
		`"` + api + `"}, "cds_config": {"ads": {}}, "lds_config": {"ads": {}}}}},`
}

// servedDump is a dump that equals the served configuration. Each resource has a line.
const servedDump = `
{"@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "static_clusters": [{"cluster": {"@type": "x", "name": "xds"}}], ` +
	`"dynamic_active_clusters": [
 {"version_info": "AAAAAAAAAAAAAAAA", "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", ` +
	`"type": "EDS", "connect_timeout": "10s"}},
 {"version_info": "AAAAAAAAAAAAAAAA", "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b", ` +
	`"type": "STATIC"}}
]},
{"@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump", "dynamic_listeners": [
 {"name": "l", "active_state": {"version_info": "AAAAAAAAAAAAAAAA", "listener": {"@type": ` +
	`"type.googleapis.com/envoy.config.listener.v3.Listener", "name": "l", "filter_chains": [{"filters": [{"name": "http", ` +
	`"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", ` +
	`"rds": {"route_config_name": "80"}}}]}]}}}
]},
{"@type": "type.googleapis.com/envoy.admin.v3.RoutesConfigDump", "dynamic_route_configs": [
 {"version_info": "AAAAAAAAAAAAAAAA", "route_config": {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration", ` +
	`"name": "80", "virtual_hosts": [{"name": "v", "domains": ["v"]}]}}
]},
{"@type": "type.googleapis.com/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [
 {"name": "s", "version_info": "AAAAAAAAAAAAAAAA", "secret": {"@type": "type.googleapis.com/` +
	`envoy.extensions.transport_sockets.tls.v3.Secret", "tls_certificate": {"private_key": "[redacted]"}}}
]},
{"@type": "type.googleapis.com/envoy.admin.v3.EndpointsConfigDump", "dynamic_endpoint_configs": [
 {"endpoint_config": {"@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", "cluster_name": "a", ` +
	`"endpoints": [{"locality": {"region": "eu"}, "lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "10.0.0.1", ` +
	`"port_value": 80}}}, "health_status": "HEALTHY", "load_balancing_weight": 1}]}]}}
]}`

func dumped(parts ...string) []byte {
	return []byte(`{"configs": [` + strings.Join(parts, "") + `]}`)
}

// replaceText replaces a part of a dump.
func replaceText(t *testing.T, text, before, after string) string {
	t.Helper()
	require.Contains(t, text, before)
	return strings.ReplaceAll(text, before, after)
}

func TestCompareEnvoy_Findings(t *testing.T) {
	delta, sotw := bootstrapOf("DELTA_GRPC"), bootstrapOf("GRPC")
	isConnected := verify.Expected{Connected: true}
	rejects := func(refusals ...verify.Refusal) verify.Expected {
		return verify.Expected{Connected: true, Refusals: refusals}
	}
	onDemand := verify.Expected{Connected: true, OnDemand: true}
	const clusters, rds = "type.googleapis.com/envoy.config.cluster.v3.Cluster",
		"type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	vhds := func(text string) string { return replaceText(t, text, `"name": "80"`, `"name": "80", "vhds": {}`) }
	cut := func(text, from, to string) string { // removes the text between from and to
		i := strings.Index(text, from)
		require.GreaterOrEqual(t, i, 0)
		j := strings.Index(text[i:], to)
		require.GreaterOrEqual(t, j, 0)
		return text[:i] + text[i+j+len(to):]
	}
	const clusterB = ` {"version_info": "AAAAAAAAAAAAAAAA", "cluster": ` +
		`{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b"`
	withoutB := replaceText(t, cut(servedDump, clusterB, "\n"),
		"\"10s\"}},\n", "\"10s\"}}\n")
	olderB := replaceText(t, replaceText(t, servedDump, `"STATIC"`, `"STRICT_DNS"`),
		`"AAAAAAAAAAAAAAAA", "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b"`,
		`"`+earlier+`", "cluster": {"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b"`)
	foreign := replaceText(t, olderB, earlier, "2026/1")
	for name, testCase := range map[string]struct {
		expected verify.Expected
		ours     string
		theirs   []string
		want     []string
	}{
		"all is well": {isConnected, servedDump, []string{delta, servedDump}, nil},
		"by another version, but the same": {
			isConnected, servedDump,
			[]string{sotw, replaceText(t, servedDump, current, ofAll)},
			nil,
		},
		"health by Envoy alone": {
			isConnected, servedDump,
			[]string{delta, replaceText(t, servedDump, `"HEALTHY"`, `"UNHEALTHY"`)},
			nil,
		},
		"missing": {
			isConnected, servedDump,
			[]string{delta, withoutB},
			[]string{"missing Cluster b: it may be on its way; if it stays so, something in between holds it back"},
		},
		"missing, and not connected": {
			verify.Expected{},
			servedDump,
			[]string{delta, withoutB},
			[]string{"missing Cluster b: no client of its id is connected"},
		},
		"on demand": {onDemand, servedDump, []string{delta, withoutB}, nil},
		"not requested": {isConnected, servedDump, []string{replaceText(t, delta, `"cds_config": {"ads": {}}`,
			`"cds_config": {"path_config_source": {"path": "x"}}`), withoutB}, nil},
		"stale": {
			isConnected, servedDump,
			[]string{delta, olderB},
			[]string{"stale Cluster b: the Envoy has the earlier version " + earlier},
		},
		"stale, and gone": {
			isConnected, withoutB,
			[]string{delta, servedDump},
			[]string{"stale Cluster b: it is no longer served, and the Envoy still has it"},
		},
		"different": {
			isConnected, servedDump,
			[]string{delta, foreign},
			[]string{`different Cluster b: another server sent it, with version "2026/1"`},
		},
		"of our version, but not so": {
			isConnected, servedDump,
			[]string{delta, replaceText(t, servedDump, `"STATIC"`, `"STRICT_DNS"`)},
			[]string{"different Cluster b: the Envoy shows other content than it was sent"},
		},
		"extra": {
			isConnected, withoutB,
			[]string{delta, foreign},
			[]string{"extra Cluster b: another server sent it to this Envoy"},
		},
		"an endpoint that is gone": {
			isConnected, replaceText(t, servedDump, "10.0.0.1", "10.0.0.2"),
			[]string{delta, servedDump},
			[]string{"stale ClusterLoadAssignment a: the Envoy lacks 10.0.0.2:80; the Envoy still has 10.0.0.1:80"},
		},
		"a weight": {
			isConnected, replaceText(t, servedDump, `"load_balancing_weight": 1`, `"load_balancing_weight": 2`),
			[]string{delta, servedDump},
			[]string{"stale ClusterLoadAssignment a: the Envoy has otherwise 10.0.0.1:80"},
		},
		"one that is drained": {
			isConnected, replaceText(t, servedDump, `"HEALTHY"`, `"DRAINING"`),
			[]string{delta, servedDump},
			[]string{"stale ClusterLoadAssignment a: the Envoy has otherwise 10.0.0.1:80"},
		},
		"a secret": {
			isConnected, replaceText(t, servedDump, `{"name": "s", "version_info": "AAAAAAAAAAAAAAAA"`,
				`{"name": "s", "version_info": "`+earlier+`"`),
			[]string{delta, servedDump},
			[]string{"stale Secret s: the Envoy has the earlier version " + current},
		},
		"a secret, by all of them": {
			isConnected, servedDump,
			[]string{sotw, replaceText(t, servedDump, current, ofAll)},
			nil,
		},
		"a secret without its file": {
			isConnected, servedDump,
			[]string{
				delta,
				replaceText(t, servedDump, "dynamic_active_secrets", "dynamic_warming_secrets"),
			},
			[]string{"warming Secret s: it waits for resources that it refers to: files"},
		},
		"warming": {
			isConnected, servedDump,
			[]string{delta, replaceText(t, servedDump, `"active_state"`, `"warming_state"`)},
			[]string{"warming Listener l: it waits for resources that it refers to: routes, or secrets"},
		},
		"draining": {
			isConnected, replaceText(t, servedDump, `"name": "l", `, `"name": "m", `),
			[]string{delta, replaceText(t, replaceText(t, servedDump, `"name": "l", `, `"name": "m", `),
				`"dynamic_listeners": [`,
				`"dynamic_listeners": [{"name": "old", "draining_state": {"version_info": "x"}},`)},
			nil,
		},
		"rejected, as the dump has it": {
			isConnected, servedDump,
			[]string{
				delta,
				replaceText(t, servedDump, `{"name": "l", "active_state"`,
					`{"name": "l", "error_state": {"details": "no"}, "active_state"`),
			},
			[]string{"rejected Listener l: no"},
		},
		"rejected, and never there": {
			isConnected, replaceText(t, servedDump, `"name": "l", `, `"name": "m", `),
			[]string{delta, replaceText(t, replaceText(t, servedDump, `"name": "l", `, `"name": "m", `),
				`"dynamic_listeners": [`,
				`"dynamic_listeners": [{"error_state": {"failed_configuration": {"@type": "x", "name": "n"}, "details": "no"}},`)},
			[]string{"rejected Listener n: no"},
		},
		"rejected, as its client says": {
			rejects(verify.Refusal{TypeURL: clusters, Error: "cluster b: no"}), servedDump,
			[]string{delta, olderB},
			[]string{"rejected Cluster b: cluster b: no"},
		},
		"rejected for something else": {
			rejects(verify.Refusal{TypeURL: rds, Error: "no"}), servedDump,
			[]string{delta, olderB},
			[]string{"stale Cluster b: the Envoy has the earlier version " + earlier},
		},
		"rejected, by name": {
			rejects(verify.Refusal{TypeURL: clusters, Resource: "b", Error: "no"}), servedDump,
			[]string{delta, olderB},
			[]string{"rejected Cluster b: no"},
		},
		"another one, by name": {
			rejects(verify.Refusal{TypeURL: clusters, Resource: "c", Error: "no"}), servedDump,
			[]string{delta, olderB},
			[]string{"stale Cluster b: the Envoy has the earlier version " + earlier},
		},
		"a virtual host": {
			onDemand, vhds(replaceText(t, servedDump, `["v"]`, `["w"]`)),
			[]string{delta, vhds(servedDump)},
			[]string{"stale VirtualHost v: the Envoy has an earlier one"},
		},
		"a virtual host that is gone": {
			onDemand, vhds(cut(servedDump, `, "virtual_hosts"`, `]}]`)),
			[]string{delta, vhds(servedDump)},
			[]string{"stale VirtualHost v: it is no longer served, and the Envoy still has it"},
		},
		"a virtual host, not asked for": {
			onDemand, vhds(servedDump),
			[]string{delta, vhds(cut(servedDump, `, "virtual_hosts"`, `]}]`))},
			nil,
		},
		"not readable": {
			isConnected, servedDump,
			[]string{delta, replaceText(t, servedDump, `"type": "STATIC"`, `"type": 5.5`)},
			[]string{"different Cluster b: the Envoy's resource cannot be read: "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			theirs, err := verify.ParseDump(dumped(testCase.theirs...))
			require.NoError(t, err)
			require.Equal(t, "web", theirs.Node.GetId())
			testCase.expected.Dump = dumped(testCase.ours)
			findings, compared, err := verify.CompareEnvoy(&testCase.expected, theirs)
			require.NoError(t, err)
			require.GreaterOrEqual(t, compared, 4)
			var lines []string
			for _, finding := range findings {
				lines = append(lines, string(finding.Class)+" "+string(finding.Kind)+" "+finding.Name+": "+finding.Reason)
			}
			if len(lines) == 1 && len(testCase.want) == 1 && strings.HasPrefix(lines[0], testCase.want[0]) {
				return // the rest is a library's
			}
			require.Equal(t, testCase.want, lines)
		})
	}
}

func TestEnvoy_ReadsServersAndFiles(t *testing.T) {
	requestURL := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestURL = r.URL.String()
		_, _ = w.Write(dumped(bootstrapOf("GRPC"), servedDump))
	}))
	defer server.Close()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, content, 0o600))
		return name
	}
	for where, message := range map[string]string{
		server.URL: "",
		file("whole", dumped(bootstrapOf("DELTA_GRPC"), servedDump)):          "",
		file("nobody", dumped(servedDump)):                                    "there is no bootstrap in the dump",
		file("endless", dumped(strings.TrimSuffix(bootstrapOf("GRPC"), ","))): "there are no endpoints in the dump",
		file("other", []byte(`{}`)):                                           "not the config_dump of an Envoy",
		file("text", []byte(`no`)):                                            "not the config_dump of an Envoy",
		filepath.Join(dir, "lost"):                                            "no such file",
		"unix://" + filepath.Join(dir, "no-socket"):                           "no such file",
	} {
		envoy := verify.Envoy{Where: where, Client: server.Client()}
		require.NoError(t, envoy.Check())
		dump, err := envoy.Dump(t.Context())
		if message != "" {
			require.ErrorContains(t, err, message)
			continue
		}
		require.NoError(t, err)
		require.Empty(t, dump.Node.GetExtensions()) //nolint:staticcheck // Envoy has them
		require.Equal(t, envoy.IsFile(), dump.Delta)
	}
	require.Equal(t, "/config_dump?include_eds", requestURL)
	for _, where := range []string{"", "ftp://x", "http://", "http://u:p@x", "unix://", "http://x?y"} {
		require.Error(t, (&verify.Envoy{Where: where}).Check(), where)
	}
}
