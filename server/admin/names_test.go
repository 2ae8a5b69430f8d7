package admin_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"tributary/resource"
	"tributary/server/admin"
	"tributary/sources"
)

// TestExplain_AddressOrRegistryName explains the objects with an address, or with a name in a registry, and the
// instances that are left out.
func TestExplain_AddressOrRegistryName(t *testing.T) {
	newObject := func(kind resource.Kind, name string, annotations map[string]string, spec proto.Message) *resource.Resource {
		r, err := resource.New(resource.Meta{
			Key: resource.Key{Kind: kind, Namespace: "dubbo", Name: name}, Annotations: annotations,
			Origin: resource.Origin{Source: "rpc"},
		}, spec)
		require.NoError(t, err)
		return r
	}
	objects := []*resource.Resource{
		newObject(resource.ServiceEntry, "demo", map[string]string{"tributary/dubbo-interface": "com.acme.Demo", "owner": "com.acme.Other"},
			&networking.ServiceEntry{
				Hosts: []string{"demo.rpc"}, Addresses: []string{"240.240.0.1"},
				Endpoints: []*networking.WorkloadEntry{{Address: "10.2.0.2"}, {Address: "2001:db8::8"}},
			}),
		newObject(resource.WorkloadEntry, "vm", nil, &networking.WorkloadEntry{Address: "10.2.0.2"}),
		newObject(resource.AuthorizationPolicy, "deny-all", nil, &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_DENY}),
	}
	out := func(name string) []sources.LeftOut {
		return []sources.LeftOut{{Source: "rpc", Group: "com.acme.Demo", What: name, Of: "com.acme.Demo", Why: "weight 0"}}
	}
	demo := fmt.Sprint([]resource.Key{{Kind: resource.ServiceEntry, Namespace: "dubbo", Name: "demo"}})
	w := &world{
		leavingOut: map[string][]sources.LeftOut{
			"demo.rpc" + demo: out("10.2.0.3:20880"), "com.acme.Demo" + demo: out("10.2.0.4:20880"), "10.2.0.5[]": out("10.2.0.5:20880"),
		},
		sources: []sources.Status{{Name: "rpc", Quarantined: []sources.Quarantined{{Group: "g", Place: "vip bothsame (secure)", Reason: "no"}}}},
	}
	server := newServer(w, serving(t, "rpc", objects...))
	for query, want := range map[string]struct {
		why     string
		objects []string
		omitted string
		unread  int
	}{
		"demo.rpc":       {"1 object references demo.rpc", []string{"demo"}, "10.2.0.3:20880", 0},
		"com.acme.Demo":  {"1 object: with this name, or with this name in a registry", []string{"demo"}, "10.2.0.4:20880", 0},
		"com.acme.Other": {"no object references com.acme.other", nil, "", 1},
		"deny-all":       {"1 object: with this name, or with this name in a registry", []string{"deny-all"}, "", 0},
		"10.2.0.2":       {"2 objects have the address 10.2.0.2", []string{"demo", "vm"}, "", 0},
		"10.2.0.2:20880": {"2 objects have the address 10.2.0.2:20880", []string{"demo", "vm"}, "", 0},
		"2001:0db8:0::8": {"1 object has the address 2001:0db8:0::8", []string{"demo"}, "", 0},
		"240.240.0.1":    {"1 object has the address 240.240.0.1", []string{"demo"}, "", 0},
		"10.2.0.5":       {"no object references 10.2.0.5", nil, "10.2.0.5:20880", 0},
		"10.2.0.20":      {"no object references 10.2.0.20", nil, "", 0},
	} {
		explanation := page[admin.Explanation](t, server, "/debug/explain?host="+url.QueryEscape(query))
		assert.Equal(t, want.why, explanation.Why, query)
		var names []string
		for _, o := range explanation.Objects {
			names = append(names, o.Object.Name)
			assert.Equal(t, o.Object.Kind == resource.AuthorizationPolicy, strings.Contains(o.Content, "action: DENY"),
				"the content of a policy: %q", o.Content)
		}
		assert.ElementsMatch(t, want.objects, names, query)
		omitted := ""
		for _, l := range explanation.LeftOut {
			omitted += l.What
		}
		assert.Equal(t, want.omitted, omitted, query)
		assert.Len(t, explanation.PossibleDocuments, want.unread, query)
	}
}
