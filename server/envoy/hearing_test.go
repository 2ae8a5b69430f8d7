package envoy

import (
	"bytes"
	"fmt"
	"slices"
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
			hosts := 0 // how often it was told of virtual hosts
			odd := s.slowCritic(stranger(), rejectingHosts, func(url string) {
				if url != xds.VHostURL {
					return
				}
				if hosts++; hosts == 2 {
					close(asked)
					<-held
				}
			})
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

func rejectingHosts(url, _ string, _ []byte) string {
	if url == xds.VHostURL {
		return "no"
	}
	return ""
}

// A whole hearing has a bound, however often the client answers, and who exceeds it is not believed.
func TestWhoAnswersSlowlyIsNotBelieved(t *testing.T) {
	s := serveWith(t, Options{patience: 300 * time.Millisecond})
	var services []*resource.Resource
	for i := range 2 {
		services = append(services, serviceEntry(t, fmt.Sprintf("vs%d", i)))
	}
	s.table.Apply(services, nil)
	answers := make(chan struct{}, 100)
	s.slowCritic(stranger(), rejectingHosts, func(url string) {
		if url == xds.VHostURL && len(answers) < cap(answers) {
			answers <- struct{}{}
			time.Sleep(200 * time.Millisecond) // which is how slow it is
		}
	})
	s.eventually(func() bool { return s.ended(endedUnexplained) == 1 }, "")
	s.table.Apply([]*resource.Resource{answering(t, "vs1", "one.")}, nil)
	s.eventually(func() bool { return s.ended(endedUnheard) > 0 }, "")
	require.Empty(t, s.quarantined())
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
	})
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
	require.Equal(t, 1, s.ended(endedQuarantined))
}

// The word of a client about what nobody else is told counts for clients of its sort only.
func TestWhatNobodyElseIsToldIsJudgedForTheComplainerOnly(t *testing.T) {
	s := serve(t)
	s.critic(nodes[1], disliked("old.")) // somebody is there, who does not ask for virtual hosts
	s.table.Apply([]*resource.Resource{answering(t, "vs0", "old.")}, nil)
	odd := s.critic(stranger(), disliked("old."))
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"vs0"}) }, "")
	for _, q := range s.catalog.Quarantined() {
		require.Equal(t, "sidecars in nobodys", q.Only)
	}
	require.False(t, odd.hasHost("vs0", "old."))
	honest := s.critic(nodes[0], contented)
	s.eventually(func() bool { return honest.hasRoutes("old.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "vs0", "new.")}, nil)
	s.eventually(func() bool {
		return honest.hasRoutes("new.") && odd.hasHost("vs0", "new.") && len(s.quarantined()) == 0
	}, "")
}
