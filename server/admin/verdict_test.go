package admin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/aggregate/conflicts"
	"tributary/server/admin"
)

func TestVerdict(t *testing.T) {
	healthy := admin.SourceState{Name: "rules", State: "healthy"}
	away := admin.SourceState{Name: "consul", State: "unreachable", Message: "no route", Address: "consul://10.0.0.1:8500"}
	lossy := admin.SourceState{Name: "eureka", State: "healthy", Hold: &admin.Hold{ID: "h1", Objects: 40, Why: "all are gone"}}
	for name, c := range map[string]struct {
		st    admin.Status
		want  string
		well  bool
		about []string
	}{
		"well": {admin.Status{Sources: []admin.SourceState{healthy}, Objects: 2}, "ok: 1 source, 2 objects, 0 clients", true, nil},
		"one": {
			admin.Status{Sources: []admin.SourceState{healthy, away}},
			"source consul is unreachable: no route", false,
			[]string{"consul"},
		},
		"several": {
			admin.Status{Sources: []admin.SourceState{away, lossy}},
			"source consul is unreachable: no route; and 1 more", false,
			[]string{"consul", "eureka"},
		},
		"not enforced": {
			admin.Status{Unenforced: 2, NotEnforced: []conflicts.Ref{{Kind: "AuthorizationPolicy", Namespace: "a", Name: "deny"}}},
			"2 security objects are not enforced on Envoys and gRPC clients: AuthorizationPolicy a/deny, and 1 more",
			false,
			[]string{""},
		},
		"not ready": {
			admin.Status{Missing: []string{"source consul is not synced"}, Sources: []admin.SourceState{away}},
			"not ready: source consul is not synced",
			false,
			[]string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.st.Verdict()
			assert.Equal(t, c.want, v.Sentence)
			assert.Equal(t, c.well, v.Well)
			assert.Equal(t, len(c.st.Missing) == 0, v.Ready)
			var about []string
			for _, trouble := range v.Troubles {
				about = append(about, trouble.Source)
				assert.NotEmpty(t, trouble.Do)
			}
			assert.Equal(t, c.about, about)
		})
	}
	st := admin.Status{Sources: []admin.SourceState{lossy}}
	assert.Equal(t, []string{"guard", "release", "eureka", "--hold", "h1"}, st.Troubles()[0].Run)
}
