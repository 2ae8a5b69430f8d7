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

// configz answers with the served objects, or those of ?kind=.
func (s *Server) configz(response http.ResponseWriter, r *http.Request) error {
	objects := s.opts.View.Snapshot().All()
	if query := r.URL.Query(); query.Has("kind") {
		kind, err := kindNamed(query.Get("kind"))
		if err != nil {
			return err
		}
		objects = s.opts.View.Snapshot().List(kind, "")
	}
	return writeJSON(response, func(w io.Writer) error { return writeObjects(w, objects) })
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

// MarshalJSON adds the version to the metadata. An error makes the list invalid JSON, so that a reader notices that the
// object is missing.
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

// kindNamed returns the kind that has a name. The error for an unknown name lists the known ones.
func kindNamed(name string) (resource.Kind, error) {
	if schema, exists := resource.SchemaByName(name); exists {
		return schema.Kind, nil
	}
	plurals := words.Each(resource.Schemas(), func(schema *resource.Schema) string { return schema.Plural })
	return "", badRequest("unknown kind \"%s\"%s; known: %s", name, words.Suggestion(name, resource.KindNames()),
		strings.Join(plurals, ", "))
}

// FirstSeen has the times at which this server first saw the objects of a kind, by "namespace/name". Clients do not get
// them, since each replica has its own.
type FirstSeen map[string]time.Time

func (s *Server) firstSeen(response http.ResponseWriter, r *http.Request) error {
	kind, err := kindNamed(r.URL.Query().Get("kind"))
	if err != nil {
		return err
	}
	times := FirstSeen{}
	for object := range s.opts.View.Snapshot().List(kind, "") {
		if moment := object.Seen(); !moment.IsZero() {
			times[object.Key().FullName()] = moment
		}
	}
	return writeJSON(response, func(w io.Writer) error { return json.NewEncoder(w).Encode(times) })
}
