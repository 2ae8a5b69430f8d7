package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/transport"
	"tributary/sources"
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
			"source eureka lost 40 objects, which are held: all are gone; and 1 more", false,
			[]string{"eureka", "consul"},
		},
		"not enforced": {
			admin.Status{Unenforced: 2, NotEnforced: []admin.NotEnforced{{
				Ref: conflicts.Ref{Kind: "AuthorizationPolicy", Namespace: "a", Name: "deny"}, Why: "web at 10.0.0.1:5: no request is denied",
			}}},
			"2 security objects are not enforced on Envoys and gRPC clients: AuthorizationPolicy a/deny " +
				"(web at 10.0.0.1:5: no request is denied), and 1 more",
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
			verdict := c.st.Verdict()
			assert.Equal(t, c.want, verdict.Sentence)
			assert.Equal(t, c.well, verdict.Well)
			assert.Equal(t, len(c.st.Missing) == 0, verdict.Ready)
			var about []string
			for _, trouble := range verdict.Troubles {
				about = append(about, trouble.Source)
				assert.NotEmpty(t, trouble.Do)
			}
			assert.Equal(t, c.about, about)
		})
	}
	st := admin.Status{Sources: []admin.SourceState{lossy}}
	assert.Equal(t, []string{"guard", "release", "eureka", "--hold", "h1"}, st.Troubles()[0].Run)
}

// TestTroubles_Rejected checks the harm and the advice of a rejection by a client that may have no version.
func TestTroubles_Rejected(t *testing.T) {
	for acked, harm := range map[string]admin.Harm{"": admin.HarmRefused, "v1": admin.HarmFrozen} {
		st := admin.Status{Rejected: []admin.Rejected{{Node: "n", Peer: "p", TypeURL: "t", Error: "in use", Clients: 1, Acked: acked}}}
		trouble := st.Troubles()[0]
		assert.Equal(t, harm, trouble.Harm)
		assert.Contains(t, trouble.Do, "or none")
		assert.Contains(t, trouble.Do, "client kick NODE")
	}
}

// TestTroubles_UnknownKind advises explain for objects of kinds that it knows, and the file for others.
func TestTroubles_UnknownKind(t *testing.T) {
	invalid := func(kind resource.Kind, place string) admin.Quarantined {
		return admin.Quarantined{Source: "rules", Quarantined: sources.Quarantined{
			Ref: resource.Ref{Kind: kind, Namespace: "shop", Name: "a"}, Place: place, Reason: "no",
		}}
	}
	unknown, known := invalid("ServiceEntri", "a.yaml:2:7"), invalid(resource.Sidecar, "b.yaml:1")
	status := admin.Status{Quarantined: 1, Invalid: []admin.Quarantined{unknown}}
	trouble := status.Troubles()[0]
	assert.Equal(t, []string{"status"}, trouble.Run)
	assert.Contains(t, trouble.Do, "a.yaml:2:7 of rules")
	status = admin.Status{Quarantined: 2, Invalid: []admin.Quarantined{unknown, known}}
	assert.Equal(t, []string{"explain", "Sidecar", "shop/a"}, status.Troubles()[0].Run)
	status = admin.Status{Quarantined: 1, Invalid: []admin.Quarantined{invalid("HTTPRoute", "c.yaml:1")}}
	assert.Equal(t, []string{"explain", "HTTPRoute", "shop/a"}, status.Troubles()[0].Run)
}

// TestTroubles_Loop gives no advice about credentials if the server reads from this one.
func TestTroubles_Loop(t *testing.T) {
	status := admin.Status{Sources: []admin.SourceState{{
		Name: "up", State: "denied", Address: "xds://b:15010", Synced: true, Message: "FailedPrecondition: a loop: b:15010 reads " +
			"from this tributary, directly or through others; remove one of the sources",
	}}}
	assert.Equal(t, "Its previous objects are still served. Remove the source here, or the one there.",
		status.Troubles()[0].Do)
}

// TestTroubles_Order checks the order by the harm to clients, and the advice for each state.
func TestTroubles_Order(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ref := conflicts.Ref{Kind: "VirtualService", Namespace: "shop", Name: "web"}
	status := admin.Status{
		Config: admin.ConfigStatus{Failed: &now, Error: "unknown key"},
		Sources: []admin.SourceState{
			{Name: "a", State: "unreachable", Synced: true, NotKept: "disk full", Address: "consul://a"},
			{Name: "b", State: "denied", Synced: true, Address: "consul://b"},
			{
				Name: "c", State: "degraded", Synced: true, Message: "Consul seems to have lost its data", Address: "consul://c",
				Unconfirmed: 2, UnconfirmedUntil: &now,
			},
			{Name: "d", State: "degraded", Synced: true, Message: "a.yaml: permission denied"},
			{Name: "e", State: "healthy", Synced: true, Hold: &admin.Hold{ID: "h", Endpoints: 64, Why: "gone"}},
		},
		Quarantined:  1,
		Unresolved:   []admin.ObjectProblem{{Ref: ref, Source: "rules", Place: "a.yaml:3", Message: "no ServiceEntry has the host b"}},
		Refused:      []admin.ObjectProblem{{Ref: ref, Source: "rules", Message: "too large"}},
		RefusedCount: 2, UnresolvedCount: 2, UncheckedCount: 1, Unchecked: []string{"c.example"},
		Certificates: []transport.Status{{Listener: "xdsTLS", Expired: true, NotAfter: now}, {Listener: "admin", Soon: true, NotAfter: now}},
		History:      &history.Health{Error: "disk full"},
	}
	var texts []string
	advice := make(map[string]string)
	for _, trouble := range status.Troubles() {
		texts = append(texts, trouble.Text)
		advice[trouble.Text] = trouble.Do
		assert.NotEmpty(t, trouble.Do)
		assert.NotEmpty(t, trouble.Run)
	}
	assert.Equal(t, []string{
		"VirtualService shop/web (rules: a.yaml:3): no ServiceEntry has the host b",
		"1 more reference leads to no object: see /debug/unresolved",
		"VirtualService shop/web (rules): too large",
		"limits.productBytes refuses 1 more object",
		"the certificate of xdsTLS has expired",
		"the configuration file is refused: unknown key",
		"1 object is not valid, and quarantined",
		"source e lost 64 endpoints, which are held: gone",
		"source a is unreachable:",
		"source b is denied:",
		"source c is degraded: Consul seems to have lost its data; 2 items are kept without confirmation until 2026-01-02T12:00:00Z",
		"source d is degraded: a.yaml: permission denied",
		"1 reference cannot be checked, since a source was never read: c.example",
		"source a is not kept on disk: disk full",
		"the certificate of admin expires at 2026-01-02T12:00:00Z",
		"the history cannot be written: disk full",
	}, texts)
	assert.Contains(t, advice[texts[8]], "can be reached")
	for _, i := range []int{9, 10, 11} {
		assert.NotContains(t, advice[texts[i]], "can be reached", texts[i])
	}
	assert.Contains(t, advice[texts[10]], "lost its data")
	assert.NotContains(t, advice["the configuration file is refused: unknown key"], "by itself", "a file is read with reload only")
}
