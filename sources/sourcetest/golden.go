package sourcetest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// RunGolden compares the text that show makes of each testdata/NAME.json with testdata/NAME.golden.yaml, which -update
// writes. A key that T does not have is an error.
func RunGolden[T any](t *testing.T, show func(t *testing.T, input T) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var input T
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(&input))
			shown := show(t, input)
			want := strings.TrimSuffix(file, ".json") + ".golden.yaml"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(shown), 0o644)) //nolint:gosec // for everybody to read
			}
			expected, err := os.ReadFile(want)
			require.NoError(t, err)
			require.Equal(t, string(expected), shown)
		})
	}
}

// Show returns the text of mapped objects, each with its origin.
func Show(t require.TestingT, resources []*resource.Resource, warnings ...string) string {
	var builder strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&builder, "# warning: %s\n", w)
	}
	for _, object := range resources {
		y, err := resource.MarshalYAML(object)
		require.NoError(t, err)
		fmt.Fprintf(&builder, "---\n# %s\n%s", object.Origin(), y)
	}
	return builder.String()
}

// VIPs gives a host an address by its length, which is enough to see it.
type VIPs struct{}

// Address is that of a host.
func (VIPs) Address(host string) (netip.Addr, error) {
	return netip.AddrFrom4([4]byte{241, 0, 0, byte(len(host))}), nil
}
