package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
)

func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	objects := s.opts.View.Snapshot().All()
	if query := r.URL.Query(); query.Has("kind") {
		schema, ok := kindNamed(w, query.Get("kind"))
		if !ok {
			return
		}
		objects = s.opts.View.Snapshot().List(schema.Kind, "")
	}
	writeJSON(w, func(w io.Writer) error { return writeObjects(w, objects) })
}

func writeObjects(w io.Writer, objects iter.Seq[*resource.Resource]) error {
	return writeList(w, func(yield func(any) bool) {
		for object := range objects {
			if !yield(configObject{object}) {
				return
			}
		}
	})
}

// configObject is an object in the format of istiod's /debug/configz.
type configObject struct{ *resource.Resource }

// MarshalJSON adds the version to the metadata. An error cuts the list short, which is better than a missing object.
func (c configObject) MarshalJSON() ([]byte, error) {
	text, err := resource.MarshalJSON(c.Resource)
	if err != nil {
		return nil, err
	}
	var object struct {
		Kind       resource.Kind   `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Metadata   map[string]any  `json:"metadata"`
		Spec       json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Key(), err)
	}
	object.Metadata["resourceVersion"] = c.Version()
	object.Metadata["creationTimestamp"] = object.Metadata["creationTimestamp"] // null without one, like istiod
	return json.Marshal(object)
}

// kindNamed returns the schema that a request means by a name; if there is none, it has answered that it is an error.
func kindNamed(w http.ResponseWriter, name string) (*resource.Schema, bool) {
	schema, ok := resource.SchemaByName(name)
	if ok {
		return schema, true
	}
	var names, known []string
	for _, s := range resource.Schemas() {
		names = append(append(names, strings.ToLower(string(s.Kind)), s.Plural), s.ShortNames...)
		known = append(known, s.Plural)
	}
	http.Error(w, "unknown kind \""+name+"\""+words.Meant(name, names)+"; known: "+strings.Join(known, ", "), http.StatusBadRequest)
	return nil, false
}

// ofAllKinds answers with an error if a request asks for one kind of a page that has all: it would be given what it did not ask for.
func ofAllKinds(w http.ResponseWriter, r *http.Request) bool {
	if !r.URL.Query().Has("kind") {
		return true
	}
	http.Error(w, r.URL.Path+" is about all kinds, and takes no ?kind=", http.StatusBadRequest)
	return false
}

// Seen says when each object of a kind was first seen here, by "namespace/name". Clients are not told, since each replica
// has times of its own.
type Seen map[string]time.Time

func (s *Server) seen(w http.ResponseWriter, r *http.Request) {
	schema, ok := kindNamed(w, r.URL.Query().Get("kind"))
	if !ok {
		return
	}
	times := Seen{}
	for o := range s.opts.View.Snapshot().List(schema.Kind, "") {
		if at := o.Seen(); !at.IsZero() {
			times[o.Key().FullName()] = at
		}
	}
	writeJSON(w, func(w io.Writer) error { return json.NewEncoder(w).Encode(times) })
}
