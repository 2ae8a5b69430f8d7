package debug

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/turns"
	"tributary/server/xds"
)

// The types by which istioctl asks istiod, as of 1.27 (istio.io/istio/pilot/pkg/xds, StatusGen and DebugGen).
const (
	pageURL  = "istio.io/debug" // a resource is a page; its name is what stands behind /debug/, and its body is bare text
	synczURL = pageURL + "/syncz"
	dumpURL  = pageURL + "/config_dump" // the resources are the parts of the dump of the one client that is named
)

// IsQuestion says whether a type is one of those by which istioctl asks.
func IsQuestion(typeURL string) bool {
	return typeURL == pageURL || strings.HasPrefix(typeURL, pageURL+"/")
}

// maxKept bounds what answers to questions take in memory while those who asked stay connected, in bytes; maxAnswer one of them.
const (
	maxKept   = 128 << 20
	maxAnswer = 64 << 20
)

// Questions answers istioctl. It is safe for concurrent use.
type Questions struct {
	clients Clients
	pages   http.Handler
	turns   *turns.Turns // taken by who makes an answer: that can be a lot of work, and anybody may ask
	kept    atomic.Int64 // bytes of answers
}

// NewQuestions returns who is to be told of what it answers, by About, before anybody asks.
func NewQuestions() *Questions { return &Questions{turns: turns.New(1)} }

// About has questions answered with the status of clients, and with pages, which are asked for with a GET of /debug/NAME.
func (q *Questions) About(clients Clients, pages http.Handler) { q.clients, q.pages = clients, pages }

// Collection implements xds.Catalog for types that are questions. Each stream has its own.
func (q *Questions) Collection(ctx context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	a := &asker{Questions: q, typeURL: typeURL, ctx: ctx}
	switch typeURL {
	case pageURL:
		a.answer = a.page
	case synczURL:
		a.answer = a.syncz
	case dumpURL:
		a.answer = a.dump
	default:
		return nil, nil, status.Errorf(codes.Unimplemented, "type %q is not served", typeURL)
	}
	a.coll = xds.NewCollection(xds.Type{URL: typeURL, Query: a.ask}, xds.Debounce{})
	a.coll.MarkSynced()
	return a.coll, func() { q.kept.Add(-a.size) }, nil
}

// asker is one type on one stream.
type asker struct {
	*Questions
	typeURL string
	ctx     context.Context //nolint:containedctx // of the stream, for as long as which it lives
	coll    *xds.Collection
	answer  func(names []string) ([]*xds.Entry, error)
	size    int64 // of what the collection holds; changed by the stream's reader alone, which has ended when it is given back
}

func (a *asker) ask(names []string) (err error) {
	if a.turns.Do(a.ctx, xds.HostOf(a.ctx), func() { err = a.answerInto(names) }) != nil {
		return gone(a.ctx)
	}
	return err
}

// answerInto puts the answer into the collection.
func (a *asker) answerInto(names []string) error {
	entries, err := a.answer(names)
	if err != nil {
		return err
	}
	size := int64(0)
	for _, e := range entries {
		size += int64(len(e.Any))
	}
	if a.kept.Add(size-a.size) > maxKept {
		a.kept.Add(a.size - size)
		return status.Error(codes.ResourceExhausted, "too many large answers are on their way: try again, or ask the admin server")
	}
	a.size = size
	version := rand.Text() // who asks twice is answered twice, and who comes back is answered anew
	for _, e := range entries {
		e.Version = version
	}
	a.coll.Apply(xds.Commit{Put: entries, Reset: true, Version: version})
	return nil
}

// page answers with a page of the admin server.
func (a *asker) page(names []string) ([]*xds.Entry, error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "exactly one debug request is required")
	}
	body := &capture{header: make(http.Header)}
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "/debug/"+names[0], nil)
	if err != nil {
		http.NotFound(body, nil) // as istiod answers what it does not know, from which istioctl knows it
	} else {
		if xds.HeavyWork(a.ctx, func() { a.pages.ServeHTTP(body, r) }) != nil {
			return nil, gone(a.ctx)
		}
	}
	if body.over {
		return nil, status.Errorf(codes.ResourceExhausted, "the answer has more than %d bytes: ask the admin server", maxAnswer)
	}
	return entry(nil, names[0], &anypb.Any{TypeUrl: pageURL, Value: body.Bytes()})
}

// syncz answers with how all clients stand.
func (a *asker) syncz([]string) (all []*xds.Entry, err error) {
	seen := make(map[string]bool)
	err = forEach(a.ctx, a.clients, func(c *xds.ClientStatus) error {
		body, err := anypb.New(config(c))
		if err != nil {
			return err
		}
		name := c.Node.GetId()
		if seen[name] { // the ids of nodes are theirs to choose
			name = Connection(c)
		}
		seen[name] = true
		all, err = entry(all, name, body)
		return err
	})
	return all, err
}

// dump answers with what one client was sent; with nothing if there is none, as istiod does.
func (a *asker) dump(names []string) (all []*xds.Entry, err error) {
	if len(names) != 1 {
		return nil, status.Error(codes.InvalidArgument, "exactly one proxy is required")
	}
	c, ok := Find(a.clients, names[0])
	if !ok {
		return nil, nil
	}
	if xds.HeavyWork(a.ctx, func() { all, err = parts(a.clients.Served(c.StreamID)) }) != nil {
		return nil, gone(a.ctx)
	}
	return all, err
}

// parts are those of the dump of what was served.
func parts(served []xds.Served) (all []*xds.Entry, err error) {
	dump, err := Dump(served, false)
	if err != nil {
		return nil, err
	}
	for i, part := range dump.GetConfigs() {
		if all, err = entry(all, strconv.Itoa(i), part); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// entry adds a resource.
func entry(all []*xds.Entry, name string, body *anypb.Any) ([]*xds.Entry, error) {
	b, err := proto.Marshal(body)
	if err != nil {
		return nil, err
	}
	return append(all, &xds.Entry{Name: name, Any: b}), nil
}

// capture is the answer to a request, in memory.
type capture struct {
	bytes.Buffer
	header http.Header
	over   bool
}

var errTooLarge = errors.New("the answer is too large")

func (c *capture) Header() http.Header { return c.header }
func (c *capture) WriteHeader(int)     {}
func (c *capture) Write(b []byte) (int, error) {
	if c.Len()+len(b) > maxAnswer {
		c.over = true
		return 0, errTooLarge
	}
	return c.Buffer.Write(b)
}
