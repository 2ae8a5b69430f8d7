package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/translate"
)

// A ring that keeps Envoys busy at each change is served as it is asked for, and named.
func TestLargeRing_ServedAndNamed(t *testing.T) {
	for size, named := range map[int]bool{1024: false, translate.LargeRing: false, 9_000_000: true} {
		rule := decoded(t, fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: default}
spec: {host: one.internal, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true, ringHash: {minimumRingSize: %d}}}}}
`, size))[0]
		findings := strings.Join(WithoutEffect(rule), "\n")
		require.Equal(t, named, strings.Contains(findings, "keeps an Envoy busy"), "%d: %s", size, findings)
	}
}
