package conflicts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/memstore"
	"tributary/resource"
)

// TestConflicts_EmptySelectors: in istiod (pilot/pkg/model), initSidecarScopes puts each Sidecar whose workloadSelector
// is set, also an empty one, before those without; mergedNamespaceConfig skips each ProxyConfig whose selector is set,
// also an empty one.
func TestConflicts_EmptySelectors(t *testing.T) {
	object := func(kind resource.Kind, name string, month time.Month, spec proto.Message) *resource.Resource {
		r, err := resource.New(resource.Meta{
			Key:     resource.Key{Kind: kind, Namespace: "shop", Name: name},
			Created: time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC),
		}, spec)
		require.NoError(t, err)
		return r
	}
	var table memstore.Table
	table.Apply([]*resource.Resource{
		object(resource.Sidecar, "a-old", 1, &networking.Sidecar{}),
		object(resource.Sidecar, "b-new", 2, &networking.Sidecar{WorkloadSelector: &networking.WorkloadSelector{}}),
		object(resource.ProxyConfig, "a-old", 1, &networkingv1beta1.ProxyConfig{Selector: &typev1beta1.WorkloadSelector{}}),
		object(resource.ProxyConfig, "b-new", 2, &networkingv1beta1.ProxyConfig{}),
	}, nil)
	var x Index
	x.Follow(&table)
	for _, c := range x.Conflicts() {
		require.Equal(t, "b-new", c.Objects[0].Name, "%s: %q", c.Rule, c.Message)
	}
}

// TestConflicts_RevisionsDoNotCompete: an istiod reads only the objects of its revision, so that objects of two
// revisions never compete.
func TestConflicts_RevisionsDoNotCompete(t *testing.T) {
	var table memstore.Table
	for _, revision := range []string{"stable", "canary"} {
		r, err := resource.New(resource.Meta{
			Key:    resource.Key{Kind: resource.Sidecar, Namespace: "shop", Name: revision},
			Labels: map[string]string{"istio.io/rev": revision},
		}, &networking.Sidecar{})
		require.NoError(t, err)
		table.Apply([]*resource.Resource{r}, nil)
	}
	var x Index
	x.Follow(&table)
	require.Empty(t, x.Conflicts())
}
