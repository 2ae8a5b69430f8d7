package relay

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/config"
	"tributary/sources"
	"tributary/sources/file"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

// everySource has one of each.
func everySource() (sources []string) {
	for index, scheme := range config.Schemes() {
		address := strings.ReplaceAll(scheme.Address, "%s", "127.0.0.1:1")
		if scheme.Names[0] == file.Scheme {
			address = "fs://./rules"
		}
		sources = append(sources, fmt.Sprintf("name: s%d, address: '%s'", index, address))
	}
	return sources
}

// metric is a line of the page: a metric of ours.
type metric struct{ name, kind, labels, help string }

// only its text has the names of a Desc
var descForm = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{([^}]*)\}, ` +
	`variableLabels: \{([^}]*)\}\}$`)

// metricsOf returns the metrics of ours that a registry has to tell.
func metricsOf(t *testing.T, registry *prometheus.Registry) []metric {
	kinds := make(map[string]string)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc, 10_000)
	registry.Describe(descs)
	close(descs)
	metrics := make(map[string]metric)
	for d := range descs {
		parts := descForm.FindStringSubmatch(d.String())
		require.NotNil(t, parts, d.String())
		name := parts[1]
		if !strings.HasPrefix(name, "tributary_") {
			continue
		}
		kind, ok := kinds[name]
		switch {
		case ok:
		case strings.HasSuffix(name, "_total"):
			kind = "counter"
		default:
			kind = "gauge"
		}
		labels := strings.FieldsFunc(regexp.MustCompile(`="[^"]*"`).ReplaceAllString(parts[3]+","+parts[4], ""),
			func(r rune) bool { return r == ',' })
		for i := range labels {
			labels[i] = "`" + labels[i] + "`"
		}
		metrics[name] = metric{name, kind, strings.Join(labels, " "), strings.ReplaceAll(strings.Trim(parts[2], `"`), `|`, `\|`)}
	}
	return slices.SortedFunc(maps.Values(metrics), func(a, b metric) int { return strings.Compare(a.name, b.name) })
}

// docs/metrics.md lists the metrics of a tributary that has all features.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	rig := serve(t, []string{"rules/a.yaml: default/a"}, everySource()...)
	registry, ok := rig.sources.metrics.(*prometheus.Registry)
	require.True(t, ok)

	// A metric with labels appears with its first value.
	eventually(t, func() error {
		for _, status := range rig.supervisor.Status() {
			if status.State == sources.Starting {
				return fmt.Errorf("source %s does not run yet", status.Name)
			}
		}
		return nil
	})
	subscribe(t, rig, "", "metrics")
	await(t, func() bool { return strings.Contains(rig.page(t, "/metrics"), "tributary_xds_propagation_seconds") })

	var table strings.Builder
	table.WriteString("| metric | type | labels | what it says |\n| --- | --- | --- | --- |\n")
	for _, m := range metricsOf(t, registry) {
		require.NotEmpty(t, m.help, m.name)
		_, _ = fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, m.help)
	}
	const file, begin, end = "../../docs/metrics.md", "<!-- metrics: begin -->\n", "<!-- metrics: end -->"
	page := mustRead(t, file)
	before, rest, ok := strings.Cut(page, begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := before + begin + table.String() + end + after
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644)) //nolint:gosec // for everybody to read
		return
	}
	require.Equal(t, want, page, "go test ./internal/relay -run TestMetricsPage -update")
}

// How long a change is on its way is counted from when the file was read to when the client has acknowledged it.
func TestMetrics_MeasurePropagation(t *testing.T) {
	t.Parallel()
	rig := serve(t, []string{"rules/a.yaml: default/a"}, "address: 'fs://./rules'")
	dir := rig.dir
	rig.awaitReady(t)
	c := startClient(t, rig.XDS().String(), adsc.Delta, nil)
	c.awaitObjects(t, "ServiceEntry default/a")
	require.NotContains(t, rig.page(t, "/metrics"),
		`tributary_xds_propagation_seconds_count{stage="sent",type_url="networking.istio.io/v1/ServiceEntry"} 1`)
	fill(t, dir, "rules/b.yaml: default/b")
	eventually(t, func() error {
		page := rig.page(t, "/metrics")
		for _, stage := range []string{"sent", "acknowledged"} {
			if !strings.Contains(page, `tributary_xds_propagation_seconds_count{stage="`+stage+
				`",type_url="networking.istio.io/v1/ServiceEntry"} 1`) {
				return errors.New("no " + stage)
			}
		}
		return nil
	})
}
