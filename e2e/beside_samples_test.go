package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
	"tributary/resource"
)

// inSamples are clients as Istio's samples have them: a sidecar beside them, and the ingress gateway that their Gateways choose.
func inSamples(t *testing.T) map[string]*core.Node {
	t.Helper()
	node := func(role string, labels map[string]any) *core.Node {
		metadata, err := structpb.NewStruct(map[string]any{
			"NAMESPACE": "default", "LABELS": labels, "INTERCEPTION_MODE": "REDIRECT", "ISTIO_VERSION": "1.27.9", "CLUSTER_ID": "Kubernetes",
		})
		require.NoError(t, err)
		return &core.Node{Id: role + "~127.0.0.1~one.default~default.svc.cluster.local", Metadata: metadata}
	}
	return map[string]*core.Node{
		"sidecar": node("sidecar", map[string]any{"app": "curl"}),
		"gateway": node("router", map[string]any{"istio": "ingressgateway"}),
	}
}

// The resources are equal with each of Istio's own samples.
func TestSamplesBesideIstiod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tr := fixture.StartTributaryWith(t, "envoy: {unenforced: warn}\nconfigSources: [{name: files, address: 'fs://"+dir+"', guard: 'off'}]\n")
	only := os.Getenv("BESIDE_SAMPLE") // a part of the name of a file
	for i, s := range samples(t) {
		if !strings.Contains(s.file, only) {
			continue
		}
		mark := "sample-" + strconv.Itoa(i)
		var text strings.Builder
		for _, r := range s.objects {
			document, err := resource.MarshalYAML(r)
			require.NoError(t, err)
			text.WriteString("---\n" + string(document))
		}
		text.WriteString("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: mark, namespace: default}\nspec: " +
			"{hosts: [" + mark + "], ports: [{number: 7777, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: mark.example}]}\n")
		replace(t, dir, text.String())
		nodes := inSamples(t)
		marked := func(addr string, node *core.Node) *fixture.Inventory {
			fixture.Await(t, func() error {
				if fixture.TakeClusters(t, addr, node)["outbound|7777||"+mark] == nil {
					return fmt.Errorf("%s is not there", mark)
				}
				return nil
			})
			return fixture.TakeInventory(t, addr, node)
		}
		ours := make(map[string]*fixture.Inventory)
		for name, node := range nodes {
			ours[name] = marked(tr.XDS, node)
		}
		istiod := istiodBeside(t, tr, "{}")
		istiod.AwaitSynced(t)
		for name, node := range nodes {
			pair := compared{
				gateway: name == "gateway", mongo: strings.Contains(text.String(), "protocol: MONGO"),
				mutual: strings.Contains(text.String(), "ISTIO_MUTUAL"),
				mixed:  s.file == filepath.Join("external", "github.yaml"),
			}
			var lines []string
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) { // it takes one object after another
				lines = compare(t, marked(istiod.GRPC, node), ours[name], pair)
				if len(lines) == 0 || time.Now().After(end) {
					break
				}
			}
			slices.Sort(lines)
			for _, line := range lines {
				t.Errorf("%s, %s: %s", filepath.ToSlash(s.file), name, line)
			}
		}
		istiod.Kill()
	}
}
