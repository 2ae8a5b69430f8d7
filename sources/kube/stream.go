package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// kind is a kind of objects that the source reads.
type kind struct {
	group, plural string
	versions      []string // that are understood, the preferred one first
	fixed         bool     // it is of Kubernetes itself: the server has it, in the first version
	cluster       bool     // its objects are in no namespace
	selector      string
	use           use
}

// use is what becomes of the objects of a kind.
type use interface {
	// put reads an object, and returns what takes it over; that is called with run.mu held. An error says that nobody can know what it is.
	put(m meta, object json.RawMessage) (take func(), err error)
	// drop lets go of an object. run.mu is held.
	drop(key string)
	// groups returns what the names of the groups begin with that are made of the kind; empty if none is made of one object.
	groups() string
}

// resource is what kubectl and rules of RBAC call the kind.
func (k *kind) resource() string { return strings.TrimSuffix(k.plural+"."+k.group, ".") }

// stream is the list and the watch of one kind in one namespace.
type stream struct {
	*run
	*kind
	namespace string        // empty for all
	news      chan struct{} // the server has the kind in another version, or no longer, or answers again

	// owned by follow
	retry  backoff.BackOff
	listed bool      // the next thing to do is to watch
	fresh  bool      // the list is of just now
	at     time.Time // of the last list

	// guarded by run.mu
	memory
	version  string    // which the server has; empty if it has none, or nobody has looked
	watching bool      // the server has accepted a watch
	read     bool      // it was listed in this run
	unsure   time.Time // until then, what was listed first in this run may lack something that is held
	failures int       // attempts in a row that failed
	err      error     // of the last attempt; nil if it was well
}

// add has a kind read, and returns its streams. If it is read already, both uses take its objects.
func (r *run) add(k *kind) (all []*stream) {
	for _, s := range r.streams {
		if s.resource() == k.resource() {
			all = append(all, s)
		}
	}
	if len(all) > 0 {
		all[0].use = both{all[0].use, k.use} // of the kind, which they share
		return all
	}
	namespaces := r.settings.Namespaces
	if k.cluster {
		namespaces = []string{""}
	}
	for _, n := range namespaces {
		all = append(all, &stream{
			run: r, kind: k, namespace: n, news: make(chan struct{}, 1), retry: r.newBackOff(), memory: memory{objects: make(map[string]uint64)},
		})
	}
	r.kinds, r.streams = append(r.kinds, k), append(r.streams, all...)
	return all
}

// both are two uses of one kind, of which the first publishes a group for each object, if any does.
type both struct{ first, second use }

func (u both) groups() string { return u.first.groups() }

func (u both) put(m meta, object json.RawMessage) (take func(), err error) {
	first, err := u.first.put(m, object)
	if err != nil {
		return nil, err
	}
	second, err := u.second.put(m, object)
	return func() { first(); second() }, err
}

func (u both) drop(key string) {
	u.first.drop(key)
	u.second.drop(key)
}

// tell has a stream that waits go on. It does not block.
func (s *stream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// where is how people are told of it, and how the note for the next run names it.
func (s *stream) where() string {
	if s.namespace == "" {
		return s.resource()
	}
	return s.resource() + " in namespace " + s.namespace
}

// path is where the objects are. run.mu is held.
func (s *stream) path() string {
	path := "/apis/" + s.group + "/" + s.version
	if s.group == "" {
		path = "/api/" + s.version
	}
	if s.namespace != "" {
		path += "/namespaces/" + s.namespace
	}
	return path + "/" + s.plural
}

// settled reports whether nothing is to be waited for: it was read, or cannot be, or there is nothing. A server that fails may do so for
// ever, as with a webhook that converts objects and is down. Policies are waited for all the same: without them, all may pass. run.mu is
// held.
func (s *stream) settled() bool {
	return s.read || s.Absent || apierrors.IsForbidden(s.err) ||
		s.failures >= patience && codeOf(s.err) >= http.StatusInternalServerError && s.group != "security.istio.io"
}

// known reports whether all that the server has of it is. If it is optional, one that may not be read and never was has nothing; otherwise
// what was made of it stays as it was. run.mu is held.
func (s *stream) known(now time.Time, optional bool) bool {
	never := optional && s.Seen == 0 && apierrors.IsForbidden(s.err)
	return (s.read || s.Absent || never) && !now.Before(s.unsure)
}

// owns says what is wrong with the name of an object that the server has among those of the stream.
func (s *stream) owns(m meta) error {
	if m.Name == "" || strings.Contains(m.Namespace+m.Name, "/") || s.namespace != "" && m.Namespace != s.namespace {
		return fmt.Errorf("the server names %q, which cannot be one of %s", m.key(), s.where())
	}
	return nil
}

// inherits takes over a group of an earlier run, if it is of an object of the stream.
func (s *stream) inherits(group string) bool {
	key, ok := strings.CutPrefix(group, s.use.groups())
	if !ok || s.use.groups() == "" || s.namespace != "" && !strings.HasPrefix(key, s.namespace+"/") {
		return false
	}
	s.objects[key] = 0
	return true
}
