package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// TestRules has the real promtool check the rules for alerts, run their tests, and read every query of the dashboard.
func TestRules(t *testing.T) {
	promtool := fixture.Promtool(t)
	run := func(args ...string) {
		t.Helper()
		out, code := fixture.Run(t, append([]string{promtool}, args...)...)
		require.Zero(t, code, out)
	}
	run("check", "rules", "--lint=all", "--lint-fatal", "../docs/monitoring/rules.yaml")
	run("test", "rules", "../docs/monitoring/rules_test.yaml")

	text, err := os.ReadFile("../docs/monitoring/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	n := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			n++
			expr := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(target.Expr)
			fmt.Fprintf(&rules, "  - {record: 'query:%d', expr: %q}\n", n, expr)
		}
	}
	require.Positive(t, n)
	file := testutil.WriteFile(t, t.TempDir(), "dashboard.yaml", rules.String())
	run("check", "rules", file)

	// The metrics of the program are well-formed and follow the naming conventions.
	tributary := fixture.StartTributary(t, fixture.Files("rules", t.TempDir()))
	out, code := fixture.Run(t, "sh", "-c", "curl -sSf "+tributary.URL("/metrics")+" | "+promtool+" check metrics")
	require.Zero(t, code, out)
}
