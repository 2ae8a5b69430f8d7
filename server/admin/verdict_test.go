package admin_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/server/admin"
)

func TestVerdict_SentenceAndSources(t *testing.T) {
	const healthy, away, lossy = "{name: rules, state: healthy}",
		"{name: consul, state: unreachable, message: no route, address: 'consul://10.0.0.1:8500'}",
		"{name: eureka, state: healthy, hold: {id: h1, objects: 40, why: all are gone}}"
	for name, c := range map[string]struct {
		status, want string
		about        []string
	}{
		"well": {"{sources: [" + healthy + "], objects: 2}", "ok: 1 source, 2 objects, 0 clients", nil},
		"one":  {"{sources: [" + healthy + ", " + away + "]}", "source consul is unreachable: no route", []string{"consul"}},
		"several": {
			"{sources: [" + away + ", " + lossy + "]}",
			"source eureka lost 40 objects, which are held: all are gone; and 1 more",
			[]string{"eureka", "consul"},
		},
		"not enforced": {
			`{unenforced: 2, not_enforced: [{kind: AuthorizationPolicy, namespace: a, name: deny,
				why: "web at 10.0.0.1:5: no request is denied"}]}`,
			"2 security objects are not enforced on Envoys and gRPC clients: AuthorizationPolicy a/deny " +
				"(web at 10.0.0.1:5: no request is denied), and 1 more",
			[]string{""},
		},
		"not ready": {
			"{missing: [source consul is not synced], sources: [" + away + "]}",
			"not ready: source consul is not synced",
			[]string{""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := parsed[admin.Status](t, c.status)
			verdict := status.Verdict()
			assert.Equal(t, c.want, verdict.Sentence)
			assert.Equal(t, c.about == nil, verdict.Well)
			assert.Equal(t, len(status.Obstacles) == 0, verdict.Ready)
			var about []string
			for _, trouble := range verdict.Troubles {
				about = append(about, trouble.Source)
				assert.NotEmpty(t, trouble.Advice)
			}
			assert.Equal(t, c.about, about)
		})
	}
	status := parsed[admin.Status](t, "{sources: ["+lossy+"]}")
	assert.Equal(t, []string{"guard", "release", "eureka", "--hold", "h1"}, status.Troubles()[0].Arguments)
}

// TestTroubles_HarmOfRejections checks the harm and the advice of a rejection by a client that may have no version.
func TestTroubles_HarmOfRejections(t *testing.T) {
	for acked, harm := range map[string]admin.Harm{"": admin.HarmRefused, "v1": admin.HarmFrozen} {
		st := admin.Status{Rejected: []admin.Rejected{{Node: "n", Peer: "p", TypeURL: "t", Error: "in use", Clients: 1, Acked: acked}}}
		trouble := st.Troubles()[0]
		assert.Equal(t, harm, trouble.Harm)
		assert.Contains(t, trouble.Advice, "or none")
		assert.Contains(t, trouble.Advice, "client kick NODE")
	}
}

// TestTroubles_ExplainOnlyKnownKinds advises explain for objects of kinds that it knows, and the file for others.
func TestTroubles_ExplainOnlyKnownKinds(t *testing.T) {
	const unknown, known = "{source: rules, kind: ServiceEntri, namespace: shop, name: a, " +
		"place: 'a.yaml:2:7', reason: bad}",
		"{source: rules, kind: Sidecar, namespace: shop, name: a, place: 'b.yaml:1', reason: bad}"
	for invalid, run := range map[string][]string{
		unknown:                {"status"},
		unknown + ", " + known: {"explain", "Sidecar", "shop/a"},
		strings.ReplaceAll(known, "Sidecar", "HTTPRoute"): {"explain", "HTTPRoute", "shop/a"},
	} {
		status := parsed[admin.Status](t, "{quarantined: 2, invalid: ["+invalid+"]}")
		trouble := status.Troubles()[0]
		assert.Equal(t, run, trouble.Arguments, invalid)
		assert.Equal(t, invalid == unknown, strings.Contains(trouble.Advice, "a.yaml:2:7 of rules"), trouble.Advice)
	}
}

// TestTroubles_LoopNeedsNoCredentials gives no advice about credentials if the server reads from this one.
func TestTroubles_LoopNeedsNoCredentials(t *testing.T) {
	status := admin.Status{Sources: []admin.SourceState{{
		Name: "up", State: "denied", Address: "xds://b:15010", Synced: true, Message: "FailedPrecondition: a loop: b:15010 reads " +
			"from this tributary, directly or through others; remove one of the sources",
	}}}
	assert.Equal(t, "Its previous objects are still served. Remove the source here, or the one there.",
		status.Troubles()[0].Advice)
}

// TestTroubles_WorstFirst checks the order by the harm to clients, and the advice for each state.
func TestTroubles_WorstFirst(t *testing.T) {
	status := parsed[admin.Status](t, `
config: {failed: "2026-01-02T12:00:00Z", error: unknown key}
sources:
- {name: a, state: unreachable, synced: true, notKept: disk full, address: "consul://a"}
- {name: b, state: denied, synced: true, address: "consul://b"}
- {name: c, state: degraded, synced: true, message: Consul seems to have lost its data, address: "consul://c",
   unconfirmed: 2, unconfirmedUntil: "2026-01-02T12:00:00Z"}
- {name: d, state: degraded, synced: true, message: "a.yaml: permission denied"}
- {name: e, state: healthy, synced: true, hold: {id: h, endpoints: 64, why: gone}}
quarantined: 1
unresolved:
- {kind: VirtualService, namespace: shop, name: web, source: rules, place: "a.yaml:3",
   message: no ServiceEntry has the host b}
refused: [{kind: VirtualService, namespace: shop, name: web, source: rules, message: too large}]
refused_count: 2
unresolved_count: 2
unchecked_count: 1
unchecked: [c.example]
certificates:
- {listener: xdsTLS, expired: true, notAfter: "2026-01-02T12:00:00Z"}
- {listener: admin, soon: true, notAfter: "2026-01-02T12:00:00Z"}
history: {error: disk full}
`)
	var texts []string
	advice := make(map[string]string)
	for _, trouble := range status.Troubles() {
		texts = append(texts, trouble.Text)
		advice[trouble.Text] = trouble.Advice
		assert.NotEmpty(t, trouble.Advice)
		assert.NotEmpty(t, trouble.Arguments)
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
