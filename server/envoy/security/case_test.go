package security_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/envoytest"
	"tributary/server/envoy/index"
	"tributary/server/envoy/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// requireAccepted checks that Envoy would not refuse a configuration.
func requireAccepted(t testing.TB, configuration *anypb.Any) {
	t.Helper()
	message, err := configuration.UnmarshalNew()
	require.NoError(t, err)
	require.Empty(t, model.Refused(message.(interface{ Validate() error })))
}

// TestCases has the filters, the findings and the modes of mutual TLS of each case.
func TestCases(t *testing.T) {
	modes := map[model.MutualTLS]string{model.Permissive: "permissive", model.Strict: "strict", model.Disabled: "disabled"}
	envoytest.Goldens(t, *update, "testdata/*.txtar", func(c *envoytest.Case) {
		mesh := index.NewMesh()
		for _, object := range c.Objects() {
			require.NoError(c, mesh.Set(object.Key(), object))
		}
		mesh.Warn = c.Has("options")
		secured := mesh.Security(model.ProfileOf(c.Node()), nil)
		filters := make(map[string]proto.Message)
		for i, filter := range secured.HTTP {
			filters[fmt.Sprint("http/", i)] = filter
			requireAccepted(c, filter.GetTypedConfig())
		}
		for i, filter := range secured.TCP {
			filters[fmt.Sprint("tcp/", i)] = filter
			requireAccepted(c, filter.GetTypedConfig())
		}
		c.ExpectMessages(filters)
		if c.Has("want.mutual") {
			text := fmt.Sprintf("connections: %s\nplaintext: %v\n", modes[secured.Mutual], secured.Plaintext)
			for _, port := range slices.Sorted(maps.Keys(secured.MutualByPort)) {
				text += fmt.Sprintf("port %d: %s\n", port, modes[secured.MutualByPort[port]])
			}
			c.Expect("want.mutual", text+fmt.Sprintln("objects:", secured.Objects))
		}
		if c.Has("want.findings") {
			var lines strings.Builder
			for _, finding := range secured.Findings {
				fmt.Fprintf(&lines, "%s: %s: %s\n", finding.Object, finding.Field, finding.Why)
			}
			c.Expect("want.findings", lines.String())
		}
	})
}
