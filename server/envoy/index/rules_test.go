package index

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// Rules are found exactly where they match, the narrowest wildcard first, and no more once they are gone.
func TestRulesOfAHost(t *testing.T) {
	patterns := []string{"*", "*.internal", "*-b.internal", "*b.internal", "*a-b.internal", "*.a-b.internal", "a-b.internal", "*.x.internal"}
	rules := newRules[*networking.DestinationRule]()
	key := func(p string) resource.Key {
		return resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: p}
	}
	for _, p := range patterns {
		rules.set(key(p), &model.DestinationRule{Key: key(p), Hosts: []string{p}})
	}
	for _, host := range []string{
		"a-b.internal", "b.internal", "x.a-b.internal", "*.internal", "*.a-b.internal", "*", "elsewhere",
		"*b.internal",
	} {
		want := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !model.Matches(p, host) })
		slices.SortStableFunc(want, func(a, b string) int {
			if model.IsWildcard(a) != model.IsWildcard(b) {
				return map[bool]int{true: 1, false: -1}[model.IsWildcard(a)]
			}
			return len(b) - len(a)
		})
		var got []string
		for p, r := range rules.forHost(host) {
			require.Equal(t, []string{p}, r.Hosts)
			got = append(got, p)
		}
		require.Equal(t, want, got, host)
	}
	for _, p := range patterns {
		rules.set(key(p), nil)
	}
	require.Empty(t, rules.wildcards)
	require.Empty(t, rules.lengths)
	for range rules.forHost("a-b.internal") {
		t.Fatal("no rule found")
	}
}
