package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// newer matches the lines that every mesh has beside istiod 1.31: its defaults changed, and it has the Service of the
// API server. It also keeps the client's protocol on a detected port with h2UpgradePolicy.
var newer = regexp.MustCompile(`\.(track_remaining: tributary has|common_lb_config\.healthy_panic_threshold: istiod has set|` +
	`max_connections_to_accept_per_socket_event: istiod has set)|kubernetes\.default\.svc|_443: istiod has it$|` +
	`\.fields\{workload\}\.string_value: |^cluster outbound\|9007\|\|pooled\.example\.typed_extension_protocol_options`)

// TestShapesBesideIstiod compares Envoys' resources with those of each istiod, for shapes of services that people
// reported: one file each.
func TestShapesBesideIstiod(t *testing.T) {
	t.Parallel()
	fixture.EachIstiod(t, func(t *testing.T, version fixture.IstiodVersion) {
		t.Helper()
		dir, err := filepath.Abs("testdata/shapes")
		require.NoError(t, err)
		tr := fixture.StartTributary(t, fixture.Files("files", dir))
		tr.AwaitReady(t)
		istiod := version.NewWith(t, fmt.Sprintf("enableTracing: false\nconfigSources:\n- address: %q\n", "xds://"+tr.XDS))
		istiod.AwaitSynced(t)
		for name, node := range besideNodes(t) {
			var lines []string
			for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				lines = compare(t, fixture.TakeInventory(t, istiod.GRPC, node), fixture.TakeInventory(t, tr.XDS, node),
					compared{gateway: name == "gateway", plain: name == "NONE", shapes: true})
				lines = slices.DeleteFunc(lines, func(line string) bool { return version == fixture.Istiod131 && newer.MatchString(line) })
				if len(lines) == 0 || time.Now().After(deadline) {
					break
				}
			}
			for _, line := range lines {
				t.Errorf("%s: %s", name, line)
			}
		}
	})
}
