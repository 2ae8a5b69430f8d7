package admin

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
)

// Explanation is the answer of /debug/explain: why an object, or what is said of a host, is what it is.
type Explanation struct {
	Why string `json:"why"`
	// NotReady says that nothing is sent to clients yet, whatever there is.
	NotReady bool        `json:"notReady,omitempty"`
	Objects  []Explained `json:"objects"` // that there are of what was asked for, in key order
	// Picture draws the way of a request to a host that was asked for, one line each.
	Picture []string `json:"picture,omitempty"`
	// Excluded is what the transforms of a source leave out. It is there if nothing was found.
	Excluded []sources.Excluded `json:"excluded,omitempty"`
	// Unread is what might be what was asked for, and is too broken to tell. It is there if nothing was found.
	Unread []Quarantined `json:"unread,omitempty"`
	// LeftOut is what could be called and is not served, of what was found, or of the name or address that was asked for.
	LeftOut []sources.LeftOut `json:"leftOut,omitempty"`
	// Similar is there if nothing was found: objects that may have been meant.
	Similar []Similar `json:"similar,omitempty"`
	// Gone is the last change of an object that was asked for and that nobody has any more, if the history has it.
	Gone *history.Entry `json:"gone,omitempty"`
	// Translated are the clients that are sent what is made of objects. It is there if something was found, and there are any.
	Translated *Translated `json:"translated,omitempty"`
}

// Explained is what there is to say of one key.
type Explained struct {
	aggregate.Explanation
	// Content is the object that is served, in YAML. It is there for rules and policies: not for what has endpoints.
	Content     string        `json:"content,omitempty"`
	Duplicates  []Duplicate   `json:"duplicates,omitempty"` // in sources that have it more than once
	Quarantined []Quarantined `json:"quarantined,omitempty"`
	// Unsure is what keeps the object served though its source has it no longer: it cannot be told whether it is this one.
	Unsure []Quarantined `json:"unsure,omitempty"`
	// NotRead are the sources that cannot read at present what the object is in, and serve what they read before.
	NotRead  []Remark `json:"notRead,omitempty"`
	Warnings []Remark `json:"warnings,omitempty"` // of validation, about the object
	Held     []Held   `json:"held,omitempty"`
	// WithoutEffect lists the parts of the object that have no effect on Envoys and gRPC clients. If no such client is
	// connected, it has a target that is nowhere.
	WithoutEffect []string `json:"without_effect,omitempty"`
	// Unresolved lists the references of the object that lead to no object.
	Unresolved []string `json:"unresolved,omitempty"`
	// Rejected are the resources that clients reject since the object changed.
	Rejected   []Rejected  `json:"rejected,omitempty"`
	Recipients []Recipient `json:"recipients"` // the clients that ask for the kind, in order of arrival
}

// Duplicate is a key that one source has more than once.
type Duplicate struct {
	Source string   `json:"source"`
	Winner string   `json:"winner"` // a place
	Losers []string `json:"losers"`
}

// Quarantined is something that is not served because it is not valid.
type Quarantined struct {
	Source string `json:"source"`
	sources.Quarantined
}

// Said says why it is in quarantine, and where it is, in one line. Most reasons name the place themselves.
func (q *Quarantined) Said() string {
	said := strings.Join(strings.Fields(q.Reason), " ")
	if !strings.Contains(said, q.Place) {
		said = q.Place + ": " + said
	}
	if !strings.HasPrefix(said, q.Source+": ") {
		said = q.Source + ": " + said
	}
	return said
}

// Remark is what is said of an object of a source.
type Remark struct {
	Source string `json:"source"`
	Text   string `json:"text"`
}

// Held says that the source no longer has the object, or less of it, and that this is held back.
type Held struct {
	Source string     `json:"source"`
	ID     string     `json:"id"` // of the hold
	Why    string     `json:"why"`
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"`
}

// Recipient is a client that asks for a kind. What it was sent and acknowledged is the kind as a whole.
type Recipient struct {
	Stream  uint64    `json:"stream"`
	Node    string    `json:"node"`
	Peer    string    `json:"peer"`
	TypeURL string    `json:"type_url"`
	Hidden  bool      `json:"hidden,omitempty"` // its revision or namespaces exclude the object
	Synced  bool      `json:"synced"`
	Sent    *Exchange `json:"sent,omitempty"`
	Acked   *Exchange `json:"acked,omitempty"`
	Nack    *Exchange `json:"nack,omitempty"`
}

// Similar is an object that may have been meant.
type Similar struct {
	conflicts.Ref
	Host string `json:"host,omitempty"` // that it speaks of, if a host was asked for
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	host, kind, name := q.Get("host"), q.Get("kind"), q.Get("name")
	var e Explanation
	switch {
	case host != "" && kind == "" && name == "":
		e = s.explainHost(host)
	case host != "" || kind == "" || name == "":
		http.Error(w, "want ?host=HOST, or ?kind=KIND&namespace=NAMESPACE&name=NAME", http.StatusBadRequest)
		return
	default:
		key := resource.Key{Namespace: q.Get("namespace"), Name: name}
		if parent, ok := derive.KindNamed(kind); ok && parent.Kind != string(resource.Gateway) {
			key.Kind = resource.Kind(parent.Kind)
			e = s.explainParent(key)
			break
		}
		schema, ok := kindNamed(w, kind)
		if !ok {
			return
		}
		key.Kind = schema.Kind
		e = s.Explain(key)
		if derived := s.explainParent(key); len(e.Objects) == 0 && len(derived.Objects) > 0 {
			e = derived
		}
	}
	if len(e.Objects) > 0 {
		e.Translated = s.translated()
	}
	e.NotReady = !s.opts.View.Synced()
	s.write(w, r, e)
}

// Explain says why an object is what it is.
func (s *Server) Explain(key resource.Key) Explanation {
	x := s.explained(s.opts.View.Explain(key))
	e := Explanation{Why: x.Why, Objects: []Explained{}}
	if x.Winner != nil || len(x.Quarantined)+len(x.Unsure) > 0 {
		e.Objects = append(e.Objects, x)
		e.LeftOut = s.opts.Sources.LeavingOut("", keysOf(x.Explanation)...)
		return e
	}
	e.Gone = s.gone(key)
	e.Excluded = s.opts.Sources.Excluding(key)
	e.Similar = similarKeys(s.known(), key)
	e.Unread = s.quarantinedIf(func(q Quarantined) bool { return q.Name == "" })
	return e
}

// explainParent explains the objects that are derived from an object of the Gateway API or an Ingress.
func (s *Server) explainParent(parent resource.Key) Explanation {
	e := Explanation{Objects: []Explained{}}
	name := fmt.Sprintf("%s/%s/%s", parent.Kind, parent.Namespace, parent.Name)
	for object := range s.opts.View.Snapshot().All() {
		if slices.Contains(strings.Split(object.Annotations()[resource.DerivedFrom], ", "), name) {
			e.Objects = append(e.Objects, s.explained(s.opts.View.Explain(object.Key())))
		}
	}
	e.Why = words.Count(len(e.Objects), "object is", "objects are") + " derived from it"
	for _, source := range s.opts.Sources.Status() {
		for _, warning := range source.Warnings {
			if strings.Contains(warning, " "+parent.String()+": ") {
				e.Why += "; " + source.Name + ": " + warning
			}
		}
	}
	return e
}

// known yields the keys that are served, and those of what is not served because it is not valid.
func (s *Server) known() iter.Seq[resource.Key] {
	return func(yield func(resource.Key) bool) {
		snapshot := s.opts.View.Snapshot()
		for r := range snapshot.All() {
			if !yield(r.Key()) {
				return
			}
		}
		for _, q := range s.quarantinedIf(func(q Quarantined) bool { return q.Name != "" && snapshot.Get(q.Key()) == nil }) {
			if !yield(q.Key()) {
				return
			}
		}
	}
}

func (s *Server) explainHost(host string) Explanation {
	found := s.opts.View.ExplainHost(host)
	e := Explanation{Why: found.Why, Objects: []Explained{}, Picture: s.Picture(found.Host)}
	for _, o := range found.Objects {
		e.Objects = append(e.Objects, s.explained(o))
	}
	if keys, why := s.named(host); len(e.Objects) == 0 && len(keys) > 0 {
		e.Why = why
		for _, key := range keys[:min(len(keys), maxNamed)] {
			e.Objects = append(e.Objects, s.explained(s.opts.View.Explain(key)))
		}
	}
	var keys []resource.Key
	for _, o := range e.Objects {
		keys = append(keys, keysOf(o.Explanation)...)
	}
	if isAddress(host) { // of the services that have it others may be left out, which was not asked
		keys = nil
	}
	e.LeftOut = s.opts.Sources.LeavingOut(host, keys...)
	switch {
	case len(e.Objects) > 0:
	case isAddress(host): // no other address is like it, and what cannot be read has some as likely as any
	default:
		e.Similar = similarHosts(s.opts.View.Snapshot(), found.Host)
		e.Unread = s.quarantinedIf(func(q Quarantined) bool { return !q.LastGoodServes })
	}
	return e
}

// explained adds to e what sources and clients have to do with it.
func (s *Server) explained(e aggregate.Explanation) Explained {
	keys := keysOf(e)
	x := Explained{Explanation: e, Recipients: s.recipients(e.Object.Key())}
	all := s.opts.Sources.Status()
	for _, src := range all {
		for _, c := range src.Conflicts {
			if slices.Contains(keys, c.Key()) {
				x.Duplicates = append(x.Duplicates, Duplicate{src.Name, c.Winner, c.Losers})
			}
		}
	}
	if r := s.opts.View.Snapshot().Get(e.Object.Key()); r != nil {
		if s.opts.WithoutEffect != nil {
			x.WithoutEffect = s.opts.WithoutEffect(r)
		}
		if kind := r.Key().Kind; kind != resource.ServiceEntry && kind != resource.WorkloadEntry {
			b, _ := resource.MarshalYAML(r) // an object that is served has a spec
			x.Content = string(b)
		}
	}
	x.Unresolved = s.unresolvedOf(e.Object.Key())
	x.Rejected = s.rejectedWith(e.Object.Key())
	x.Quarantined = s.quarantinedIf(func(q Quarantined) bool { return slices.Contains(keys, q.Key()) })
	for _, key := range keys {
		for _, one := range s.opts.Sources.Serving(key) {
			if one.Held {
				x.Held = append(x.Held, held(one.Source, all)...)
			}
			if one.Unread != "" {
				x.NotRead = append(x.NotRead, Remark{one.Source, one.Unread})
			}
			for _, w := range one.Warnings {
				x.Warnings = append(x.Warnings, Remark{one.Source, w})
			}
			for _, q := range one.Unsure {
				x.Unsure = append(x.Unsure, Quarantined{one.Source, q})
			}
		}
	}
	return x
}

// keysOf returns the keys under which sources have what e is about: its own and, if it is merged, those of which it is made.
func keysOf(e aggregate.Explanation) []resource.Key {
	key := e.Object.Key()
	keys := []resource.Key{key}
	if e.Merged == nil {
		return keys
	}
	for _, m := range slices.Concat(e.Merged.Members, e.Merged.Refused) {
		if of := (resource.Key{Kind: key.Kind, Namespace: key.Namespace, Name: m.Name}); !slices.Contains(keys, of) {
			keys = append(keys, of)
		}
	}
	return keys
}

// quarantinedIf returns what is in quarantine and meets a condition. It is not nil.
func (s *Server) quarantinedIf(meets func(Quarantined) bool) []Quarantined {
	all := []Quarantined{}
	for _, src := range s.opts.Sources.Status() {
		for _, q := range src.Quarantined {
			if q := (Quarantined{src.Name, q}); meets(q) {
				all = append(all, q)
			}
		}
	}
	return all
}

// recipients returns the clients that ask for the kind of key.
func (s *Server) recipients(key resource.Key) []Recipient {
	all := []Recipient{}
	object := s.opts.View.Snapshot().Get(key)
	for c := range s.opts.Clients.EachClient() {
		for _, t := range c.Types {
			if schema, ok := resource.SchemaByTypeURL(t.TypeURL); !ok || schema.Kind != key.Kind {
				continue
			}
			all = append(all, Recipient{
				Stream: c.StreamID, Node: c.Node.GetId(), Peer: c.Peer, TypeURL: t.TypeURL, Synced: t.Synced,
				Hidden: object != nil && s.opts.Visible != nil && !s.opts.Visible(c.Node, object),
				Sent:   happened(t.SentVersion, t.SentNonce, "", t.SentAt),
				Acked:  happened(t.AckedVersion, t.AckedNonce, "", t.AckedAt),
				Nack:   happened("", t.NackNonce, t.NackError, t.NackAt),
			})
		}
	}
	return all
}
