package e2e

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	meshtests "sigs.k8s.io/gateway-api/conformance/tests/mesh"
	confconfig "sigs.k8s.io/gateway-api/conformance/utils/config"
	confsuite "sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// TestGatewayConformance runs the tests of Gateway API's own suite that send requests, through one real Envoy for each
// Gateway. The suite reads and writes a real API server by way of conformanceCluster, which starts the programs that a
// cluster would run, and grants every status. The results are a table of docs/gateway-api.md.
func TestGatewayConformance(t *testing.T) {
	if os.Getenv("E2E_INTERCEPTED") == "" {
		t.Parallel()
		inNetworkOfItsOwn(t)
		return
	}
	cluster := startConformanceCluster(t)
	suite := cluster.suite(t)
	suite.Setup(t, tests.ConformanceTests)
	selected := os.Getenv("E2E_CONFORMANCE")
	var started atomic.Int32
	t.Run("suite", func(t *testing.T) {
		for _, test := range slices.Concat(tests.ConformanceTests, meshtests.MeshConformanceTests) {
			if selected != "" && !slices.Contains(strings.Split(selected, ","), test.ShortName) {
				continue
			}
			t.Run(test.ShortName, func(t *testing.T) {
				started.Add(1)
				test.Run(t, suite)
			})
		}
	})
	require.Positive(t, started.Load())
}

// suite returns the suite for this cluster.
func (c *conformanceCluster) suite(t *testing.T) *confsuite.ConformanceTestSuite {
	t.Helper()
	timeouts := confconfig.TimeoutConfig{
		DefaultPollInterval:  50 * time.Millisecond,
		MaxTimeToConsistency: 10 * time.Second, RequestTimeout: 10 * time.Second,
	}
	suite, err := confsuite.NewConformanceTestSuite(confsuite.ConformanceOptions{
		ConfigurableOptions: confsuite.ConfigurableOptions{
			GatewayClassName: "istio", TimeoutConfig: timeouts, CleanupTestResources: true,
			SupportedFeatures: features.SetsToNamesSet(features.AllFeatures).UnsortedList(),
		},
		Client: c, Clientset: c.clientset, RestConfig: c.config,
		BaseManifests: "base/manifests.yaml", MeshManifests: "mesh/manifests.yaml",
		ManifestFS: []fs.FS{conformance.Manifests},
	})
	require.NoError(t, err)
	return suite
}
