package report_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/report"
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
			var out strings.Builder
			switch kind, _, _ := strings.Cut(name, "-"); kind {
			case "guard":
				var all []admin.Guarded
				require.NoError(t, json.Unmarshal(data, &all))
				err = report.Guard(&out, all, now)
			case "status":
				var st admin.Status
				require.NoError(t, json.Unmarshal(data, &st))
				err = report.Status(&out, "127.0.0.1:16014", &st, now)
			default:
				var e admin.Explanation
				require.NoError(t, json.Unmarshal(data, &e))
				err = report.Explain(&out, "what was asked for", &e, now)
			}
			require.NoError(t, err)
			path := strings.TrimSuffix(input, ".json") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String())
		})
	}
}
