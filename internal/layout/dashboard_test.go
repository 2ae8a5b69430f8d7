package layout

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dashboard has the checked fields of a dashboard of Grafana.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Datasource *datasource
		}
	}
	Annotations struct {
		List []struct {
			Datasource *datasource
			Expr       string
		}
	}
	Panels []struct {
		ID          int
		Title, Type string
		Datasource  *datasource
		GridPos     struct{ W, H, X, Y int }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                *datasource
		}
	}
}

type datasource struct{ Type, UID string }

func (d *dashboard) read(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, d))
}

// units are the units of Grafana that the dashboard may use, by the ending of the metrics of that unit.
var units = map[string]string{
	"short": "", "ops": "_total", "Bps": "_bytes_total", "bytes": "_bytes", "s": "_seconds", "percentunit": "_seconds_total",
}

var (
	metricName = regexp.MustCompile(`\b(tributary|process|go)_[a-z_]+\b`)
	matchers   = regexp.MustCompile(`\{([^}]*)\}`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	oneLine    = regexp.MustCompile(`^\(*(sum|min|max|count)\(`)
	inLegend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// TestDashboard checks that Grafana accepts the dashboard, and that its queries use labels and units of the metrics.
func TestDashboard(t *testing.T) {
	var d dashboard
	d.read(t)
	require.NotEmpty(t, d.UID)
	require.GreaterOrEqual(t, d.SchemaVersion, 36, "from then on a data source is an object")
	variable := datasource{"prometheus", "${datasource}"}
	require.Equal(t, "datasource", d.Templating.List[0].Name)
	require.Equal(t, "datasource", d.Templating.List[0].Type)
	for _, v := range d.Templating.List[1:] {
		require.Equal(t, &variable, v.Datasource, v.Name)
	}
	for _, a := range d.Annotations.List {
		require.Equal(t, &variable, a.Datasource, a.Expr)
	}

	labels := labelsOfMetrics(t)
	taken := make(map[[2]int]string) // places of the grid, by column and row
	for _, p := range d.Panels {
		position := p.GridPos
		require.True(t, position.W > 0 && position.H > 0 && position.X >= 0 && position.X+position.W <= 24, p.Title)
		for x := position.X; x < position.X+position.W; x++ {
			for y := position.Y; y < position.Y+position.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s lies on another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.Contains(t, []string{"stat", "timeseries", "state-timeline"}, p.Type, p.Title)
		require.Equal(t, &variable, p.Datasource, p.Title)
		ending, exists := units[p.FieldConfig.Defaults.Unit]
		require.True(t, exists, "%s: unit %q", p.Title, p.FieldConfig.Defaults.Unit)
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			require.False(t, refs[target.RefID] || target.RefID == "", "%s: reference %q", p.Title, target.RefID)
			refs[target.RefID] = true
			require.Equal(t, &variable, target.Datasource, p.Title)
			names := metricName.FindAllString(target.Expr, -1)
			require.NotEmpty(t, names, p.Title)
			labelNames := []string{"instance", "job"}
			for i, name := range names {
				if strings.HasSuffix(name, "_bucket") {
					labelNames = append(labelNames, "le")
				}
				name = strings.TrimSuffix(name, "_bucket")
				require.True(t, strings.HasSuffix(name, ending), "%s: %s in %q", p.Title, name, p.FieldConfig.Defaults.Unit)
				declared, told := labels[name]
				require.Equal(t, strings.HasPrefix(name, "tributary_"), told, name)
				if i == 0 {
					labelNames = append(labelNames, declared...)
				}
			}
			for _, m := range matchers.FindAllStringSubmatch(strings.ReplaceAll(target.Expr, "$instance", ""), -1) {
				require.Contains(t, m[1], `instance=~""`, "%s is not of the chosen instances", p.Title)
				for label := range strings.SplitSeq(m[1], ",") {
					name, _, _ := strings.Cut(strings.TrimSpace(label), "=")
					require.Contains(t, labelNames, strings.TrimRight(name, "!"), target.Expr)
				}
			}
			require.Len(t, matchers.FindAllString(target.Expr, -1), len(names), "%s: each metric is of the chosen instances", p.Title)
			for _, g := range grouping.FindAllStringSubmatch(target.Expr, -1) {
				grouping := strings.Split(strings.ReplaceAll(g[1], " ", ""), ",")
				for _, label := range grouping {
					require.Contains(t, labelNames, label, target.Expr)
				}
				labelNames = grouping
			}
			if !grouping.MatchString(target.Expr) && oneLine.MatchString(target.Expr) {
				labelNames = nil
			}
			for _, l := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, labelNames, l[1], "%s: legend %s", p.Title, target.LegendFormat)
			}
			if len(p.Targets) > 1 {
				require.NotEmpty(t, target.LegendFormat, "%s: which of its queries a line is", p.Title)
			}
		}
	}
}

// labelsOfMetrics are those that docs/metrics.md has, which is held to the program by TestMetricsPage.
func labelsOfMetrics(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	labels := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(tributary_[a-z_]+)` \\| \\w+ \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		labels[row[1]] = slices.DeleteFunc(strings.Split(strings.Trim(strings.TrimSpace(row[2]), "`"), "` `"),
			func(l string) bool { return l == "" })
	}
	require.Greater(t, len(labels), 50)
	return labels
}
