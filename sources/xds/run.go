package xds

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/adsc"
	"tributary/sources"
)

// Run publishes what the server has until ctx ends. It gives up on nothing: a server that cannot be used is reported and
// tried again.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.collect()
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	r := &run{
		source: s, node: s.node(""), sink: sink, kinds: s.kinds, revision: s.settings.Revision, several: len(s.config.Addresses) > 1,
		types: make(map[string]*typeState),
		hops:  s.settings.Hops, looped: make(map[string]bool),
	}
	defer r.reportHops(nil)
	defer s.standing.Store(nil)
	cfg := s.config
	cfg.NodeIn = r.introduce
	cfg.Hooks = adsc.Hooks{Accept: r.accept, Connected: r.onConnected, Failed: r.onFailed, Response: r.onResponse}
	cfg.Hooks.Compared = func(_ string, healed int) { s.healed.Add(float64(healed)) }
	for _, k := range s.kinds {
		for _, url := range k.typeURLs {
			r.types[url] = newTypeState(url, k.schema, r.revision)
		}
	}
	r.recall()
	for _, k := range s.kinds {
		r.asked = append(r.asked, k.typeURLs[0])
		cfg.Subscriptions = append(cfg.Subscriptions, r.subscription(k.typeURLs[0]))
	}
	client, err := adsc.New(cfg)
	if err != nil {
		return err
	}
	r.client = client
	r.publishStanding()
	return client.Run(ctx)
}

// run is the state of one run.
type run struct {
	// read-only
	source   *Source
	sink     sources.Sink
	client   *adsc.Client
	kinds    []kind
	revision string
	several  bool // servers, so that it is worth saying which one is in use
	hops     Hops // nil for none

	// Owned by the goroutine of the client.
	node    *corev3.Node          // of the last stream
	types   map[string]*typeState // by type URL, those not asked for included
	asked   []string              // type URLs
	foreign []string              // groups of an earlier run that was configured otherwise
	server  string                // that we are connected to
	synced  bool

	// Of the way of what is read: see accept.
	said   []string        // instances that the server named when it was last asked; nil before
	looped map[string]bool // servers that are known to read from us, and not by their header
}

// introduce makes the node of a stream.
func (r *run) introduce(namespace string) *corev3.Node {
	r.node = r.source.node(namespace)
	return r.node
}

// recall takes up what an earlier run published.
func (r *run) recall() {
	for _, group := range r.sink.Groups() {
		url, name := splitGroup(group)
		if t := r.types[url]; t != nil {
			t.known[name] = 0
		} else {
			r.foreign = append(r.foreign, group)
		}
	}
}

func (r *run) subscription(typeURL string) adsc.Subscription {
	t := r.types[typeURL]
	handler := func(_ context.Context, resp *adsc.Response) error { return r.publish(t, resp) }
	return adsc.Subscription{TypeURL: typeURL, Handler: handler, Versions: r.versions(t)}
}

// versions returns those of what an earlier run published, as a tributary gives them: it makes them of the content, as we
// do. What it may have in another version, or what we do not hold as it sent it, has none: it is sent again, or is said to
// have gone.
func (r *run) versions(t *typeState) map[string]string {
	recaller, ok := r.sink.(sources.Recaller)
	if !ok || len(t.known) == 0 {
		return nil
	}
	versions := make(map[string]string, len(t.known))
	for name := range t.known {
		versions[name] = ""
		group := groupOf(t.typeURL, name)
		if held := recaller.Published(group); len(held) == 1 && recaller.Exact(group) {
			versions[name] = held[0].Version()
		}
	}
	return versions
}

// publish hands the sink what a response changes, and returns why the response is to be rejected in part.
func (r *run) publish(t *typeState, resp *adsc.Response) error {
	if err := r.loopWith(resp.Server); err != nil {
		return err
	}
	if err := t.fits(resp); err != nil {
		return &adsc.RefusedError{Err: err}
	}
	contents, faults := t.apply(resp)
	if len(contents) > 0 {
		refused := r.sink.ReplaceAll(contents)
		t.refuse(refused)
		faults.addAll(refused)
	}
	t.answered = t.answered || !resp.More
	if err := faults.err(); err != nil {
		return &adsc.RejectedError{Names: t.rejectedOf(resp), Err: err}
	}
	return nil
}

// onResponse follows up a response that was published.
func (r *run) onResponse(resp *adsc.Response, err error) {
	defer r.publishStanding()
	if t := r.types[resp.TypeURL]; t != nil {
		t.record(resp, err)
	}
	if r.loopWith(resp.Server) != nil {
		r.report()
		return
	}
	if resp.More {
		return
	}
	if r.types[resp.TypeURL] == nil {
		return // it is about instances
	}
	if !isTributary(resp.ControlPlane) {
		r.tryAliases(resp)
	}
	if !r.synced && len(r.unanswered()) == 0 {
		r.synced = true
		r.withdrawOld()
		r.sink.Synced()
	}
	r.report()
}

// tryAliases asks for the next alias of a type of which the server has nothing. A tributary has it under all of them.
func (r *run) tryAliases(resp *adsc.Response) {
	if len(r.types[resp.TypeURL].known) > 0 {
		return
	}
	for _, k := range r.kinds {
		i := slices.Index(k.typeURLs, resp.TypeURL)
		if i < 0 || i+1 == len(k.typeURLs) || slices.Contains(r.asked, k.typeURLs[i+1]) {
			continue
		}
		if err := r.client.Subscribe(r.subscription(k.typeURLs[i+1])); err == nil { // it fails for what New refuses, too
			r.asked = append(r.asked, k.typeURLs[i+1])
		}
	}
}

// unanswered returns the types that the server owes an answer. Some never answer for mesh configuration, and it may come
// later.
func (r *run) unanswered() []string {
	var urls []string
	for _, url := range r.asked {
		if t := r.types[url]; !t.schema.Bare && !t.answered {
			urls = append(urls, url)
		}
	}
	return urls
}

// withdrawOld withdraws what an earlier run left and this one does not ask for.
func (r *run) withdrawOld() {
	var contents []sources.Content
	for _, group := range r.foreign {
		contents = append(contents, sources.Content{Group: group})
	}
	for url, t := range r.types {
		if slices.Contains(r.asked, url) {
			continue
		}
		for name := range t.known {
			contents = append(contents, sources.Content{Group: groupOf(url, name)})
		}
		clear(t.known)
	}
	r.foreign = nil
	if len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // nothing in it can be refused
	}
}

func (r *run) onConnected(server string) {
	r.server = server
	defer r.publishStanding()
	for _, t := range r.types {
		t.set = nil // what another stream began is not continued by this one
	}
	r.report()
}

func (r *run) onFailed(err error, _ time.Duration) {
	r.server = ""
	r.publishStanding()
	r.reportFailure(err)
}

// reportFailure reports that nothing can be read.
func (r *run) reportFailure(err error) {
	state := sources.Unreachable
	if adsc.Denied(err) {
		state = sources.Denied
	}
	message := err.Error()
	if advice := adsc.Advice(err, "nodeID"); advice != "" {
		message += ": " + advice
	}
	r.sink.Report(sources.Health{State: state, Message: message})
}

// report reports the health while connected.
func (r *run) report() {
	if err := r.loopWith(r.server); err != nil {
		r.reportFailure(err)
		return
	}
	if urls := r.unanswered(); !r.synced && len(urls) > 0 {
		r.sink.Report(sources.Health{State: sources.Starting, Message: fmt.Sprintf(
			"%s has not answered yet for %s", r.server, some(urls, ", "))})
		return
	}
	var complaints []string
	for _, url := range r.asked {
		t := r.types[url]
		for _, name := range slices.Sorted(maps.Keys(t.complaints)) {
			complaints = append(complaints, t.complaints[name])
		}
	}
	if len(complaints) > 0 {
		r.sink.Report(sources.Health{State: sources.Degraded, Message: some(complaints, "; ")})
		return
	}
	health := sources.Health{State: sources.Healthy}
	if r.several {
		health.Message = "reads from " + r.server
	}
	r.sink.Report(health)
}

// some joins the first of list, and says how many more there are.
func some(list []string, separator string) string {
	const shown = 5
	if n := len(list) - shown; n > 0 {
		return strings.Join(list[:shown], separator) + fmt.Sprintf("%sand %d more", separator, n)
	}
	return strings.Join(list, separator)
}

// Standing is how a source stands with its server.
type Standing struct {
	Server string       // that it is connected to; empty for none
	Node   *corev3.Node // as which it asks; it must not be modified
	Types  []TypeStanding
}

// TypeStanding is how it stands with a type that it asks for.
type TypeStanding struct {
	TypeURL string
	// Version is that of the last response; empty before, and where the server gives none.
	Version string
	Err     error // why that was rejected, in part or as a whole
	At      time.Time
}

// Standing returns how the source stands with its server; nil while it does not run. It is safe for concurrent use.
func (s *Source) Standing() *Standing { return s.standing.Load() }

// publishStanding publishes how the run stands.
func (r *run) publishStanding() {
	now := &Standing{Server: r.server, Node: r.node}
	for _, url := range r.asked {
		t := r.types[url].standing
		t.TypeURL = url
		now.Types = append(now.Types, t)
	}
	r.source.standing.Store(now)
}

// record takes down what became of a response.
func (t *typeState) record(resp *adsc.Response, err error) {
	t.standing.Version, t.standing.Err, t.standing.At = resp.Version, err, time.Now()
}
