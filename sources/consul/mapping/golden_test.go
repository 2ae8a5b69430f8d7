package mapping_test

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
	"tributary/sources"
	"tributary/sources/consul/mapping"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden is a file of testdata: settings and what Consul answers, in the words of its API.
type golden struct {
	Why     string
	Options mapping.Options
	Steps   []struct{ Services []mapping.Service }
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			var g golden
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(&g))
			m, err := mapping.New(g.Options, vips{})
			require.NoError(t, err)
			var out bytes.Buffer
			fmt.Fprintf(&out, "# %s\n", g.Why)
			for i, step := range g.Steps {
				if len(g.Steps) > 1 {
					fmt.Fprintf(&out, "# step %d\n", i+1)
				}
				rs, rejects, warnings := m.Service(step.Services[0].Name, step.Services)
				out.WriteString(show(t, rs, rejects, warnings))
				requireValid(t, rs)
			}
			want := strings.TrimSuffix(file, ".json") + ".golden.yaml"
			if *update {
				require.NoError(t, os.WriteFile(want, out.Bytes(), 0o644))
			}
			expected, err := os.ReadFile(want)
			require.NoError(t, err)
			require.Equal(t, string(expected), out.String())
		})
	}
}

// show prints what a mapping gave.
func show(t require.TestingT, rs []*resource.Resource, rejects []sources.Reject, warnings []string) string {
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&b, "# warning: %s\n", w)
	}
	for _, r := range rejects {
		fmt.Fprintf(&b, "# reject: %v\n", r.Err)
	}
	for _, r := range rs {
		y, err := resource.MarshalYAML(r)
		require.NoError(t, err)
		fmt.Fprintf(&b, "---\n# %s\n%s", r.Origin(), y)
	}
	return b.String()
}

func requireValid(t require.TestingT, rs []*resource.Resource) {
	keys := map[resource.Key]bool{}
	for _, r := range rs {
		_, err := resource.Validate(r)
		require.NoError(t, err)
		require.False(t, keys[r.Key()], "two objects %s", r.Key())
		keys[r.Key()] = true
	}
}

// vips gives addresses by the length of the host, which is enough to see them.
type vips struct{}

func (vips) Address(host string) (netip.Addr, error) {
	return netip.AddrFrom4([4]byte{241, 0, 0, byte(len(host))}), nil
}
