package output_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/cmd/internal/output"
	"tributary/resource"
)

// TestTable prints the objects of each testdata/table/*.yaml as a table and compares it to the file beside it.
func TestTable(t *testing.T) {
	inputs, err := filepath.Glob("testdata/table/*.yaml")
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
			require.NoError(t, output.Table(&out, rs[0].Key().Kind, rs, output.TableOptions{Namespaces: true}, now))
			out.WriteString("\n")
			require.NoError(t, output.Table(&out, rs[0].Key().Kind, rs, output.TableOptions{}, now))
			out.WriteString("\n")
			require.NoError(t, output.Table(&out, rs[0].Key().Kind, rs, output.TableOptions{Wide: true, NoHeaders: true}, now))

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
