package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// oracle knows the content of Consul, because it wrote it, and derives from it the objects that tributary has to serve,
// in the simplest words: "s3 at 10007" for an endpoint of a service, "r2 says v5" for a rule. It shares no code with
// the product.
type oracle struct {
	ports   map[string]map[int]bool // by service: the ports of its instances, and whether they pass
	rules   map[string]int          // the version of each
	counter int
	later   []func(*api.Client) error // writes with an unknown outcome

	mu     *sync.Mutex
	steady map[string]bool // words from the beginning of the round without a later change
}

// How many services and rules there may be.
const (
	oracleServices = 12
	oracleRules    = 9
)

func newOracle() oracle {
	return oracle{ports: map[string]map[int]bool{}, rules: map[string]int{}, counter: 10000, mu: new(sync.Mutex)}
}

// words are the objects that tributary has to serve.
func (o *oracle) words() map[string]bool {
	words := map[string]bool{}
	for service, ports := range o.ports {
		for port, passes := range ports {
			if passes {
				words[endpointWord(service, port)] = true
			}
		}
	}
	for rule, version := range o.rules {
		words[ruleWord(rule, version)] = true
	}
	return words
}

func endpointWord(service string, port int) string { return fmt.Sprintf("%s at %d", service, port) }
func ruleWord(rule string, version int) string     { return fmt.Sprintf("%s says v%d", rule, version) }

// begin begins a round.
func (o *oracle) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steady = o.words()
}

// touch says that something is changed, and need not be there until the end of the round.
func (o *oracle) touch(words ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range words {
		delete(o.steady, w)
	}
}

// next chooses a change: an idempotent write, and a function to call after it succeeded.
func (o *oracle) next(rnd *rand.Rand) (write func(*api.Client) error, confirm func()) {
	service, rule := fmt.Sprint("s", rnd.IntN(oracleServices)), fmt.Sprint("r", rnd.IntN(oracleRules))
	ports := slices.Sorted(maps.Keys(o.ports[service]))
	o.counter++
	fresh := o.counter
	switch n := rnd.IntN(10); {
	case n < 4 && len(ports) < 3 || n < 7 && len(ports) == 0:
		return o.register(service, fresh, true), func() { o.set(service, fresh, true) }
	case n < 5:
		port := ports[rnd.IntN(len(ports))]
		passes := !o.ports[service][port]
		o.touch(endpointWord(service, port))
		return o.register(service, port, passes), func() { o.set(service, port, passes) }
	case n < 7:
		port := ports[rnd.IntN(len(ports))]
		o.touch(endpointWord(service, port))
		return o.deregister(service, port), func() { delete(o.ports[service], port) }
	case n < 9 || o.rules[rule] == 0:
		o.touch(ruleWord(rule, o.rules[rule]))
		return o.put(rule, fresh), func() { o.rules[rule] = fresh }
	default:
		o.touch(ruleWord(rule, o.rules[rule]))
		return o.remove(rule), func() { delete(o.rules, rule) }
	}
}

func (o *oracle) set(service string, port int, passes bool) {
	if o.ports[service] == nil {
		o.ports[service] = map[int]bool{}
	}
	o.ports[service][port] = passes
}

// everything are writes of all that there is.
func (o *oracle) everything() (writes []func(*api.Client) error) {
	for _, service := range slices.Sorted(maps.Keys(o.ports)) {
		for _, port := range slices.Sorted(maps.Keys(o.ports[service])) {
			writes = append(writes, o.register(service, port, o.ports[service][port]))
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(o.rules)) {
		writes = append(writes, o.put(rule, o.rules[rule]))
	}
	return writes
}

func nodeOf(port int) string { return fmt.Sprint("node-", port%4) }

func idOf(service string, port int) string { return fmt.Sprint(service, "-", port) }

func (o *oracle) register(service string, port int, passes bool) func(*api.Client) error {
	status := api.HealthCritical
	if passes {
		status = api.HealthPassing
	}
	return func(c *api.Client) error {
		_, err := c.Catalog().Register(&api.CatalogRegistration{
			Node: nodeOf(port), Address: "127.2.0.1",
			Service: &api.AgentService{ID: idOf(service, port), Service: service, Port: port, Meta: map[string]string{"protocol": "http"}},
			Check:   &api.AgentCheck{Node: nodeOf(port), CheckID: "check:" + idOf(service, port), ServiceID: idOf(service, port), Status: status},
		}, nil)
		return err
	}
}

func (o *oracle) deregister(service string, port int) func(*api.Client) error {
	return func(c *api.Client) error {
		_, err := c.Catalog().Deregister(&api.CatalogDeregistration{Node: nodeOf(port), ServiceID: idOf(service, port)}, nil)
		return err
	}
}

func (o *oracle) remove(rule string) func(*api.Client) error {
	return func(c *api.Client) error { _, err := c.KV().Delete("mesh/"+rule, nil); return err }
}

func (o *oracle) put(rule string, version int) func(*api.Client) error {
	text := fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: shop}
spec:
  hosts: [%s.example]
  http: [{route: [{destination: {host: v%d}}]}]
`, rule, rule, version)
	return func(c *api.Client) error {
		_, err := c.KV().Put(&api.KVPair{Key: "mesh/" + rule, Value: []byte(text)}, nil)
		return err
	}
}

// compare describes the difference between the served and the expected words.
func (o *oracle) compare(got map[string]bool) error {
	want := o.words()
	var missing, extra []string
	for word := range want {
		if !got[word] {
			missing = append(missing, word)
		}
	}
	for word := range got {
		if !want[word] {
			extra = append(extra, word)
		}
	}
	if len(missing)+len(extra) == 0 {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(extra)
	return fmt.Errorf("missing %v, too much %v", missing, extra)
}

// served returns the objects of a tributary as words of the oracle.
func served(ctx context.Context, tributary *fixture.Tributary) (map[string]bool, error) {
	words := map[string]bool{}
	entries, err := fixture.ReadServed(ctx, tributary.XDS, "networking.istio.io/v1/ServiceEntry")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var se networking.ServiceEntry
		if err := proto.Unmarshal([]byte(e.Body), &se); err != nil {
			return nil, err
		}
		var service string
		if _, err := fmt.Sscanf(se.Hosts[0], "%2s", &service); err != nil {
			return nil, err
		}
		if se.Hosts[0][len(service)] != '.' {
			service = se.Hosts[0][:3]
		}
		for _, endpoint := range se.Endpoints {
			for _, port := range endpoint.Ports {
				words[endpointWord(service, int(port))] = true
			}
		}
	}
	rules, err := fixture.ReadServed(ctx, tributary.XDS, "networking.istio.io/v1/VirtualService")
	if err != nil {
		return nil, err
	}
	for name, r := range rules {
		var vs networking.VirtualService
		if err := proto.Unmarshal([]byte(r.Body), &vs); err != nil {
			return nil, err
		}
		var version int
		if _, err := fmt.Sscanf(vs.Http[0].Route[0].Destination.Host, "v%d", &version); err != nil {
			return nil, err
		}
		words[ruleWord(name[len("shop/"):], version)] = true
	}
	return words, nil
}

// held returns the confirmed content of a Consul as words of the oracle.
func (o *oracle) held(c *api.Client) (map[string]bool, error) {
	words := map[string]bool{}
	sure := &api.QueryOptions{RequireConsistent: true}
	for n := range oracleServices {
		service := fmt.Sprint("s", n)
		entries, _, err := c.Health().Service(service, "", true, sure)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			words[endpointWord(service, e.Service.Port)] = true
		}
	}
	pairs, _, err := c.KV().List("mesh/", sure)
	if err != nil {
		return nil, err
	}
	for _, pair := range pairs {
		_, destination, _ := strings.Cut(string(pair.Value), "{host: v")
		var version int
		if _, err := fmt.Sscanf(destination, "%d", &version); err != nil {
			return nil, fmt.Errorf("key %s: %w", pair.Key, err)
		}
		words[ruleWord(strings.TrimPrefix(pair.Key, "mesh/"), version)] = true
	}
	return words, nil
}

// stray returns the write that removes the subject of a word from Consul, or nil if the subject belongs there in any
// form.
func (o *oracle) stray(word string) func(*api.Client) error {
	name, port, endpoint := strings.Cut(word, " at ")
	if !endpoint {
		rule, _, _ := strings.Cut(word, " says ")
		if o.rules[rule] != 0 {
			return nil
		}
		return o.remove(rule)
	}
	n, err := strconv.Atoi(port)
	if err != nil { // of our own word
		panic(err)
	}
	if _, registered := o.ports[name][n]; registered {
		return nil
	}
	return o.deregister(name, n)
}
