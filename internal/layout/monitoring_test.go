package layout

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestMonitoring compares rules, their tests, the runbook and the dashboard: all metrics exist, and each alert has a
// test and an entry in the runbook.
func TestMonitoring(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile("../../docs/" + file)
		require.NoError(t, err)
		return string(text)
	}
	metrics, runbooks, tests := read("metrics.md"), read("monitoring.md"), read("monitoring/rules_test.yaml")
	requireMetric := func(text, where string) {
		for _, name := range regexp.MustCompile(`\btributary_[a-z_]+\b`).FindAllString(text, -1) {
			require.Contains(t, metrics, "`"+regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")+"`", where)
		}
	}
	requireMetric(runbooks, "monitoring.md")
	requireMetric(tests, "rules_test.yaml")

	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations struct {
					Runbook string `json:"runbook_url"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read("monitoring/rules.yaml")), &rules))
	alerts := 0
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			alerts++
			requireMetric(r.Expr, r.Alert)
			require.Equal(t, "file:///usr/share/doc/tributary/docs/monitoring.md#"+strings.ToLower(r.Alert), r.Annotations.Runbook)
			require.Contains(t, runbooks, "\n## "+r.Alert+"\n")
			require.Contains(t, tests, "- name: "+r.Alert+" fires\n")
			require.Contains(t, tests, "- name: "+r.Alert+" does not\n")
		}
	}
	require.Equal(t, alerts, strings.Count(runbooks, "\n## "), "the runbook has an alert that does not exist")

	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read("monitoring/dashboard.json")), &dashboard))
	ids := make(map[int]bool)
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], "two panels of one id: %s", p.Title)
		ids[p.ID] = true
		require.Equal(t, p.Type != "row", len(p.Targets) > 0, p.Title)
		for _, target := range p.Targets {
			requireMetric(target.Expr, p.Title)
		}
	}
	require.Greater(t, alerts, 10)
	require.Greater(t, len(ids), 10)
}
