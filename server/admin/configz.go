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
	if _, exists := object.Metadata["creationTimestamp"]; !exists {
		object.Metadata["creationTimestamp"] = nil // like istiod
	}
	return json.Marshal(object)
}

// kindNamed returns the schema with a name, or answers with an error.
func kindNamed(w http.ResponseWriter, name string) (*resource.Schema, bool) {
	schema, exists := resource.SchemaByName(name)
	if exists {
		return schema, true
	}
	var names, plurals []string
	for _, schema := range resource.Schemas() {
		names = append(append(names, strings.ToLower(string(schema.Kind)), schema.Plural), schema.ShortNames...)
		plurals = append(plurals, schema.Plural)
	}
	http.Error(w, "unknown kind \""+name+"\""+words.Suggestion(name, names)+"; known: "+strings.Join(plurals, ", "),
		http.StatusBadRequest)
	return nil, false
}

// coversAllKinds answers with an error if a request names a kind, since the page cannot select one.
func coversAllKinds(w http.ResponseWriter, r *http.Request) bool {
	if !r.URL.Query().Has("kind") {
		return true
	}
	http.Error(w, r.URL.Path+" is about all kinds, and takes no ?kind=", http.StatusBadRequest)
	return false
}

// Seen has the times at which this server first saw the objects of a kind, by "namespace/name". Clients do not get
// them, since each replica has its own.
type Seen map[string]time.Time

func (s *Server) seen(w http.ResponseWriter, r *http.Request) {
	schema, exists := kindNamed(w, r.URL.Query().Get("kind"))
	if !exists {
		return
	}
	times := Seen{}
	for object := range s.opts.View.Snapshot().List(schema.Kind, "") {
		if moment := object.Seen(); !moment.IsZero() {
			times[object.Key().FullName()] = moment
		}
	}
	writeJSON(w, func(w io.Writer) error { return json.NewEncoder(w).Encode(times) })
}
