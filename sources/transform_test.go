package sources

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/transform"
)

func service(name, host string) *resource.Resource {
	r, err := resource.New(resource.Meta{Key: keyed(name), Origin: resource.Origin{Place: "p"}},
		&networking.ServiceEntry{Hosts: []string{host}})
	if err != nil {
		panic(err)
	}
	return r
}

func TestTransform(t *testing.T) {
	within(t, Options{Validate: func(r *resource.Resource) (resource.Errors, error) {
		if spec, err := r.Spec(); err != nil || spec.(*networking.ServiceEntry).GetHosts()[0] == "bad.mesh" {
			return nil, errors.New("bad host")
		}
		return nil, nil
	}}, func(t *testing.T, s *Supervisor) {
		rules, err := transform.New(transform.Settings{
			Exclude:    []transform.Selector{{Names: []string{"secret*"}}},
			Namespaces: map[string]string{"default": "shop"},
			Hosts:      []transform.Host{{Match: "*.consul", To: "{1}.mesh"}},
		})
		require.NoError(t, err)
		shop := func(name string) resource.Key {
			return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
		}
		publish := func(broken bool) Source {
			rs := []*resource.Resource{service("y", "y.consul"), service("z", "bad.consul"), service("secret", "s.consul")}
			rejects := []Reject{{Key: keyed("secret2"), Err: errors.New("broken")}}
			if broken {
				rejects = append(rejects, Reject{Key: keyed("x"), Err: errors.New("broken")})
			} else {
				rs = append(rs, service("x", "x.consul"))
			}
			return whole(groups{"g": rs}, rejectsIn("g", rejects)...)
		}
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Table: table, Transform: rules, Source: publish(false)})
		synctest.Wait()
		requireLen(t, table, 2)
		x := table.Snapshot().Get(shop("x"))
		require.Equal(t, resource.Origin{
			Source: "a", Place: "p", Group: "g", Rules: "namespaces: default → shop; hosts: *.consul → {1}.mesh",
		}, x.Origin())
		quarantineds := s.Status()[0].Quarantined
		require.Len(t, quarantineds, 1, "an excluded object is not quarantined either")
		require.Equal(t, []Excluded{{Source: "a", Key: keyed("secret"), Place: "p"}}, s.Excluding(keyed("secret")))
		require.Empty(t, s.Excluding(keyed("x")))
		require.Equal(t, shop("z"), quarantineds[0].Key())
		require.Contains(t, quarantineds[0].Reason, "bad host (as it is after the transforms: namespaces: default → shop; ")

		configure(t, s, Spec{Name: "a", Table: table, Transform: rules, Source: publish(true)})
		synctest.Wait()
		require.Same(t, x, table.Snapshot().Get(shop("x")), "the transformed key finds the last good version")
		require.Equal(t, memstore.Revision(1), table.Snapshot().Revision())
		require.Len(t, s.Status()[0].Quarantined, 2)

		configure(t, s, Spec{Name: "a", Table: table, Source: publish(false)})
		synctest.Wait()
		require.Nil(t, table.Snapshot().Get(shop("x")), "without the transforms")
		require.NotNil(t, get(table, "x"))
	})
}

// rejectsIn places rejects in a group, for whole.
func rejectsIn(group string, rejects []Reject) []Reject {
	for i := range rejects {
		rejects[i].Origin.Place = group
	}
	return rejects
}
