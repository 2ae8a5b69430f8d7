package derive_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
)

// TestLongestNames derives objects from names of the greatest length, as GatewayNameMaximumLength of the conformance
// suite does. Their names are valid, and differ if those of their origins do.
func TestLongestNames(t *testing.T) {
	s := derive.NewSet(derive.Options{})
	longest := strings.Repeat("a", 252)
	listener := strings.Repeat("l", 252)
	for _, last := range []string{"b", "c"} {
		put(t, s, v1, "Gateway", "edge/"+longest+last, "{gatewayClassName: istio, listeners: ["+
			"{name: "+listener+"b, port: 443, protocol: TLS, tls: {mode: Passthrough}, hostname: a.example}, "+
			"{name: "+listener+"c, port: 80, protocol: HTTP}]}")
		put(t, s, v1, "TLSRoute", "edge/"+longest+last,
			"{parentRefs: [{name: "+longest+last+"}], hostnames: [a.example], rules: [{backendRefs: [{name: b, port: 443}]}]}")
		put(t, s, v1, "BackendTLSPolicy", "edge/"+last, "{targetRefs: [{kind: Service, group: \"\", name: "+longest+last+"}], "+
			"validation: {hostname: a.example, wellKnownCACertificates: System}}")
	}
	derived, problems := s.Derive()
	require.Len(t, derived, 8, problems)
	for _, object := range derived {
		require.LessOrEqual(t, len(object.Key().Name), 253)
	}
}
