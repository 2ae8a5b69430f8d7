package derive_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/derive"
)

// A malformed alternative name lets no connection through.
func TestAlternativeNames_MalformedRefusesConnections(t *testing.T) {
	for _, validation := range []string{
		", validation: {hostname: a.example, subjectAltNames: [{type: Email, email: a}]}",
		", validation: {hostname: a.example, subjectAltNames: [{type: URI, uri: 'spiffe://a/b'}, {type: Hostname}]}",
	} {
		s := derive.NewSet(derive.Options{})
		put(t, s, v1, "BackendTLSPolicy", "shop/p", "{targetRefs: [{group: '', kind: Service, name: a}]"+validation+"}")
		derived, problems := s.Derive()
		require.Len(t, derived, 1, validation)
		_, err := resource.Validate(derived[0])
		require.NoError(t, err, validation)
		spec, err := derived[0].Spec()
		require.NoError(t, err)
		require.Equal(t, "invalid://", spec.(*networking.DestinationRule).GetTrafficPolicy().GetTls().GetCredentialName(), validation)
		require.NotEmpty(t, problems, validation)
	}
}
