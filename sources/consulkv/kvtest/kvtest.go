// Package kvtest is the part of Consul's HTTP API that a key-value store needs, for tests: blocking prefix queries,
// consistent reads, and check-and-set in transactions, with Consul's indexes. It answers unknown requests with 400.
package kvtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pair is one key, as Consul writes it.
type Pair struct {
	Key                                        string
	CreateIndex, ModifyIndex, LockIndex, Flags uint64
	Value                                      []byte
}

// Consul is a server. Its methods are safe for concurrent use.
type Consul struct {
	server *httptest.Server

	mu       sync.Mutex
	index    uint64 // of the last change of anything
	pairs    map[string]Pair
	deleted  map[string]uint64 // with the index of the deletion
	changed  chan struct{}     // closed by the next change
	trouble  func(w http.ResponseWriter)
	hanging  chan struct{} // closed when it no longer hangs; nil if it does not
	orphan   bool          // it has no leader
	filtered bool
	readOnly bool
	deceives bool
	replay   uint64   // queries that are not consistent get the content of this index; 0 for the present one
	hidden   string   // requests see no key with this prefix, because they have no token
	wiped    int      // how often it lost its data
	waiting  int      // queries that wait for the next change
	reads    []string // queries of reads
}

// first is the index before anything is written.
const first = 10

// New starts a server that ends with the test.
func New(t testing.TB) *Consul {
	consul := &Consul{
		index: first, pairs: make(map[string]Pair), deleted: make(map[string]uint64),
		changed: make(chan struct{}),
	}
	consul.server = httptest.NewServer(consul)
	t.Cleanup(func() {
		consul.Answer(http.StatusInternalServerError, "shutting down") // ends the waits
		consul.server.Close()
	})
	return consul
}

// Addr returns its host:port.
func (c *Consul) Addr() string { return c.server.Listener.Addr().String() }

// Set writes a key.
func (c *Consul) Set(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(Pair{Key: key, Value: []byte(value)})
}

// Delete deletes a key.
func (c *Consul) Delete(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delete(key)
}

// Get returns a value.
func (c *Consul) Get(key string) (value string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pairs[key]
	return string(p.Value), ok
}

// Keys returns all keys, in order.
func (c *Consul) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys("")
}

// Reads returns the queries of all reads so far.
func (c *Consul) Reads() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.reads)
}

// Answer makes it answer every request with a status and text, and headers given as name and value.
func (c *Consul) Answer(status int, text string, headers ...string) {
	c.become(func(response http.ResponseWriter) {
		for i := 0; i+1 < len(headers); i += 2 {
			response.Header().Set(headers[i], headers[i+1])
		}
		http.Error(response, text, status)
	}, false)
}

// HangUp makes it close every connection.
func (c *Consul) HangUp() {
	c.become(func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}, false)
}

// Filter makes it answer as to a token that may not see the keys, which is not said with a status.
func (c *Consul) Filter() { c.become(nil, true) }

// DenyWrites makes it refuse writes as to a token that may only read: with the answer of a conflict.
func (c *Consul) DenyWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readOnly = true
}

// Deceive answers blocking queries with an empty result, and marks only plain ones as filtered. Consul's streaming
// answers do so when the token is deleted.
func (c *Consul) Deceive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deceives = true
	c.wake()
}

// Hide hides the keys that begin with prefix, as for requests without a token: lists skip them silently, and reads of
// such a key by its name are refused.
func (c *Consul) Hide(prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = prefix
	c.wake()
}

// Replay makes it answer as a leader that has replayed its log up to the nth write only: in part, unless asked for
// consistency.
func (c *Consul) Replay(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replay = first + n
	c.wake()
}

// Orphan makes it a server that has no leader: whoever waits goes on waiting.
func (c *Consul) Orphan() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orphan = true
}

// Overtake has the index go on by n, as others write elsewhere.
func (c *Consul) Overtake(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index += n
}

// Hang makes it accept requests, and answer none until Restore.
func (c *Consul) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = make(chan struct{})
}

// Restore ends Answer, HangUp, Filter, Deceive, Hide, Replay, Orphan and Hang.
func (c *Consul) Restore() {
	c.mu.Lock()
	if c.hanging != nil {
		close(c.hanging)
		c.hanging = nil
	}
	c.deceives, c.hidden, c.replay, c.orphan = false, "", 0, false
	c.mu.Unlock()
	c.become(nil, false)
}

func (c *Consul) become(trouble func(http.ResponseWriter), filtered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble, c.filtered = trouble, filtered
	c.wake()
}

func (c *Consul) wake() {
	close(c.changed)
	c.changed, c.waiting = make(chan struct{}), 0
}

// Waiting returns how many queries wait for the next change.
func (c *Consul) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

func (c *Consul) set(pair Pair) Pair {
	old, ok := c.pairs[pair.Key]
	if ok && old.Flags == pair.Flags && string(old.Value) == string(pair.Value) {
		return old // as Consul, which skips writes of an equal value
	}
	c.index++
	pair.CreateIndex, pair.ModifyIndex = c.index, c.index
	if ok {
		pair.CreateIndex = old.CreateIndex
	}
	c.pairs[pair.Key] = pair
	delete(c.deleted, pair.Key)
	c.wake()
	return pair
}

func (c *Consul) delete(key string) {
	if _, ok := c.pairs[key]; !ok {
		return
	}
	c.index++
	delete(c.pairs, key)
	c.deleted[key] = c.index
	c.wake()
}

func (c *Consul) keys(prefix string) []string {
	var keys []string
	for key := range c.pairs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// ServeHTTP implements http.Handler.
func (c *Consul) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	trouble, hanging := c.trouble, c.hanging
	c.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-request.Context().Done():
			return
		}
	}
	if trouble != nil {
		trouble(response)
		return
	}
	key, isKey := strings.CutPrefix(request.URL.Path, "/v1/kv/")
	switch {
	case isKey && request.URL.Query().Has("keys"):
		c.mu.Lock()
		orphan, index := c.orphan, c.indexOf(key, true)
		c.mu.Unlock()
		response.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
		response.Header().Set("X-Consul-LastContact", "0")
		response.Header().Set("X-Consul-KnownLeader", strconv.FormatBool(!orphan))
		_, _ = response.Write([]byte("[]")) // their names do not matter
	case isKey && request.Method == http.MethodGet:
		c.get(response, request, key)
	case request.URL.Path == "/v1/txn" && request.Method == http.MethodPut:
		c.transact(response, request)
	case request.URL.Path == "/v1/internal/acl/authorize" && request.Method == http.MethodPost:
		c.authorize(response, request)
	default:
		http.Error(response, "no handler for "+request.Method+" "+request.URL.Path, http.StatusMethodNotAllowed)
	}
}

// authorize answers which keys may be read.
func (c *Consul) authorize(response http.ResponseWriter, r *http.Request) {
	var questions []struct{ Resource, Access, Segment string }
	if err := json.NewDecoder(r.Body).Decode(&questions); err != nil || len(questions) > 64 {
		http.Error(response, fmt.Sprintf("%d questions: %v", len(questions), err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	hidden := c.hidden
	c.mu.Unlock()
	if hidden == "" {
		http.Error(response, "ACL support disabled", http.StatusUnauthorized)
		return
	}
	answers := make([]struct{ Allow bool }, len(questions))
	for i, q := range questions {
		answers[i].Allow = q.Resource == "key" && q.Access == "read" && !strings.HasPrefix(q.Segment, hidden)
	}
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(answers)
}

// query is the parameters of a read.
type query struct {
	recurse    bool
	consistent bool
	index      uint64
	wait       time.Duration
}

func parse(values url.Values) (query query, err error) {
	query.wait = 5 * time.Minute
	for name := range values {
		value := values.Get(name)
		switch name {
		case "recurse":
			query.recurse = true
		case "index":
			query.index, err = strconv.ParseUint(value, 10, 64)
		case "wait":
			query.wait, err = time.ParseDuration(value)
		case "consistent":
			query.consistent = true
		default:
			err = fmt.Errorf("unknown parameter %s", name)
		}
		if err != nil {
			return query, err
		}
	}
	return query, nil
}

func (c *Consul) get(w http.ResponseWriter, request *http.Request, key string) {
	query, err := parse(request.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), query.wait)
	defer cancel()
	c.mu.Lock()
	c.reads = append(c.reads, request.URL.RawQuery)
	wiped := c.wiped
	for {
		pairs, index, changed := c.find(key, query.recurse), c.indexOf(key, query.recurse), c.changed
		if c.trouble != nil {
			trouble := c.trouble
			c.mu.Unlock()
			trouble(w)
			return
		}
		if c.replay > 0 && !query.consistent {
			index := c.replay
			c.mu.Unlock()
			answer(w, slices.DeleteFunc(pairs, func(p Pair) bool { return p.ModifyIndex > index }), index)
			return
		}
		if c.hidden != "" {
			refused := !query.recurse && strings.HasPrefix(key, c.hidden)
			pairs = slices.DeleteFunc(pairs, func(p Pair) bool { return strings.HasPrefix(p.Key, c.hidden) })
			c.mu.Unlock()
			if refused {
				http.Error(w, "Permission denied: anonymous token lacks permission 'key:read' on \""+key+"\"", http.StatusForbidden)
			} else {
				answer(w, pairs, index)
			}
			return
		}
		if c.deceives {
			if query.index == 0 {
				w.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
			}
			c.mu.Unlock()
			answer(w, nil, index)
			return
		}
		if query.index == 0 || index > query.index || c.filtered { // an index of the future waits, as with Consul 1.22
			if c.filtered {
				w.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
				pairs = nil
			}
			c.mu.Unlock()
			answer(w, pairs, index)
			return
		}
		c.waiting++
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
			if c.wiped != wiped {
				c.mu.Unlock()
				panic(http.ErrAbortHandler) // that process has ended, and its connections with it
			}
		case <-ctx.Done():
			query.index = 0
			c.mu.Lock()
			if changed == c.changed {
				c.waiting--
			}
		}
	}
}

func (c *Consul) find(key string, recurse bool) (pairs []Pair) {
	if !recurse {
		if p, ok := c.pairs[key]; ok {
			pairs = append(pairs, p)
		}
		return pairs
	}
	for _, k := range c.keys(key) {
		pairs = append(pairs, c.pairs[k])
	}
	return pairs
}

// indexOf is the index of an answer: that of the newest change or remembered deletion below the key, or, without one,
// that of everything.
func (c *Consul) indexOf(key string, recurse bool) (index uint64) {
	concerned := func(k string) bool { return k == key || recurse && strings.HasPrefix(k, key) }
	for k, p := range c.pairs {
		if concerned(k) {
			index = max(index, p.ModifyIndex)
		}
	}
	for k, deletedAt := range c.deleted {
		if concerned(k) && recurse {
			index = max(index, deletedAt)
		}
	}
	if index == 0 {
		return c.index
	}
	return index
}

func answer(response http.ResponseWriter, pairs []Pair, index uint64) {
	response.Header().Set("X-Consul-Index", strconv.FormatUint(index, 10))
	response.Header().Set("X-Consul-KnownLeader", "true")
	response.Header().Set("X-Consul-LastContact", "0")
	response.Header().Set("Content-Type", "application/json")
	if len(pairs) == 0 {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(response).Encode(pairs)
}

func (c *Consul) transact(response http.ResponseWriter, request *http.Request) {
	var operations []struct {
		KV struct {
			Verb, Key    string
			Value        []byte
			Index, Flags uint64
		}
	}
	decoder := json.NewDecoder(request.Body)
	if err := decoder.Decode(&operations); err != nil || len(operations) != 1 {
		http.Error(response, fmt.Sprintf("want one operation, got %d: %v", len(operations), err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	operation := operations[0].KV
	pair := c.pairs[operation.Key] // of index 0 if it is not there
	var results []map[string]Pair
	switch {
	case c.readOnly:
		conflict(response,
			"Permission denied: token with AccessorID '0' lacks permission 'key:write' on \""+operation.Key+"\"")
		return
	case operation.Verb != "cas" && operation.Verb != "delete-cas":
		http.Error(response, "unknown verb "+operation.Verb, http.StatusBadRequest)
		return
	case pair.ModifyIndex != operation.Index:
		verb := map[string]string{"cas": "set", "delete-cas": "delete"}[operation.Verb]
		conflict(response, fmt.Sprintf("failed to %s key %q, index is stale", verb, operation.Key))
		return
	case operation.Verb == "cas":
		p := c.set(Pair{Key: operation.Key, Value: operation.Value, Flags: operation.Flags})
		p.Value = nil // as Consul, which returns none for writes
		results = append(results, map[string]Pair{"KV": p})
	default:
		c.delete(operation.Key)
	}
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(map[string]any{"Results": results, "Errors": nil})
}

// conflict is how a transaction fails.
func conflict(w http.ResponseWriter, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"Results": nil, "Errors": []map[string]any{{"OpIndex": 0, "What": message}},
	})
}
