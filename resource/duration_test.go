package resource

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

func TestDuration(t *testing.T) {
	timeout := func(t *testing.T, text string) (*networking.HTTPRoute, Errors) {
		t.Helper()
		docs := Decode("f", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: VirtualService\n"+
			"metadata: {name: a, namespace: b}\nspec: {hosts: [a.example], http: [{timeout: %q}]}\n", text), Options{})
		require.Len(t, docs, 1)
		if docs[0].Resource == nil {
			return nil, docs[0].Errors
		}
		spec, err := docs[0].Resource.Spec()
		require.NoError(t, err)
		return spec.(*networking.VirtualService).GetHttp()[0], nil
	}
	for text, want := range map[string]string{
		"0s": "0s", ".5s": "500ms", "1m30s": "1m30s", "1.000000001s": "1.000000001s", "9223372036s": "2562047h47m16s",
	} {
		route, errs := timeout(t, text)
		require.Empty(t, errs, text)
		require.Equal(t, want, route.GetTimeout().AsDuration().String(), text)
	}
	route, errs := timeout(t, "315576000000s")
	require.Empty(t, errs)
	require.Equal(t, int64(315_576_000_000), route.GetTimeout().GetSeconds())
	for _, text := range []string{"", "s", ".s", "-.s", "0", "1", "1e3s", "1d", "315576000001s"} {
		_, errs := timeout(t, text)
		require.ErrorContains(t, errs, "want a duration", text)
	}
}
