package mapping_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/mapping"
	"tributary/sources/sourcetest"
)

// example is a file of testdata: settings, and Consul's answers in the terms of its API.
type example struct {
	Why     string
	Options mapping.Options
	Steps   []struct{ Services []mapping.Service }
}

func TestGolden(t *testing.T) {
	sourcetest.RunGolden(t, func(t *testing.T, g example) string {
		mapper, err := mapping.New(g.Options, sourcetest.VIPs{})
		require.NoError(t, err)
		var buffer bytes.Buffer
		fmt.Fprintf(&buffer, "# %s\n", g.Why)
		for i, step := range g.Steps {
			if len(g.Steps) > 1 {
				fmt.Fprintf(&buffer, "# step %d\n", i+1)
			}
			rs, rejects, warnings := mapped(mapper, step.Services[0].Name, step.Services)
			buffer.WriteString(show(t, rs, rejects, warnings))
			requireValid(t, rs)
		}
		return buffer.String()
	})
}

// mapped maps a service.
func mapped(m *mapping.Mapper, name string, services []mapping.Service) ([]*resource.Resource, []sources.Reject, []string) {
	c := m.Service(name, services)
	return c.Resources, c.Rejects, c.Warnings
}

// show prints the results of a mapping.
func show(t require.TestingT, rs []*resource.Resource, rejects []sources.Reject, warnings []string) string {
	var builder strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&builder, "# warning: %s\n", w)
	}
	for _, r := range rejects {
		fmt.Fprintf(&builder, "# reject: %v\n", r.Err)
	}
	return builder.String() + sourcetest.Show(t, rs)
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
