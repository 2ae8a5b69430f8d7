package derive_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/derive"
)

// An alternative name that is not understood lets nothing connect.
func TestAlternativeNamesThatAreNotUnderstood(t *testing.T) {
	for _, validation := range []string{
		", validation: {hostname: a.example, subjectAltNames: [{type: Email, email: a}]}",
		", validation: {hostname: a.example, subjectAltNames: [{type: URI, uri: 'spiffe://a/b'}, {type: Hostname}]}",
	} {
		s := derive.NewSet(derive.Options{})
		put(t, s, v1, "BackendTLSPolicy", "shop/p", "{targetRefs: [{group: '', kind: Service, name: a}]"+validation+"}")
		made, problems := s.Derive()
		require.Len(t, made, 1, validation)
		_, err := resource.Validate(made[0])
		require.NoError(t, err, validation)
		spec, err := made[0].Spec()
		require.NoError(t, err)
		require.Equal(t, "invalid://", spec.(*networking.DestinationRule).GetTrafficPolicy().GetTls().GetCredentialName(), validation)
		require.NotEmpty(t, problems, validation)
	}
}
