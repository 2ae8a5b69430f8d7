package derive_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/envoytest"
	"tributary/sources/derive"
)

var update = flag.Bool("update", false, "write defaults.yaml, and the answers of testdata")

// TestDerivation derives the objects of each case. The file want has the keys of the derived objects, the specs of the
// kinds in the file kinds, and the problems. The file options has the options of the set.
func TestDerivation(t *testing.T) {
	envoytest.Goldens(t, *update, "testdata/*.txtar", func(c *envoytest.Case) {
		var options derive.Options
		require.NoError(c, yaml.UnmarshalStrict([]byte(c.Text("options")), &options))
		set := setOf(c, options, c.Joined("input.yaml", "---\n"))
		c.Expect("want", description(c, set, strings.Fields(c.Text("kinds"))))
	})
}

// setOf returns a set with the objects of YAML documents.
func setOf(t testing.TB, options derive.Options, text string) *derive.Set {
	t.Helper()
	set := derive.NewSet(options)
	for _, d := range documents(t, text) {
		origin := resource.Origin{Source: "src", Place: d.Kind + "-" + d.Metadata.Name + ".yaml:1", Group: "g"}
		require.NoError(t, set.Put(d.APIVersion, d.Kind, origin, d.text))
	}
	return set
}

// description returns the derived objects, with the specs of some kinds and the faults that Istio finds, and the
// problems.
func description(t testing.TB, set *derive.Set, kinds []string) string {
	t.Helper()
	var lines strings.Builder
	derived, problems := set.Derive()
	for _, object := range derived {
		fmt.Fprintln(&lines, object.Key())
		if _, err := resource.Validate(object); err != nil {
			fmt.Fprintln(&lines, "  invalid:", err)
		}
		if slices.Contains(kinds, string(object.Key().Kind)) {
			text, err := resource.MarshalYAML(object)
			require.NoError(t, err)
			content := strings.TrimSuffix(plain(documents(t, string(text))[0]), "\n")
			fmt.Fprintln(&lines, "  "+strings.ReplaceAll(content, "\n", "\n  "))
		}
	}
	for _, problem := range problems {
		fmt.Fprintln(&lines, problem)
	}
	return lines.String()
}
