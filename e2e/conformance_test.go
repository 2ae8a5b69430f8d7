package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	confconfig "sigs.k8s.io/gateway-api/conformance/utils/config"
	confsuite "sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// conformanceException is a reason why tests of the suite do not run.
type conformanceException struct{ reason, names string }

var conformanceExceptions = []conformanceException{
	{"They send no requests, and compare statuses, which tributary does not write.", `
		BackendTLSPolicyObservedGenerationBump GatewayClassObservedGenerationBump GatewayInfrastructureMetadata
		GatewayInvalidFrontendClientCertificateValidation GatewayInvalidParametersRef GatewayInvalidRouteKind
		GatewayInvalidTLSBackendConfiguration GatewayInvalidTLSConfiguration GatewayListenerUnsupportedProtocol
		GatewayModifyListeners GatewayObservedGenerationBump GatewayOptionalAddressValue
		GatewaySecretInvalidReferenceGrant GatewaySecretMissingReferenceGrant
		GatewaySecretReferenceGrantAllInNamespace GatewaySecretReferenceGrantSpecific GatewayStaticAddresses
		GatewayWithAttachedRoutes GatewayWithAttachedRoutesWithPort8080 HTTPRouteDisallowedKind
		HTTPRouteInvalidCrossNamespaceParentRef HTTPRouteInvalidParentRefNotMatchingListenerPort
		HTTPRouteInvalidParentRefNotMatchingSectionName HTTPRouteInvalidParentRefSectionNameNotMatchingPort
		HTTPRouteObservedGenerationBump ListenerSetAllowedNamespaceNone ListenerSetAllowedNamespaceSame
		ListenerSetAllowedNamespaceSelector ListenerSetAllowedRoutesSupportedKinds ListenerSetDefaultNotAllowed
		ListenerSetHostnameConflict ListenerSetProtocolConflict ListenerSetReferenceGrant
		ListenerSetRouteStatusScopedToParentRef TCPRouteInvalidBackendRefNonexistent
		TCPRouteInvalidCrossNamespaceBackendRef TCPRouteInvalidNonTCPListener TLSRouteInvalidNoMatchingListener
		TLSRouteInvalidNoMatchingListenerHostname TLSRouteInvalidReferenceGrant
		TLSRouteListenerMixedTerminationNotSupported TLSRouteListenerPassthroughSupportedKinds
		TLSRouteListenerTerminateNotSupported TLSRouteListenerTerminateSupportedKinds
	`},
	{"Istio's API has no routes for UDP. Such listeners are not served, and reported.", `
		UDPRoute UDPRouteInvalidBackendRefNonexistent UDPRouteInvalidCrossNamespaceBackendRef
		UDPRouteMultipleRoutesAttachment UDPRouteNotAllowedByListeners UDPRouteParentRefAttachAllListeners
		UDPRouteParentRefPortAndSectionName UDPRouteReferenceGrant UDPRouteWeightedRouting
	`},
	{
		"`AllowInsecureFallback` lets in clients with any certificate, which Istio's API cannot say. The listener is not " +
			"served, and reported.",
		"GatewayFrontendClientCertificateValidationInsecureFallback",
	},
	{
		"`spec.tls.backend` of a Gateway, its certificate for backends, is not supported, and reported.",
		"GatewayTLSBackendClientCertificate",
	},
	{
		"HTTP goes by the host of the request, not by the address of the Service: Istio's routes are those of a host.",
		"MeshFrontendHostname",
	},
}

// conformanceReason returns why a test does not run; empty if it does.
func conformanceReason(name string) string {
	for _, exception := range conformanceExceptions {
		if slices.Contains(strings.Fields(exception.names), name) {
			return exception.reason
		}
	}
	return ""
}

// TestConformancePage holds that docs/gateway-api.md says which tests of the suite pass, and why others do not run.
func TestConformancePage(t *testing.T) {
	t.Parallel()
	counts := make(map[bool][2]int) // Of meshes: tests that run, and tests with requests.
	for _, test := range tests.ConformanceTests {
		isMesh, reason := strings.HasPrefix(test.ShortName, "Mesh"), conformanceReason(test.ShortName)
		count := counts[isMesh]
		if reason == "" {
			count[0]++
		}
		if reason == "" || !strings.HasPrefix(reason, "They send no requests") && !strings.HasPrefix(test.ShortName, "UDP") {
			count[1]++
		}
		counts[isMesh] = count
	}
	version := filepath.Base(strings.ReplaceAll(gatewayAPIFolder(t), "@", "/"))
	section := fmt.Sprintf("## Conformance\n\nGateway API's own suite (%s) sends its requests through real Envoys: %d of "+
		"its %d tests of HTTP, gRPC, TLS and TCP on gateways pass, and %d\nof %d on "+
		"sidecars (`e2e`: TestGatewayConformance). The others:\n\n"+
		"| why | tests |\n| --- | --- |\n", version, counts[false][0], counts[false][1], counts[true][0], counts[true][1])
	for _, exception := range conformanceExceptions {
		section += fmt.Sprintf("| %s | %s |\n", exception.reason, strings.Join(strings.Fields(exception.names), ", "))
	}
	const page = "../docs/gateway-api.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, after, _ := strings.Cut(string(text), "## Conformance\n")
	_, after, hasNext := strings.Cut(after, "\n## ")
	if hasNext {
		after = "\n## " + after
	}
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+section+after), 0o600))
		return
	}
	require.Contains(t, string(text), section, "run go test -run TestConformancePage -update")
}

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
		for _, test := range tests.ConformanceTests {
			if selected != "" && !slices.Contains(strings.Split(selected, ","), test.ShortName) {
				continue
			}
			t.Run(test.ShortName, func(t *testing.T) {
				if reason := conformanceReason(test.ShortName); reason != "" && selected == "" {
					t.Skip(reason)
				}
				if strings.HasPrefix(test.ShortName, "Mesh") && selected == "" && !isNightly {
					t.Skip("E2E_NIGHTLY=1 runs the tests of the mesh")
				}
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
