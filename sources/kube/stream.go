package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
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
func (k *kind) resource() string {
	if k.group == "" {
		return k.plural
	}
	return k.plural + "." + k.group
}

// stream is the list and the watch of one kind in one namespace.
type stream struct {
	*kind
	namespace string        // empty for all
	news      chan struct{} // the server has the kind in another version, or no longer, or answers again

	// guarded by run.mu
	memory
	version  string    // which the server has; empty if it has none, or nobody has looked
	looked   bool      // somebody has
	watching bool      // the server has accepted a watch
	read     bool      // it was listed in this run
	unsure   time.Time // until then, what was listed first in this run may lack something that is held
	err      error     // of the last attempt; nil if it was well
	broken   bool      // the server failed to read it several times in a row
}

func newStream(k *kind, namespace string) *stream {
	return &stream{
		kind: k, namespace: namespace, news: make(chan struct{}, 1),
		memory: memory{objects: make(map[string]uint64), missing: make(map[string]bool)},
	}
}

// tell has a stream that waits go on. It does not block.
func (s *stream) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// id names the stream in the note for the next run.
func (s *stream) id() string { return s.resource() + "/" + s.namespace }

// where is how people are told of it.
func (s *stream) where() string {
	if s.namespace == "" {
		return s.resource()
	}
	return s.resource() + " in namespace " + s.namespace
}

// path is where the objects are, in a version.
func (s *stream) path(version string) string {
	path := "/apis/" + s.group + "/" + version
	if s.group == "" {
		path = "/api/" + version
	}
	if s.namespace != "" && !s.cluster {
		path += "/namespaces/" + s.namespace
	}
	return path + "/" + s.plural
}

// missingKind reports whether the server has no such kind. run.mu is held.
func (s *stream) missingKind() bool { return s.looked && s.version == "" }

// settled reports whether nothing is to be waited for: it was read, or cannot be, or there is nothing. A server that fails may do so for
// ever, as with a webhook that converts objects and is down. Policies are waited for all the same: without them, all may pass. run.mu is
// held.
func (s *stream) settled() bool {
	return s.read || s.missingKind() || isStatus(s.err, http.StatusForbidden) || s.broken && s.group != "security.istio.io"
}

// known reports whether all that the server has of it is. If it is optional, one that may not be read and never was has nothing; otherwise
// what was made of it stays as it was. run.mu is held.
func (s *stream) known(now time.Time, optional bool) bool {
	never := optional && s.seen == 0 && isStatus(s.err, http.StatusForbidden)
	return (s.read || s.missingKind() || never) && !now.Before(s.unsure)
}

// owns says what is wrong with the name of an object that the server has among those of the stream.
func (s *stream) owns(m meta) error {
	if m.Name == "" || strings.Contains(m.Namespace+m.Name, "/") || !s.cluster && s.namespace != "" && m.Namespace != s.namespace {
		return fmt.Errorf("the server names %q, which cannot be one of %s", m.key(), s.where())
	}
	return nil
}

// has reports whether the group of an earlier run is of an object of the stream, and returns which.
func (s *stream) has(group string) (key string, ok bool) {
	prefix := s.use.groups()
	key, ok = strings.CutPrefix(group, prefix)
	if prefix == "" || !ok {
		return "", false
	}
	namespace, _, _ := strings.Cut(key, "/")
	return key, s.namespace == "" || s.namespace == namespace
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
		all = append(all, newStream(k, n))
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

// rules are the objects of a kind of Istio, which are published as they are.
type rules struct {
	*run
	kind resource.Kind
}

func (r *run) addRules() {
	for _, s := range resource.Schemas() {
		if s.Bare || len(r.settings.Kinds) > 0 && !slices.Contains(r.settings.Kinds, string(s.Kind)) {
			continue
		}
		r.add(&kind{group: s.Group, plural: s.Plural, versions: s.Versions, selector: r.settings.LabelSelector, use: &rules{r, s.Kind}})
	}
}

func (u *rules) groups() string { return string(u.kind) + "/" }

func (u *rules) put(m meta, object json.RawMessage) (take func(), err error) {
	content := sources.Content{Group: u.groups() + m.key()}
	if rev := m.Labels[revisionLabel]; u.settings.Revision == "" || rev == "" || rev == u.settings.Revision {
		content = u.content(content.Group, m, object)
	}
	return func() { u.pending[content.Group] = content }, nil
}

func (u *rules) drop(key string) {
	group := u.groups() + key
	u.pending[group] = sources.Content{Group: group}
}

// content makes an object the content of its group.
func (u *rules) content(group string, m meta, object json.RawMessage) sources.Content {
	content := sources.Decode(group, ".json", object, u.decode)
	origin := u.origin(string(u.kind), m)
	for i, r := range content.Resources {
		content.Resources[i] = r.WithOrigin(origin)
	}
	for i := range content.Rejects {
		reject := &content.Rejects[i]
		reject.Key = resource.Key{Kind: u.kind, Namespace: m.Namespace, Name: m.Name}
		reject.Origin = origin
		for _, e := range resource.ErrorsIn(reject.Err) {
			e.Origin = origin
		}
	}
	for i, w := range content.Warnings {
		content.Warnings[i] = origin.Place + ":" + strings.TrimLeft(strings.TrimPrefix(w, ".json"), ":0123456789")
	}
	content.Renamable = false
	return content
}

// origin is where an object is, for people.
func (r *run) origin(kind string, m meta) resource.Origin {
	return resource.Origin{Place: fmt.Sprintf("%s %s %s", r.shown, kind, m.key())}
}
