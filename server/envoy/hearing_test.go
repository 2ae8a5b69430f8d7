package envoy

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/xds"
)

// stranger is a node on demand in a namespace of its own, whose virtual hosts nobody else asks for.
func stranger() *corev3.Node {
	n := node("nobodys", "NONE", "")
	n.GetMetadata().GetFields()[metadataOnDemand] = structpb.NewBoolValue(true)
	return n
}

func contented(string, string, []byte) string { return "" }

// disliked is said of what has one of some texts.
func disliked(texts ...string) func(string, string, []byte) string {
	return func(_, _ string, body []byte) string {
		if slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(body, []byte(text)) }) {
			return "no"
		}
		return ""
	}
}

func (c *critic) hasHost(name, text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.has[xds.VHostURL+"/80/"+name+".internal"], []byte(text))
}

func (c *critic) hasLost() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lost)
}

// What Envoys have accepted of an object speaks for it, whatever somebody else is told it under.
func TestWhatAllAcceptedIsNotRolledBackByOne(t *testing.T) {
	s := serve(t, answering(t, "vs0", "old."))
	honest := s.critic(nodes[0], contented)
	s.eventually(func() bool { return honest.hasRoutes("old.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "vs0", "new.")}, nil)
	s.eventually(func() bool { return honest.hasRoutes("new.") }, "")
	s.critic(stranger(), disliked("new."))
	s.eventually(func() bool { return s.ended(endedContradicted) == 1 }, "")
	require.Empty(t, s.quarantined())
	require.True(t, honest.hasRoutes("new."))
}

// Nobody but the client that complains sees what is tried. That ends when the client hangs up, or is silent for too long.
func TestOnlyWhoComplainsSeesWhatIsTried(t *testing.T) {
	for name, patience := range map[string]time.Duration{"hangs up": time.Hour, "is silent": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := serveWith(t, Options{patience: patience})
			honest := s.critic(nodes[0], func(url, _ string, _ []byte) string {
				if url == xds.RouteURL {
					return "cannot bind" // it has nothing to say of routes
				}
				return ""
			})
			var services []*resource.Resource
			for i := range 5 {
				services = append(services, serviceEntry(t, fmt.Sprintf("vs%d", i)))
			}
			s.table.Apply(services, nil)
			has := func() bool {
				honest.mu.Lock()
				defer honest.mu.Unlock()
				return honest.has[xds.ClusterURL+"/outbound|80||vs4.internal"] != nil
			}
			s.eventually(has, "")

			asked, held := make(chan struct{}), make(chan struct{})
			odd := s.slowCritic(stranger(), rejectingHosts, s.whenHeard(1, func() {
				close(asked)
				<-held
			}))
			<-asked
			if patience == time.Hour {
				close(held)
				odd.leave()
			} else {
				defer close(held)
			}
			s.eventually(func() bool { return s.ended(endedUnexplained) == 1 }, "the hearing has an end")
			require.True(t, has())
			require.Empty(t, honest.hasLost())
			require.Empty(t, s.quarantined())
		})
	}
}

// whenHeard returns what a client does before it answers: something, at the nth time that it is told of virtual hosts while it is heard.
func (s *served) whenHeard(n int, do func()) func(typeURL string) {
	return func(typeURL string) {
		s.catalog.judge.mu.Lock()
		heard := len(s.catalog.judge.hearings) > 0
		s.catalog.judge.mu.Unlock()
		if typeURL != xds.VHostURL || !heard {
			return
		}
		if n--; n == 0 {
			do()
		}
	}
}

func rejectingHosts(url, _ string, body []byte) string {
	if url == xds.VHostURL && body != nil {
		return "no"
	}
	return ""
}

// A whole hearing has a bound, even if the client has answered some of what it was asked, and who exceeds it is not believed.
func TestWhoAnswersSlowlyIsNotBelieved(t *testing.T) {
	s := serveWith(t, Options{patience: 200 * time.Millisecond})
	var services []*resource.Resource
	for i := range 4 {
		services = append(services, serviceEntry(t, fmt.Sprintf("vs%d", i)))
	}
	s.table.Apply(services, nil)
	held := make(chan struct{})
	s.slowCritic(stranger(), rejectingHosts, s.whenHeard(2, func() { <-held }))
	s.eventually(func() bool { return s.ended(endedUnexplained) == 1 }, "")
	close(held)
	s.table.Apply([]*resource.Resource{answering(t, "vs1", "one.")}, nil)
	s.eventually(func() bool { return s.ended(endedUnheard) > 0 }, "")
	require.Empty(t, s.quarantined())
}

// Who is heard for long holds up nobody at another address.
func TestASlowClientHoldsUpNobody(t *testing.T) {
	s := serveWith(t, Options{patience: time.Hour})
	honest := s.critic(nodes[0], func(url, name string, _ []byte) string {
		if url == xds.RouteURL {
			return "cannot bind" // it has nothing to say of routes
		}
		return map[bool]string{true: "no"}[name == "outbound|80||wrong.internal"]
	}, xds.EndpointURL)
	has := func(name string) func() bool {
		return func() bool {
			honest.mu.Lock()
			defer honest.mu.Unlock()
			return honest.has[xds.ClusterURL+"/outbound|80||"+name+".internal"] != nil
		}
	}
	s.table.Apply([]*resource.Resource{serviceEntry(t, "vs0"), serviceEntry(t, "vs1")}, nil)
	s.eventually(has("vs1"), "")
	asked, held := make(chan struct{}), make(chan struct{})
	s.from = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 77)}
	s.slowCritic(stranger(), rejectingHosts, s.whenHeard(1, func() {
		close(asked)
		<-held
	}))
	defer close(held)
	s.eventually(func() bool {
		select {
		case <-asked:
			return true
		default:
			return false
		}
	}, "it is heard")
	s.table.Apply([]*resource.Resource{serviceEntry(t, "wrong"), serviceEntry(t, "good")}, nil)
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"wrong"}) && has("good")() }, "")
}

// What is wrong from the start is left out for those who have nothing else, and the rest goes on.
func TestWhatIsWrongFromTheStartIsFound(t *testing.T) {
	for name, versions := range map[string][]string{"from the start": {bad + "-1"}, "and so is the next": {bad + "-1", bad + "-2"}} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, answering(t, "a", versions[0]), answering(t, "b", "b."), serviceEntry(t, "c"))
			for _, text := range versions[1:] {
				s.table.Apply([]*resource.Resource{answering(t, "a", text)}, nil)
				s.eventually(func() bool {
					s.catalog.mu.RLock()
					defer s.catalog.mu.RUnlock()
					return s.catalog.last.Revision() == s.table.Snapshot().Revision()
				}, "")
			}
			c, other := s.critic(nodes[0], disliking, xds.EndpointURL), s.critic(nodes[1], disliking, xds.EndpointURL)
			s.eventually(func() bool {
				return slices.Equal(s.quarantined(), []string{"a"}) && c.hasRoutes("b.") && other.hasRoutes("b.")
			}, "")
			s.table.Apply([]*resource.Resource{answering(t, "b", "next.")}, nil)
			s.eventually(func() bool { return c.hasRoutes("next.") && other.hasRoutes("next.") }, "")
			s.table.Apply([]*resource.Resource{answering(t, "a", "mended.")}, nil)
			s.eventually(func() bool {
				return len(s.quarantined()) == 0 && c.hasRoutes("next.", "mended.") && other.hasRoutes("next.", "mended.")
			}, "")
			require.Zero(t, s.ended(endedUnheard))
		})
	}
}

// It is found among however many objects it is, a part of them at a time.
func TestWhatIsWrongFromTheStartIsFoundAmongVeryMany(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes three hearings, and the rest between them")
	}
	objects, texts := several(t, 2*maxTrials+500, "x")
	s := serve(t, append(objects, answering(t, "wrong", bad))...) // the last one in order of key
	c := s.critic(nodes[0], disliking)
	found := func() bool { return slices.Contains(s.quarantined(), "wrong") && c.hasRoutes(texts...) }
	require.Eventually(t, found, 5*time.Minute, 10*time.Millisecond) // with nine times as long as each hearing took in between
	require.GreaterOrEqual(t, s.ended(endedUnexplained), 2)
}

func ruleOf(t *testing.T, host string, retries int32) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: host}}, &networking.DestinationRule{
		Host: host + ".internal", TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Http: &networking.ConnectionPoolSettings_HTTPSettings{MaxRetries: retries}}},
	})
	require.NoError(t, err)
	return r
}

func (s *served) convicted() (keys []string) {
	for _, q := range s.catalog.Quarantined() {
		keys = append(keys, string(q.Key.Kind)+" "+q.Key.Name)
	}
	return keys
}

// Where several objects make what is rejected, it is the fault of the last one that came to what was accepted, and of a rule rather than of the service
// for which it is.
func TestTheLastOneThatMakesTheDifferenceIsGuilty(t *testing.T) {
	dislikes := func(url, name string, body []byte) string {
		if url == xds.ClusterURL && name == "outbound|80||a.internal" && bytes.Contains(body, []byte{0x08, 99}) {
			return "no"
		}
		return ""
	}
	service, rule := serviceEntry(t, "a"), ruleOf(t, "a", 99)
	for name, steps := range map[string][][]*resource.Resource{
		"together": {{service, rule}}, "the service first": {{service}, {rule}}, "the rule first": {{rule}, {service}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			c := s.critic(nodes[0], dislikes, xds.EndpointURL)
			has := func(name string) bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.has[xds.ClusterURL+"/outbound|80||"+name+".internal"] != nil
			}
			for i, step := range steps {
				s.table.Apply(append(step, serviceEntry(t, fmt.Sprintf("step%d", i))), nil)
				s.eventually(func() bool { return has(fmt.Sprintf("step%d", i)) }, "")
			}
			s.eventually(func() bool { return slices.Equal(s.convicted(), []string{"DestinationRule a"}) && has("a") }, "the rule is guilty")
			s.table.Apply(nil, []resource.Key{rule.Key()})
			s.eventually(func() bool { return len(s.quarantined()) == 0 && has("a") }, "")
		})
	}
}

// What is rejected with something else is tried again when that changes.
func TestWhatIsInQuarantineIsTriedAgainWhenItsCompanyChanges(t *testing.T) {
	s := serve(t, serviceEntry(t, "a"), serviceEntry(t, "other"))
	c := s.critic(nodes[0], func(url, name string, body []byte) string {
		if url == xds.ClusterURL && name == "outbound|80||a.internal" && bytes.Contains(body, []byte{0x08, 99}) && !bytes.Contains(body, []byte("10.0.0.7")) {
			return "no"
		}
		return ""
	}, xds.EndpointURL)
	has := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return bytes.Contains(c.has[xds.ClusterURL+"/outbound|80||a.internal"], []byte{0x08, 99})
	}
	s.table.Apply([]*resource.Resource{ruleOf(t, "a", 99)}, nil)
	s.eventually(func() bool { return slices.Equal(s.convicted(), []string{"DestinationRule a"}) }, "")
	s.table.Apply([]*resource.Resource{ruleOf(t, "other", 3)}, nil)
	named, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "a"}}, &networking.ServiceEntry{
		Hosts: []string{"a.internal"}, Ports: []*networking.ServicePort{{Number: 80, Protocol: "HTTP"}}, Resolution: networking.ServiceEntry_DNS,
		Endpoints: []*networking.WorkloadEntry{{Address: "10.0.0.7"}},
	})
	require.NoError(t, err)
	s.table.Apply([]*resource.Resource{named}, nil)
	s.eventually(func() bool { return len(s.quarantined()) == 0 && has() }, "")
	s.eventually(func() bool { return s.ended(endedQuarantined) == 1 }, "once")
}

// The word of a client about what nobody else is told counts for clients of its sort only.
func TestWhatNobodyElseIsToldIsJudgedForTheComplainerOnly(t *testing.T) {
	s := serve(t)
	s.critic(nodes[1], func(_, _ string, body []byte) string { // somebody is there, who has no opinion and does not ask for virtual hosts
		return map[bool]string{true: "cannot bind"}[bytes.Contains(body, []byte("old."))]
	})
	s.table.Apply([]*resource.Resource{answering(t, "vs0", "old.")}, nil)
	odd := s.critic(stranger(), disliked("old."))
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"vs0"}) }, "")
	for _, q := range s.catalog.Quarantined() {
		require.Equal(t, "sidecars in other namespaces", q.Only)
	}
	require.False(t, odd.hasHost("vs0", "old."))
	honest := s.critic(nodes[0], contented)
	s.eventually(func() bool { return honest.hasRoutes("old.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "vs0", "new.")}, nil)
	s.eventually(func() bool {
		return honest.hasRoutes("new.") && odd.hasHost("vs0", "new.") && len(s.quarantined()) == 0
	}, "")
}

// What is remembered of a complaint is bounded, however many resources it names in turn.
func TestWhatWasHeardIsBounded(t *testing.T) {
	const services = 400
	var objects []*resource.Resource
	for i := range services {
		objects = append(objects, serviceEntry(t, fmt.Sprintf("s%05d", i)))
	}
	s := serve(t, objects...)
	var n atomic.Int32
	s.critic(nodes[0], func(url, _ string, _ []byte) string { // it names others each time
		if url != xds.ClusterURL {
			return ""
		}
		var b strings.Builder
		b.WriteString("cannot bind ")
		from := int(n.Add(1)-1) * (maxRejected - 10)
		for i := range maxRejected - 10 {
			fmt.Fprintf(&b, "outbound|80||s%05d.internal: no, ", (from+i)%services)
		}
		return b.String()
	})
	for round := range 4 {
		s.eventually(func() bool { return s.ended(endedMachine) > round }, "")
		s.table.Apply([]*resource.Resource{serviceEntry(t, fmt.Sprint("new", round))}, nil) // something comes, of which it is told
	}
	s.catalog.judge.mu.Lock()
	defer s.catalog.judge.mu.Unlock()
	for _, c := range s.catalog.judge.docket.open {
		require.LessOrEqual(t, len(c.about), maxRejected)
	}
}

// What one client is tried with is not forgotten since another one is heard.
func TestHearingsDoNotDisturbEachOther(t *testing.T) {
	objects := []*resource.Resource{ruleOf(t, "s0", 99)}
	for i := range maxTrials + 100 {
		objects = append(objects, serviceEntry(t, fmt.Sprint("s", i)))
	}
	s := serve(t, objects...)
	dislikes := func(url, name string, body []byte) string { // just the one cluster, so that suspects are few
		if url == xds.ClusterURL && name == "outbound|80||s0.internal" && bytes.Contains(body, []byte{0x08, 99}) {
			return "Error adding/updating cluster(s) outbound|80||s0.internal: no"
		}
		return ""
	}
	asked, held := make(chan struct{}), make(chan struct{})
	s.from = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	var once sync.Once
	honest := s.slowCritic(nodes[0], dislikes, func(url string) {
		s.catalog.judge.mu.Lock()
		heard := len(s.catalog.judge.hearings) > 0
		s.catalog.judge.mu.Unlock()
		if url == xds.ClusterURL && heard {
			once.Do(func() { close(asked); <-held })
		}
	}, xds.EndpointURL)
	<-asked
	for i := range byte(2) { // which have nothing yet either, and reject the routes, which are made of all
		s.from = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 98+i)}
		s.critic(nodes[1], func(url, _ string, _ []byte) string { return map[bool]string{true: "no"}[url == xds.RouteURL] }, xds.EndpointURL)
		s.eventually(func() bool { return s.ended(endedUnexplained) > int(i) }, "")
	}
	close(held)
	s.eventually(func() bool {
		honest.mu.Lock()
		defer honest.mu.Unlock()
		return honest.has[xds.ClusterURL+"/outbound|80||s0.internal"] != nil && slices.Contains(s.convicted(), "DestinationRule s0")
	}, "")
}
