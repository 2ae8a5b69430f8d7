package output_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/cmd/internal/output"
	"tributary/resource"
	"tributary/server/admin"
)

var update = flag.Bool("update", false, "write the golden files")

// now is a quarter past noon.
var now = time.Date(2026, 1, 2, 12, 15, 0, 0, time.UTC)

// TestReports writes each answer of the admin server in testdata as people read it.
func TestReports(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, inputs)
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".json")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(input)
			require.NoError(t, err)
			var builder strings.Builder
			switch kind, _, _ := strings.Cut(name, "-"); kind {
			case "guard":
				var guarded []admin.HeldSource
				require.NoError(t, json.Unmarshal(data, &guarded))
				err = output.Guard(&builder, guarded, now)
			case "status":
				var status admin.Status
				require.NoError(t, json.Unmarshal(data, &status))
				err = output.Status(&builder, "127.0.0.1:16014", &status, now, output.Screen{})
			default:
				var explanation admin.Explanation
				require.NoError(t, json.Unmarshal(data, &explanation))
				err = output.Explain(&builder, "the question", &explanation, now)
			}
			require.NoError(t, err)
			path := strings.TrimSuffix(input, ".json") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(builder.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), builder.String())
		})
	}
}

func TestCheckWritesTroubles(t *testing.T) {
	for want, text := range map[string]string{
		"ok: 1 source, 1 object, 0 clients":         "objects: 1",
		"not ready: shutting down":                  "missing: [shutting down]",
		"the configuration file is refused: line 1": "config: {failed: '2026-01-02T12:15:00Z', error: line 1}",
		"source a is unreachable: gone away":        `sources: [{name: a, state: unreachable, message: "gone\naway"}]`,
		"source a lost 1 object and 2 endpoints, which are held: much": "sources: [{name: a, state: healthy, " +
			"hold: {objects: 1, endpoints: 2, why: much}}]",
		"1 object is not valid, and quarantined": "quarantined: 1",
		"2 objects are not valid, and quarantined: rules: a.yaml:3: no hosts; and 1 more": "quarantined: 2\n" +
			"invalid: [{source: rules, place: 'a.yaml:3', reason: no hosts}]",
		"source a has ServiceEntry shop/b more than once: that at a.yaml:1 is served, and not that at b.yaml:1, c.yaml:2": `
sources:
- name: a
  state: healthy
  duplicates: [{kind: ServiceEntry, namespace: shop, name: b, winner: "a.yaml:1", losers: ["b.yaml:1", "c.yaml:2"]}]`,
		"n at p rejects t: no; the client has acknowledged no version of it": `
rejected: [{node: "n", peer: p, type_url: t, error: "no", clients: 1}]`,
		"the certificate of listen.xdsTLS has expired": "certificates: [{listener: listen.xdsTLS, expired: true}]",
		"the certificate of listen.xdsTLS expires at 2026-05-04T03:00:00Z": "certificates: [{listener: listen.xdsTLS, " +
			"notAfter: '2026-05-04T03:00:00Z', soon: true}]",
	} {
		status := admin.Status{Objects: 1, Sources: []admin.SourceState{{Name: "a", State: "healthy"}}}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), &status))
		var out bytes.Buffer
		ok, err := output.Check(&out, &status)
		require.NoError(t, err)
		require.Equal(t, strings.HasPrefix(want, "ok: "), ok)
		require.Equal(t, want+"\n", out.String())
	}
}

// TestStatus_HeldLoss counts the objects of a loss, and not their endpoints as further objects.
func TestStatus_HeldLoss(t *testing.T) {
	for want, hold := range map[string]admin.Hold{
		"healthy  4        20 objects and 20 endpoints  -": {Objects: 20, Endpoints: 20},
		"healthy  4        1 endpoint  -":                  {Endpoints: 1},
	} {
		status := admin.Status{Sources: []admin.SourceState{
			{Name: "rules", State: "healthy", Synced: true, Objects: 4, Hold: &hold},
		}}
		var report strings.Builder
		require.NoError(t, output.Status(&report, "127.0.0.1:16014", &status, now, output.Screen{Width: 200}))
		require.Contains(t, report.String(), want)
	}
}

// TestExplain_ResumedClient says that a client without an answer on this connection has the newest version, if it has.
func TestExplain_ResumedClient(t *testing.T) {
	object := conflicts.Ref{Kind: resource.ServiceEntry, Namespace: "shop", Name: "web"}
	for want, synced := range map[string]bool{
		"came back with the newest version":     true,
		"has subscribed, and has no answer yet": false,
	} {
		explanation := admin.Explanation{Objects: []admin.Explained{{
			Explanation: aggregate.Explanation{Object: object},
			Recipients:  []admin.Recipient{{Node: "istiod", Peer: "p", Exchanges: admin.Exchanges{Synced: synced}}},
		}}}
		var report strings.Builder
		require.NoError(t, output.Explain(&report, "se shop/web", &explanation, now))
		require.Contains(t, report.String(), "istiod at p: "+want+"\n")
	}
}

// TestNarrowScreens keeps messages whole on a narrow screen, and omits empty columns.
func TestNarrowScreens(t *testing.T) {
	status := admin.Status{Sources: []admin.SourceState{
		{Name: "rules", State: "healthy", Synced: true, Objects: 4},
		{
			Name: "dc1", State: "unreachable", Message: "consul at 10.0.0.1:8500 refuses connections",
			Quarantined: 2,
		},
	}}
	lines := func(width int) string {
		var out strings.Builder
		require.NoError(t, output.Status(&out, "127.0.0.1:16014", &status, now, output.Screen{Width: width}))
		return out.String()
	}
	narrow := lines(60)
	require.Contains(t, narrow, "\nSOURCE  STATE                    OBJECTS  QUARANTINED  LAST…\n")
	require.Contains(t, narrow, "\n  dc1: consul at 10.0.0.1:8500 refuses connections\n")
	wide := lines(200)
	require.NotContains(t, wide, "HELD")
	require.NotContains(t, wide, "  dc1: ")
	require.Contains(t, wide, "2            -            consul at 10.0.0.1:8500 refuses connections\n")
}
