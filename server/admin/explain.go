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

// Explanation is the answer of /debug/explain about an object or a host. Excluded, PossibleDocuments, Similar and
// LastChange are set only if no object was found.
type Explanation struct {
	Why         string      `json:"why"`
	NotReady    bool        `json:"notReady,omitempty"` // the view is not synced: clients get no answer yet
	Objects     []Explained `json:"objects"`            // in key order
	RequestTree []string    `json:"picture,omitempty"`  // the lines of Server.RequestTree for a host
	Warnings    []string    `json:"warnings,omitempty"` // about an object of the Gateway API or an Ingress
	// Excluded are objects with the key that transforms exclude.
	Excluded []sources.Excluded `json:"excluded,omitempty"`
	// PossibleDocuments are invalid documents that may have the object.
	PossibleDocuments []Quarantined `json:"unread,omitempty"`
	// LeftOut are instances that sources do not serve: those of the objects, and those with the requested name or address.
	LeftOut    []sources.LeftOut `json:"leftOut,omitempty"`
	Similar    []Similar         `json:"similar,omitempty"`
	LastChange *history.Entry    `json:"gone,omitempty"`       // the newest change in the history
	Translated *Translated       `json:"translated,omitempty"` // nil without Envoys and gRPC clients
}

// Explained is the explanation of one key.
type Explained struct {
	aggregate.Explanation
	Content     string        `json:"content,omitempty"`     // YAML of the served object; empty for kinds with endpoints
	Duplicates  []Duplicate   `json:"duplicates,omitempty"`  // of sources that have the key more than once
	Quarantined []Quarantined `json:"quarantined,omitempty"` // invalid versions of the object
	// Unsure are unreadable documents that may have the object. Since no readable one has it, it is served meanwhile.
	Unsure      []Quarantined `json:"unsure,omitempty"`
	Unconfirmed []Remark      `json:"unconfirmed,omitempty"` // of sources that do not list all of the object
	ReadErrors  []Remark      `json:"notRead,omitempty"`     // of sources that serve an earlier version
	Warnings    []Remark      `json:"warnings,omitempty"`    // warnings of validation
	Held        []Held        `json:"held,omitempty"`        // held losses of the object
	// WithoutEffect lists the parts of the object that Envoys and gRPC clients ignore. While no such client is connected,
	// it lists only a target that does not exist.
	WithoutEffect []string    `json:"without_effect,omitempty"`
	Unresolved    []string    `json:"unresolved,omitempty"` // references that lead to no object
	Rejected      []Rejected  `json:"rejected,omitempty"`   // rejected resources that the object may have caused
	Recipients    []Recipient `json:"recipients"`           // clients that subscribe to the kind, in order of arrival
}

// Duplicate is a key that one source has more than once, with its places.
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

// Line returns the source, the place and the reason in one line. It names a place once: most reasons begin with it.
func (q *Quarantined) Line() string {
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

// Held is a held loss of a source.
type Held struct {
	Source string `json:"source"`
	Hold
}

// Similar is an object that the user may mean.
type Similar struct {
	conflicts.Ref
	Host string `json:"host,omitempty"` // the similar host, if the user asks for a host
}

// explain answers about ?host=, or about the object with ?kind=, ?namespace= and ?name=.
func (s *Server) explain(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	host, kind := query.Get("host"), query.Get("kind")
	key := resource.Key{Namespace: query.Get("namespace"), Name: query.Get("name")}
	var explanation Explanation
	parent, isDerivable := derive.KindNamed(kind)
	switch {
	case host != "" && kind == "" && key.Name == "":
		explanation = s.explainHost(host)
	case host != "" || kind == "" || key.Name == "":
		return badRequest("want ?host=HOST, or ?kind=KIND&namespace=NAMESPACE&name=NAME")
	case isDerivable && parent.Kind != string(resource.Gateway): // Istio has a Gateway, too
		key.Kind = resource.Kind(parent.Kind)
		explanation = s.explainParent(key)
	default:
		istioKind, err := kindNamed(kind)
		if err != nil {
			return err
		}
		key.Kind = istioKind
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

// Explain explains the object with a key. If there is none, the answer has its last change and similar objects.
func (s *Server) Explain(key resource.Key) Explanation {
	object := s.addDetails(s.opts.View.Explain(key))
	explanation := Explanation{Why: object.Why, Objects: []Explained{}}
	if object.Winner != nil || len(object.Quarantined)+len(object.Unsure) > 0 {
		explanation.Objects = append(explanation.Objects, object)
		explanation.LeftOut = s.opts.Sources.LeavingOut("", memberKeys(object.Explanation)...)
		return explanation
	}
	explanation.LastChange = s.lastChange(key)
	explanation.Excluded = s.opts.Sources.Excluding(key)
	explanation.Similar = similarKeys(s.candidateKeys(), key)
	explanation.PossibleDocuments = s.selectQuarantined(func(document Quarantined) bool {
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
			explanation.Objects = append(explanation.Objects, s.addDetails(s.opts.View.Explain(object.Key())))
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

// candidateKeys yields the keys that a user may ask for: those of served objects and of invalid objects.
func (s *Server) candidateKeys() iter.Seq[resource.Key] {
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
	explanation := Explanation{Why: answer.Why, Objects: []Explained{}, RequestTree: s.RequestTree(answer.Host)}
	objects := answer.Objects
	if keys, why := s.objectsNamed(host); len(objects) == 0 && len(keys) > 0 {
		explanation.Why = why
		for _, key := range keys[:min(len(keys), maxExplained)] {
			objects = append(objects, s.opts.View.Explain(key))
		}
	}
	var keys []resource.Key
	for _, object := range objects {
		explanation.Objects = append(explanation.Objects, s.addDetails(object))
		keys = append(keys, memberKeys(object)...)
	}
	if isAddress(host) { // no keys: LeftOut would have all addresses of these services
		explanation.LeftOut = s.opts.Sources.LeavingOut(host)
		return explanation
	}
	explanation.LeftOut = s.opts.Sources.LeavingOut(host, keys...)
	if len(objects) == 0 {
		explanation.Similar = similarHosts(s.opts.View.Snapshot(), answer.Host)
		explanation.PossibleDocuments = s.selectQuarantined(func(document Quarantined) bool {
			return !document.LastGoodServes
		})
	}
	return explanation
}

// addDetails adds the details of sources and clients to an explanation of the view.
func (s *Server) addDetails(explanation aggregate.Explanation) Explained {
	key := explanation.Object.Key()
	keys := memberKeys(explanation)
	result := Explained{
		Explanation: explanation, Recipients: s.recipients(key),
		Unresolved: s.unresolvedMessages(key), Rejected: s.rejectedWith(key),
		Quarantined: s.selectQuarantined(func(object Quarantined) bool { return slices.Contains(keys, object.Key()) }),
	}
	holds := make(map[string]*guard.Status) // by source
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
				result.ReadErrors = append(result.ReadErrors, Remark{serving.Source, serving.Unread})
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

// memberKeys returns the key of an explained object, and the keys of the entries of sources that are merged into it, or
// refused by the merge.
func memberKeys(explanation aggregate.Explanation) []resource.Key {
	key := explanation.Object.Key()
	keys := []resource.Key{key}
	if explanation.Merged == nil {
		return keys
	}
	for _, member := range slices.Concat(explanation.Merged.Members, explanation.Merged.Refused) {
		key.Name = member.Name
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// selectQuarantined returns the invalid objects and documents that a function selects. The list is not nil.
func (s *Server) selectQuarantined(selects func(Quarantined) bool) []Quarantined {
	selected := []Quarantined{}
	for _, source := range s.opts.Sources.Status() {
		for _, invalid := range source.Quarantined {
			if entry := (Quarantined{source.Name, invalid}); selects(entry) {
				selected = append(selected, entry)
			}
		}
	}
	return selected
}
