package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// scraped are series as Prometheus has them after some scrapes, by name and labels: one value for each scrape, or a
// gap.
type scraped map[string][]string

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)

// failing matches promtool's message for a query with an unexpected result.
var failing = regexp.MustCompile(`expr: ("(?:[^"\\]|\\.)*"), time: \w+,\s*exp: ?(?:\S.*)\n\s*got: ?(.*)`)

// scrape is the n-th one, of all the servers.
func (s scraped) scrape(t *testing.T, n int, tributaries ...*fixture.Tributary) {
	t.Helper()
	for _, tributary := range tributaries {
		status, body, err := fixture.Get(t.Context(), tributary.URL("/metrics"))
		require.NoError(t, err)
		require.Equal(t, 200, status)
		for line := range strings.Lines(body) {
			m := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if m == nil || strings.HasPrefix(line, "#") {
				continue
			}
			value, err := strconv.ParseFloat(m[3], 64)
			require.NoError(t, err, line)
			if strings.HasSuffix(m[1], "_timestamp_seconds") { // the time of promtool begins at 0
				value -= float64(time.Now().Unix())
			}
			labels := append([]string{`instance="` + tributary.Admin + `"`, `job="tributary"`}, strings.TrimSuffix(m[2], ","))
			name := m[1] + "{" + strings.Trim(strings.Join(labels, ","), ",") + "}"
			for len(s[name]) < n {
				s[name] = append(s[name], "_")
			}
			s[name] = append(s[name], strconv.FormatFloat(value, 'f', -1, 64))
		}
	}
}

// after an event of these kinds there is a series, and none before. Their panels have other queries, too.
var onlyAfter = []string{"tributary_xds_refusals_total", "tributary_connections_refused_total", "tributary_access_refusals_total"}

// TestDashboard_QueriesHaveData runs every query of the dashboard in the real PromQL, on the metrics of servers with a
// bad document, a source that ends, a client that rejects, and an Envoy that rejects.
func TestDashboard_QueriesHaveData(t *testing.T) {
	t.Parallel()
	const lastScrape = 3 // minutes; the time of the last scrape
	dir, upstream, elsewhere := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	write(t, dir, "bad.yaml", strings.Replace(serviceEntry("bad", 80), "hosts", "host", 1))
	write(t, upstream, "b.yaml", serviceEntry("b", 80))
	write(t, elsewhere, "c.yaml", serviceEntry("c", 80))
	up := fixture.StartTributary(t, fixture.Files("rules", upstream))
	idle := fixture.StartTributary(t, fixture.Files("rules", elsewhere))
	idle.AwaitReady(t)
	tributary := fixture.StartTributaryWith(t, "configSources:\n- {name: rules, address: 'fs://"+dir+"'}\n- {name: up, address: 'xds://"+
		up.XDS+"'}\n")
	tributary.AwaitReady(t)
	port := fixture.FreePort(t)
	mesh := startMesh(t, "mesh.yaml", regexHosts(port, 4, "v0", -1))
	envoy := fixture.StartEnvoyWith(t, strict.Replace(bootstrap(t, "envoy", "--server", mesh.XDS)))
	answers := answersAt(t, envoy, port)
	answers(0, "v0")
	stream := fixture.OpenStream(t, tributary.XDS, "e2e-client")
	stream.Subscribe(t, serviceEntries, "")
	stream.Ack(t, stream.Next(t))

	series := make(scraped)
	for n := range lastScrape + 1 {
		series.scrape(t, n, tributary, mesh.Tributary)
		write(t, dir, "a.yaml", serviceEntry("a", 81+n))
		res := stream.Next(t)
		stream.Nack(t, res, "", "not to my liking")
		write(t, dir, "a.yaml", serviceEntry("a", 181+n))
		stream.Ack(t, stream.Next(t))
		mesh.write(t, "mesh.yaml", regexHosts(port, 4, fmt.Sprint("v", n+1), 2))
		mesh.WaitFor(t, 30*time.Second, func() error {
			if mesh.Metric(t, "tributary_xds_rejected_resources", "") == 0 {
				return fmt.Errorf("the Envoy has rejected no resource yet")
			}
			return nil
		})
		if n == lastScrape-1 {
			up.Kill()
			tributary.WaitFor(t, 30*time.Second, func() error {
				if tributary.Metric(t, "tributary_source_up", `source="up"`) != 0 {
					return fmt.Errorf("the source is up")
				}
				return nil
			})
		}
	}

	text, err := os.ReadFile("../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	bare := func(expr string) string { return strings.ReplaceAll(expr, " or vector(0)", "") }
	var queries []string
	for i := range dashboard.Panels {
		for n := range dashboard.Panels[i].Targets {
			expr := &dashboard.Panels[i].Targets[n].Expr
			*expr = strings.NewReplacer("$__rate_interval", "4m", "$instance", ".*").Replace(*expr)
			queries = append(queries, *expr, bare(*expr))
		}
	}
	empty := series.empty(t, lastScrape, queries)
	for _, p := range dashboard.Panels {
		answered := 0
		for _, target := range p.Targets {
			if !empty[target.Expr] {
				answered++
			}
			if slices.ContainsFunc(onlyAfter, func(name string) bool { return strings.Contains(target.Expr, name) }) {
				continue
			}
			assert.False(t, empty[target.Expr], "%s: %s has no data", p.Title, target.Expr)
			assert.False(t, empty[bare(target.Expr)], "%s: %s has no series", p.Title, target.Expr)
		}
		if p.Type != "row" {
			assert.Positive(t, answered, p.Title)
		}
	}
	// A server has few values after its start; the first row shows 0, and not "No data".
	fresh := make(scraped)
	for n := range 2 {
		fresh.scrape(t, n, idle)
	}
	empty = fresh.empty(t, 1, queries)
	for _, p := range dashboard.Panels {
		if p.Type == "stat" {
			assert.False(t, empty[p.Targets[0].Expr], "%s has no data at first", p.Title)
		}
	}
}

// empty are those of the queries that have no answer at a minute.
func (s scraped) empty(t *testing.T, minute int, queries []string) map[string]bool {
	t.Helper()
	type input struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type wanted struct {
		Labels string `json:"labels"`
		Value  int    `json:"value"`
	}
	type question struct {
		Expr    string   `json:"expr"`
		At      string   `json:"eval_time"`
		Samples []wanted `json:"exp_samples"`
	}
	var inputs []input
	about := regexp.MustCompile(`^(` + strings.Join(regexp.MustCompile(`\w+`).FindAllString(strings.Join(queries, " "), -1), "|") + `)$`)
	for name, values := range s {
		metric, _, _ := strings.Cut(name, "{")
		if about.MatchString(metric) {
			inputs = append(inputs, input{name, strings.Join(values, " ")})
		}
	}
	require.NotEmpty(t, inputs)
	counted := make(map[string]string)
	var questions []question
	for _, q := range queries {
		counts := "count(" + q + ") > bool 0"
		counted[counts] = q
		questions = append(questions, question{counts, fmt.Sprint(minute, "m"), []wanted{{"{}", 1}}})
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	text, err := json.Marshal(map[string]any{ // which is YAML, too
		"evaluation_interval": "1m",
		"tests":               []any{map[string]any{"interval": "1m", "input_series": inputs, "promql_expr_test": questions}},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, _ := fixture.Run(t, "sh", "-c", fixture.Promtool(t)+" test rules "+file+" 2>&1")
	empty := make(map[string]bool)
	for _, m := range failing.FindAllStringSubmatch(out, -1) {
		expr, err := strconv.Unquote(m[1])
		require.NoError(t, err)
		require.Contains(t, counted, expr, out)
		require.Equal(t, "nil", m[2], "%s: %s", expr, out)
		empty[counted[expr]] = true
	}
	require.Equal(t, len(empty) == 0, strings.Contains(out, "SUCCESS"), out)
	return empty
}
