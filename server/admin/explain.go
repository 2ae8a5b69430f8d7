package admin

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/guard"
)

// Explanation is the answer of /debug/explain about an object or a host. Excluded, Unread, Similar and Gone are there
// if no object was found.
type Explanation struct {
	Why      string      `json:"why"`
	NotReady bool        `json:"notReady,omitempty"` // clients get nothing yet
	Objects  []Explained `json:"objects"`            // in key order
	Picture  []string    `json:"picture,omitempty"`  // the way of a request to a host, one line each
	Warnings []string    `json:"warnings,omitempty"` // of an object of the Gateway API or an Ingress, with their source
	// Excluded are objects that transforms of sources leave out.
	Excluded []sources.Excluded `json:"excluded,omitempty"`
	// Unread are invalid documents that may have the object.
	Unread []Quarantined `json:"unread,omitempty"`
	// LeftOut are instances of the objects, or with the name or address, that are not served.
	LeftOut    []sources.LeftOut `json:"leftOut,omitempty"`
	Similar    []Similar         `json:"similar,omitempty"`
	Gone       *history.Entry    `json:"gone,omitempty"`       // the last change by the history
	Translated *Translated       `json:"translated,omitempty"` // nil without clients of translated configuration
}

// Explained is the explanation of one key.
type Explained struct {
	aggregate.Explanation
	Content     string        `json:"content,omitempty"`     // YAML of a served object, unless it has endpoints
	Duplicates  []Duplicate   `json:"duplicates,omitempty"`  // in sources that have it more than once
	Quarantined []Quarantined `json:"quarantined,omitempty"` // of the object
	// Unsure are unreadable documents that may have the object, which no other document has. It is served meanwhile.
	Unsure      []Quarantined `json:"unsure,omitempty"`
	Unconfirmed []Remark      `json:"unconfirmed,omitempty"` // of sources that list the object no longer, or in part
	NotRead     []Remark      `json:"notRead,omitempty"`     // errors of sources that serve an earlier state of the object
	Warnings    []Remark      `json:"warnings,omitempty"`    // of validation
	Held        []Held        `json:"held,omitempty"`        // losses of the object on hold
	// WithoutEffect lists the parts of the object without effect on Envoys and gRPC clients. If no such client is
	// connected, it has a target that is nowhere.
	WithoutEffect []string    `json:"without_effect,omitempty"`
	Unresolved    []string    `json:"unresolved,omitempty"` // references without an object
	Rejected      []Rejected  `json:"rejected,omitempty"`   // resources that clients reject since the object changed
	Recipients    []Recipient `json:"recipients"`           // clients that subscribe to the kind, in order of arrival
}

// Duplicate is a key that one source has more than once, with the places.
type Duplicate struct {
	Source string   `json:"source"`
	Winner string   `json:"winner"`
	Losers []string `json:"losers"`
}

// Quarantined is an invalid object or document, which is not served.
type Quarantined struct {
	Source string `json:"source"`
	sources.Quarantined
}

// Said returns the reason and the place in one line. Most reasons name the place themselves.
func (q *Quarantined) Said() string {
	line := strings.Join(strings.Fields(q.Reason), " ")
	if !strings.Contains(line, q.Place) {
		line = q.Place + ": " + line
	}
	if !strings.HasPrefix(line, q.Source+": ") {
		line = q.Source + ": " + line
	}
	return line
}

// Remark is a text about an object of a source.
type Remark struct {
	Source string `json:"source"`
	Text   string `json:"text"`
}

// Held is a loss of a source that is on hold.
type Held struct {
	Source string `json:"source"`
	Hold
}

// Similar is an object that the user may mean.
type Similar struct {
	conflicts.Ref
	Host string `json:"host,omitempty"` // if the user asks for a host
}

func (s *Server) explain(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	host, kind := query.Get("host"), query.Get("kind")
	key := resource.Key{Namespace: query.Get("namespace"), Name: query.Get("name")}
	var explanation Explanation
	switch parent, derives := derive.KindNamed(kind); {
	case host != "" && kind == "" && key.Name == "":
		explanation = s.explainHost(host)
	case host != "" || kind == "" || key.Name == "":
		return badRequest("want ?host=HOST, or ?kind=KIND&namespace=NAMESPACE&name=NAME")
	case derives && parent.Kind != string(resource.Gateway):
		key.Kind = resource.Kind(parent.Kind)
		explanation = s.explainParent(key)
	default:
		var err error
		if key.Kind, err = kindNamed(kind); err != nil {
			return err
		}
		explanation = s.Explain(key)
		if len(explanation.Objects) > 0 {
			break
		}
		if derived := s.explainParent(key); len(derived.Objects) > 0 {
			explanation = derived
		}
	}
	if len(explanation.Objects) > 0 {
		explanation.Translated = s.translated()
	}
	explanation.NotReady = !s.opts.View.Synced()
	return writeValue(response, explanation)
}

// Explain explains an object.
func (s *Server) Explain(key resource.Key) Explanation {
	object := s.explained(s.opts.View.Explain(key))
	explanation := Explanation{Why: object.Why, Objects: []Explained{}}
	if object.Winner != nil || len(object.Quarantined)+len(object.Unsure) > 0 {
		explanation.Objects = append(explanation.Objects, object)
		explanation.LeftOut = s.opts.Sources.LeavingOut("", keysOf(object.Explanation)...)
		return explanation
	}
	explanation.Gone = s.lastChange(key)
	explanation.Excluded = s.opts.Sources.Excluding(key)
	explanation.Similar = similarKeys(s.keys(), key)
	explanation.Unread = s.quarantinedIf(func(document Quarantined) bool {
		return document.Name == "" || document.Name == key.Name && document.Namespace == key.Namespace
	})
	return explanation
}

// explainParent explains the objects that are derived from an object of the Gateway API or an Ingress.
func (s *Server) explainParent(parent resource.Key) Explanation {
	explanation := Explanation{Objects: []Explained{}}
	name := fmt.Sprintf("%s/%s/%s", parent.Kind, parent.Namespace, parent.Name)
	for object := range s.opts.View.Snapshot().All() {
		if slices.Contains(strings.Split(object.Annotations()[resource.DerivedFrom], ", "), name) {
			explanation.Objects = append(explanation.Objects, s.explained(s.opts.View.Explain(object.Key())))
		}
	}
	explanation.Why = words.Count(len(explanation.Objects), "object is", "objects are") + " derived from it"
	for _, source := range s.opts.Sources.Status() {
		for _, warning := range source.Warnings {
			if strings.Contains(warning, " "+parent.String()+": ") {
				explanation.Warnings = append(explanation.Warnings, source.Name+": "+warning)
			}
		}
	}
	if len(explanation.Objects)+len(explanation.Warnings) == 0 {
		explanation.Why = fmt.Sprintf("no source with derive has %s, or no Gateway takes it", parent)
	}
	return explanation
}

// keys yields the keys of served objects and of invalid objects.
func (s *Server) keys() iter.Seq[resource.Key] {
	return func(yield func(resource.Key) bool) {
		snapshot := s.opts.View.Snapshot()
		for object := range snapshot.All() {
			if !yield(object.Key()) {
				return
			}
		}
		for _, object := range s.Quarantined() {
			if object.Name != "" && snapshot.Get(object.Key()) == nil && !yield(object.Key()) {
				return
			}
		}
	}
}

func (s *Server) explainHost(host string) Explanation {
	answer := s.opts.View.ExplainHost(host)
	explanation := Explanation{Why: answer.Why, Objects: []Explained{}, Picture: s.Picture(answer.Host)}
	objects := answer.Objects
	if keys, why := s.named(host); len(objects) == 0 && len(keys) > 0 {
		explanation.Why = why
		for _, key := range keys[:min(len(keys), maxNamed)] {
			objects = append(objects, s.opts.View.Explain(key))
		}
	}
	var keys []resource.Key
	for _, object := range objects {
		explanation.Objects = append(explanation.Objects, s.explained(object))
		keys = append(keys, keysOf(object)...)
	}
	if isAddress(host) { // LeftOut has nothing about other addresses of these services
		explanation.LeftOut = s.opts.Sources.LeavingOut(host)
		return explanation
	}
	explanation.LeftOut = s.opts.Sources.LeavingOut(host, keys...)
	if len(objects) == 0 {
		explanation.Similar = similarHosts(s.opts.View.Snapshot(), answer.Host)
		explanation.Unread = s.quarantinedIf(func(document Quarantined) bool { return !document.LastGoodServes })
	}
	return explanation
}

// explained adds the parts of sources and clients to an explanation.
func (s *Server) explained(explanation aggregate.Explanation) Explained {
	key, keys := explanation.Object.Key(), keysOf(explanation)
	result := Explained{
		Explanation: explanation, Recipients: s.recipients(key),
		Unresolved: s.unresolvedOf(key), Rejected: s.rejectedWith(key),
		Quarantined: s.quarantinedIf(func(object Quarantined) bool { return slices.Contains(keys, object.Key()) }),
	}
	holds := make(map[string]*guard.Status)
	for _, source := range s.opts.Sources.Status() {
		holds[source.Name] = source.Held
		for _, duplicate := range source.Duplicates {
			if slices.Contains(keys, duplicate.Key()) {
				result.Duplicates = append(result.Duplicates, Duplicate{source.Name, duplicate.Winner, duplicate.Losers})
			}
		}
	}
	if object := s.opts.View.Snapshot().Get(key); object != nil {
		if s.opts.WithoutEffect != nil {
			result.WithoutEffect = s.opts.WithoutEffect(object)
		}
		if key.Kind != resource.ServiceEntry && key.Kind != resource.WorkloadEntry {
			content, _ := resource.MarshalYAML(object) // a served object has a spec
			result.Content = string(content)
		}
	}
	for _, key := range keys {
		for _, serving := range s.opts.Sources.Serving(key) {
			if hold := holds[serving.Source]; serving.Held && hold != nil {
				result.Held = append(result.Held, Held{serving.Source, hold.Summary})
			}
			if serving.Unread != "" {
				result.NotRead = append(result.NotRead, Remark{serving.Source, serving.Unread})
			}
			if serving.Unconfirmed != "" {
				result.Unconfirmed = append(result.Unconfirmed, Remark{serving.Source, serving.Unconfirmed})
			}
			for _, warning := range serving.Warnings {
				result.Warnings = append(result.Warnings, Remark{serving.Source, warning})
			}
			for _, document := range serving.Unsure {
				result.Unsure = append(result.Unsure, Quarantined{serving.Source, document})
			}
		}
	}
	return result
}

// keysOf returns the keys of an explained object and of the objects that are merged into it.
func keysOf(explanation aggregate.Explanation) []resource.Key {
	key := explanation.Object.Key()
	keys := []resource.Key{key}
	if explanation.Merged == nil {
		return keys
	}
	for _, member := range slices.Concat(explanation.Merged.Members, explanation.Merged.Refused) {
		if key.Name = member.Name; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// quarantinedIf returns the selected invalid objects and documents. It is not nil.
func (s *Server) quarantinedIf(selects func(Quarantined) bool) []Quarantined {
	list := []Quarantined{}
	for _, source := range s.opts.Sources.Status() {
		for _, invalid := range source.Quarantined {
			if entry := (Quarantined{source.Name, invalid}); selects(entry) {
				list = append(list, entry)
			}
		}
	}
	return list
}
