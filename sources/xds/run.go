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

// Run publishes the resources of the server until ctx ends. It reports errors of the server, and tries again.
func (s *Source) Run(ctx context.Context, sink sources.Sink) error {
	stop, err := s.collect()
	if err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	defer stop()
	run := &run{
		source: s, node: s.node(""), sink: sink, kinds: s.kinds, revision: s.settings.Revision,
		hasSeveralServers: len(s.config.Addresses) > 1,
		types:             make(map[string]*typeState),
		hops:              s.settings.Hops, looped: make(map[string]bool),
	}
	defer run.reportHops(nil)
	defer s.standing.Store(nil)
	config := s.config
	config.NodeIn = run.makeNode
	config.Hooks = adsc.Hooks{
		Accept: run.checkHeader, Connected: run.onConnected, Failed: run.onFailed, Response: run.onResponse,
	}
	config.Hooks.Compared = func(_ string, differences int) { s.differences.Add(float64(differences)) }
	for _, k := range s.kinds {
		for _, url := range k.typeURLs {
			run.types[url] = newTypeState(url, k.schema, run.revision)
		}
	}
	run.restorePublished()
	for _, k := range s.kinds {
		run.requested = append(run.requested, k.typeURLs[0])
		config.Subscriptions = append(config.Subscriptions, run.subscription(k.typeURLs[0]))
	}
	client, err := adsc.New(config)
	if err != nil {
		return err
	}
	run.client = client
	run.publishStanding()
	return client.Run(ctx)
}

// run is the state of one run.
type run struct {
	// read-only
	source            *Source
	sink              sources.Sink
	client            *adsc.Client
	kinds             []kind
	revision          string
	hasSeveralServers bool // the health names the server in use
	hops              Hops // nil for none

	// Owned by the goroutine of the client.
	node      *corev3.Node          // of the last stream
	types     map[string]*typeState // by type URL, also without a subscription
	requested []string              // type URLs
	foreign   []string              // the groups of an earlier run that the settings exclude now
	server    string                // the connected one
	synced    bool

	// Instances of tributary through which the configuration comes; see checkHeader.
	instances []string        // of the server's last answer; nil before
	looped    map[string]bool // servers that read from this program, by their answers
}

// makeNode makes the node of a stream.
func (r *run) makeNode(namespace string) *corev3.Node {
	r.node = r.source.node(namespace)
	return r.node
}

// restorePublished restores the names that an earlier run published.
func (r *run) restorePublished() {
	for _, group := range r.sink.Groups() {
		url, name := splitGroup(group)
		if t := r.types[url]; t != nil {
			t.hashes[name] = 0
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

// versions returns the versions of the resources that an earlier run published. A tributary computes versions from the
// content, so those of the published objects are equal. If an object is not published exactly as the server sent it,
// its version is empty: then the server sends the resource again or removes it.
func (r *run) versions(typeState *typeState) map[string]string {
	recaller, ok := r.sink.(sources.Recaller)
	if !ok || len(typeState.hashes) == 0 {
		return nil
	}
	versions := make(map[string]string, len(typeState.hashes))
	for name := range typeState.hashes {
		versions[name] = ""
		group := groupOf(typeState.typeURL, name)
		if held := recaller.Published(group); len(held) == 1 && recaller.Exact(group) {
			versions[name] = held[0].Version()
		}
	}
	return versions
}

// publish publishes the changes by a response, and returns the reasons to reject it in part.
func (r *run) publish(typeState *typeState, resp *adsc.Response) error {
	if err := r.loopWith(resp.Server); err != nil {
		return err
	}
	if err := typeState.checkSize(resp); err != nil {
		return &adsc.RefusedError{Err: err}
	}
	contents, faults := typeState.apply(resp)
	if len(contents) > 0 {
		refused := r.sink.ReplaceAll(contents)
		typeState.noteRefusals(refused)
		faults.addAll(refused)
	}
	typeState.answered = typeState.answered || !resp.More
	if err := faults.err(); err != nil {
		return &adsc.RejectedError{Names: typeState.rejectedOf(resp), Err: err}
	}
	return nil
}

// onResponse updates the state of the source after publish handled a response.
func (r *run) onResponse(resp *adsc.Response, err error) {
	defer r.publishStanding()
	if t := r.types[resp.TypeURL]; t != nil {
		t.standing.Version = resp.Version
		t.standing.Err = err
		t.standing.At = time.Now()
	}
	if r.loopWith(resp.Server) != nil {
		r.report()
		return
	}
	if resp.More {
		return
	}
	if r.types[resp.TypeURL] == nil {
		return // the response is of names.InstancesType
	}
	if !isTributary(resp.ControlPlane) {
		r.tryAliases(resp)
	}
	if !r.synced && len(r.unanswered()) == 0 {
		r.synced = true
		r.withdrawUnrequested()
		r.sink.Synced()
	}
	r.report()
}

// tryAliases subscribes to the next alias of a type without resources: a server may know the kind by another API
// version.
func (r *run) tryAliases(resp *adsc.Response) {
	if len(r.types[resp.TypeURL].hashes) > 0 {
		return
	}
	for _, kind := range r.kinds {
		i := slices.Index(kind.typeURLs, resp.TypeURL)
		if i < 0 || i+1 == len(kind.typeURLs) || slices.Contains(r.requested, kind.typeURLs[i+1]) {
			continue
		}
		if err := r.client.Subscribe(r.subscription(kind.typeURLs[i+1])); err == nil { // New has checked it
			r.requested = append(r.requested, kind.typeURLs[i+1])
		}
	}
}

// unanswered returns the types without an answer of the server. MeshConfig is none of them: some servers never answer
// for it.
func (r *run) unanswered() []string {
	var urls []string
	for _, url := range r.requested {
		if t := r.types[url]; !t.schema.Bare && !t.answered {
			urls = append(urls, url)
		}
	}
	return urls
}

// withdrawUnrequested withdraws the groups of an earlier run that this one does not subscribe to.
func (r *run) withdrawUnrequested() {
	var contents []sources.Content
	for _, group := range r.foreign {
		contents = append(contents, sources.Content{Group: group})
	}
	for url, typeState := range r.types {
		if slices.Contains(r.requested, url) {
			continue
		}
		for name := range typeState.hashes {
			contents = append(contents, sources.Content{Group: groupOf(url, name)})
		}
		clear(typeState.hashes)
	}
	r.foreign = nil
	if len(contents) > 0 {
		_ = r.sink.ReplaceAll(contents) // removals cannot be refused
	}
}

func (r *run) onConnected(server string) {
	r.server = server
	defer r.publishStanding()
	for _, t := range r.types {
		t.fullSet = nil // a new stream begins a new set
	}
	r.report()
}

func (r *run) onFailed(err error, _ time.Duration) {
	r.server = ""
	r.publishStanding()
	r.reportFailure(err)
}

// reportFailure reports that the server cannot be read.
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
			"%s has not answered yet for %s", r.server, firstOf(urls, ", "))})
		return
	}
	var complaints []string
	for _, url := range r.requested {
		t := r.types[url]
		for _, name := range slices.Sorted(maps.Keys(t.complaints)) {
			complaints = append(complaints, t.complaints[name])
		}
	}
	if len(complaints) > 0 {
		r.sink.Report(sources.Health{State: sources.Degraded, Message: firstOf(complaints, "; ")})
		return
	}
	health := sources.Health{State: sources.Healthy}
	if r.hasSeveralServers {
		health.Message = "reads from " + r.server
	}
	r.sink.Report(health)
}

// firstOf joins the first elements of a list, and adds the number of the others.
func firstOf(list []string, separator string) string {
	const shown = 5
	if n := len(list) - shown; n > 0 {
		return strings.Join(list[:shown], separator) + fmt.Sprintf("%sand %d more", separator, n)
	}
	return strings.Join(list, separator)
}

// Standing is the state of a source's connection and types.
type Standing struct {
	Server string       // the connected server; empty for none
	Node   *corev3.Node // of the source; immutable
	Types  []TypeStanding
}

// TypeStanding is the state of a subscribed type.
type TypeStanding struct {
	TypeURL string
	// Version of the last response; empty before it, and if the server sends none.
	Version string
	Err     error // the reason of its rejection, in part or as a whole
	At      time.Time
}

// Standing returns the state of the source; nil while it does not run. It is safe for concurrent use.
func (s *Source) Standing() *Standing { return s.standing.Load() }

// publishStanding updates the result of Standing.
func (r *run) publishStanding() {
	standing := &Standing{Server: r.server, Node: r.node}
	for _, url := range r.requested {
		t := r.types[url].standing
		t.TypeURL = url
		standing.Types = append(standing.Types, t)
	}
	r.source.standing.Store(standing)
}
