package table_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/table"
	"tributary/resource"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestWrite prints the objects of each testdata/*.yaml as a table and compares it to the file beside it.
func TestWrite(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, inputs)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			data, err := os.ReadFile(input)
			require.NoError(t, err)
			var rs []*resource.Resource
			for _, d := range resource.Decode(input, data, resource.Options{}) {
				require.NoError(t, d.Errors.Err())
				rs = append(rs, d.Resource)
			}
			var out bytes.Buffer
			require.NoError(t, table.Write(&out, rs[0].Key().Kind, rs, table.Options{Namespaces: true}, now))
			out.WriteString("\n")
			require.NoError(t, table.Write(&out, rs[0].Key().Kind, rs, table.Options{}, now))
			out.WriteString("\n")
			require.NoError(t, table.Write(&out, rs[0].Key().Kind, rs, table.Options{Wide: true, NoHeaders: true}, now))

			golden := input + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), out.String())
		})
	}
}
