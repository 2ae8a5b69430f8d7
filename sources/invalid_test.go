package sources

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
)

// watchedTable records after each of its commits whether an object is served or invalid.
type watchedTable struct {
	memstore.Table
	key        resource.Key
	restricted []bool
}

func (t *watchedTable) isRestricted() bool {
	now := t.Snapshot()
	return now.Get(t.key) != nil || slices.Contains(now.Invalid(), t.key)
}

func (t *watchedTable) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	changes, now := t.Table.Apply(puts, deletes)
	t.restricted = append(t.restricted, t.isRestricted())
	return changes, now
}

func (t *watchedTable) SetInvalid(keys []resource.Key) {
	t.Table.SetInvalid(keys)
	t.restricted = append(t.restricted, t.isRestricted())
}

// TestInvalid_NoCommitBetweenLacksPolicy publishes a policy that is valid, invalid or absent at random. Between two
// states that restrict traffic, no commit lacks both the policy and its mark as invalid.
func TestInvalid_NoCommitBetweenLacksPolicy(t *testing.T) {
	policy := resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "default", Name: "deny"}
	valid := resource.FromBody(resource.Meta{Key: policy}, []byte("x"))
	transitions := make(map[[2]string]int)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		table := &watchedTable{key: policy}
		sink := sinkOf(table, nil)
		previous := "absent"
		for range 20 {
			before := table.isRestricted()
			table.restricted = nil
			state := []string{"absent", "valid", "invalid"}[random.IntN(3)]
			switch content := many("g", random.IntN(3)); state {
			case "absent":
				require.NoError(t, replace(sink, "g", content))
			case "valid":
				require.NoError(t, replace(sink, "g", append(content, valid)))
			case "invalid":
				require.Error(t, replace(sink, "g", content, broken("g", policy).Rejects...))
			}
			after := table.isRestricted()
			require.True(t, after || state == "absent", "seed %d: %s", seed, state)
			if before && after {
				require.NotContains(t, table.restricted, false, "seed %d: from %s to %s", seed, previous, state)
			}
			transitions[[2]string{previous, state}]++
			previous = state
		}
	}
	require.Len(t, transitions, 9)
}
