package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
	"tributary/resource"
)

// besideSteps is a tributary with one mesh after another. A service on port 7777 marks each.
type besideSteps struct {
	t     *testing.T
	dir   string
	tr    *fixture.Tributary
	nodes map[string]*core.Node
}

func newBesideSteps(t *testing.T, nodes map[string]*core.Node) *besideSteps {
	t.Helper()
	dir := t.TempDir()
	return &besideSteps{t, dir, fixture.StartTributaryWith(t, "envoy: {unenforced: warn}\n"+
		"configSources: [{name: files, address: 'fs://"+dir+"', guard: 'off'}]\n"), nodes}
}

// marked returns the resources of a client with a mark.
func (s *besideSteps) marked(addr string, node *core.Node, mark string) *fixture.Inventory {
	fixture.Await(s.t, func() error {
		clusters := fixture.TakeClusters(s.t, addr, node)
		for name := range clusters {
			if strings.HasPrefix(name, "outbound|7777||") && strings.Contains(name, "mark-") && name != "outbound|7777||"+mark {
				return fmt.Errorf("%s is still there", name)
			}
		}
		if clusters["outbound|7777||"+mark] == nil {
			return fmt.Errorf("%s is not there", mark)
		}
		return nil
	})
	return fixture.TakeInventory(s.t, addr, node)
}

// serve makes a text the mesh, and returns what clients get.
func (s *besideSteps) serve(mark, text string) map[string]*fixture.Inventory {
	replace(s.t, s.dir, text)
	ours := make(map[string]*fixture.Inventory)
	for name, node := range s.nodes {
		ours[name] = s.marked(s.tr.XDS, node, mark)
	}
	return ours
}

// compare serves a mesh and compares it with an istiod that never had another one: an old one may still send resources
// of earlier meshes.
func (s *besideSteps) compare(step, mark, text, config string, patience time.Duration, lines func(besidePair) []string) {
	ours := s.serve(mark, text)
	istiod := istiodBeside(s.t, s.tr, fixture.Istiod127, config)
	defer istiod.Kill()
	for name, node := range s.nodes {
		reportLines(s.t, step+", "+name, patience, func() []string {
			return lines(besidePair{fixture.Istiod127, name, s.marked(istiod.GRPC, node, mark), ours[name]})
		})
	}
}

// The resources are equal with random meshes.
func TestRandomMeshesBesideIstiod(t *testing.T) {
	t.Parallel()
	s := newBesideSteps(t, besideNodes(t))
	seeds, from := int(number("BESIDE_SEEDS", byNight[uint64](20, 300))), int(number("BESIDE_FROM", 0))
	for seed := from; seed < from+seeds; seed++ {
		mesh := newRandomMesh(t, seed)
		mark, now, before := mesh.texts(t, seed)
		s.serve("before-"+mark, before) // tributary comes from there, step by step
		s.compare(fmt.Sprint("seed ", seed), mark, now, mesh.config, 3*time.Second, func(p besidePair) []string {
			c := p.usual()
			c.ranged, c.clashes, c.balanced, c.derived, c.split = mesh.ranged, mesh.clashes(), mesh.balanced, mesh.derived, mesh.split
			return slices.DeleteFunc(p.lines(t, c), func(line string) bool {
				// It is unknown which of two namespaces istiod prefers for gateways. Without redirection, it has filter chains
				// for ranges of addresses, which no connection reaches.
				return c.gateway && slices.ContainsFunc(mesh.shared, func(host string) bool { return strings.Contains(line, "|"+host) }) ||
					c.plain && mesh.ranged && strings.HasPrefix(line, "listener 127")
			})
		})
	}
}

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

// The resources are equal with each of Istio's own samples. BESIDE_SAMPLE is a part of the name of a file.
func TestSamplesBesideIstiod(t *testing.T) {
	t.Parallel()
	s := newBesideSteps(t, inSamples(t))
	for i, sample := range samples(t) {
		if !strings.Contains(sample.file, os.Getenv("BESIDE_SAMPLE")) {
			continue
		}
		mark := fmt.Sprintf("mark-%d.internal", i)
		var text strings.Builder
		for _, r := range sample.objects {
			document, err := resource.MarshalYAML(r)
			require.NoError(t, err)
			text.WriteString("---\n" + string(document))
		}
		text.WriteString("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: mark, namespace: default}\nspec: " +
			"{hosts: [" + mark + "], ports: [{number: 7777, name: http, protocol: HTTP}], resolution: DNS, endpoints: [{address: mark.example}]}\n")
		s.compare(filepath.ToSlash(sample.file), mark, text.String(), "", 20*time.Second, func(p besidePair) []string {
			c := p.usual()
			c.mongo, c.mutual = strings.Contains(text.String(), "protocol: MONGO"), strings.Contains(text.String(), "ISTIO_MUTUAL")
			c.mixed = sample.file == filepath.Join("external", "github.yaml")
			return slices.Sorted(slices.Values(p.lines(t, c)))
		})
	}
}
