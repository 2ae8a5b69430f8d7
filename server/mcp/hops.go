package mcp

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// metadataHops is the key of node metadata by which an instance of tributary that reads from another tells who reads from
// it in turn: a list of chains "instance/its reader/that one's reader…", of which the first is the client itself.
const metadataHops = "TRIBUTARY_HOPS"

// What is remembered of one client, so that none can fill the memory.
const (
	maxChains      = 10_000
	maxChainLength = 4096 // bytes
)

// Hops knows which instances of tributary read from this one, be it through others, and refuses those that this one reads
// from: in a loop of instances nothing that is deleted would ever go away. It is safe for concurrent use.
type Hops struct {
	instance string

	mu      sync.Mutex
	chains  map[string]int // with how many subscriptions told of each
	changed chan struct{}  // closed and replaced when chains come or go
}

// NewHops returns the hops of an instance, which must have a name of its own, without slashes.
func NewHops(instance string) *Hops {
	return &Hops{instance: instance, chains: make(map[string]int), changed: make(chan struct{})}
}

// Instance returns the name of this instance.
func (h *Hops) Instance() string { return h.instance }

// List returns the chains of instances that read from this one, in order.
func (h *Hops) List() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.chains))
}

// Changed returns a channel that is closed when the list has changed.
func (h *Hops) Changed() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}

// join takes note of a client and returns a function that undoes that, or the reason why it is refused. On nil it does
// nothing.
func (h *Hops) join(node *corev3.Node) (leave func(), err error) {
	if h == nil {
		return func() {}, nil
	}
	var chains []string
	for _, v := range node.GetMetadata().GetFields()[metadataHops].GetListValue().GetValues() {
		chain := v.GetStringValue()
		if chain == "" || len(chain) > maxChainLength || len(chains) == maxChains {
			continue
		}
		if hops := strings.Split(chain, "/"); slices.Contains(hops, h.instance) {
			return nil, status.Error(codes.FailedPrecondition, loop(hops[:slices.Index(hops, h.instance)+1]))
		}
		chains = append(chains, chain)
	}
	h.count(chains, 1)
	return sync.OnceFunc(func() { h.count(chains, -1) }), nil
}

func (h *Hops) count(chains []string, by int) {
	if len(chains) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.chains)
	for _, chain := range chains {
		if h.chains[chain] += by; h.chains[chain] == 0 {
			delete(h.chains, chain)
		}
	}
	if len(h.chains) != before { // all that is done here is to add or to remove
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// loop describes what would be one: the first of hops wants to read from the last, which reads from the one before it.
func loop(hops []string) string {
	first, last := hops[0], hops[len(hops)-1]
	if len(hops) == 1 {
		return "a loop: " + first + " would read from itself"
	}
	var b strings.Builder
	b.WriteString("a loop: " + first + " would read from " + last)
	for i := len(hops) - 1; i > 0; i-- {
		b.WriteString(", " + hops[i] + " reads from " + hops[i-1])
	}
	return b.String()
}
