package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"

	"tributary/resource"
)

// object is a resource in the shape that istiod's /debug/configz gives it.
type object struct {
	Kind       resource.Kind   `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Metadata   metadata        `json:"metadata"`
	Spec       json.RawMessage `json:"spec"`
}

type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	ResourceVersion   string            `json:"resourceVersion"`
	CreationTimestamp *string           `json:"creationTimestamp"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	all := s.opts.View.Snapshot().All()
	if query := r.URL.Query(); query.Has("kind") {
		schema, ok := kindNamed(w, query.Get("kind"))
		if !ok {
			return
		}
		all = s.opts.View.Snapshot().List(schema.Kind, "")
	}
	w.Header().Set("Content-Type", "application/json")
	s.logWrite(r.URL.Path, writeObjects(w, all))
}

// writeObjects writes one object after another, so that a large view is never held as text.
func writeObjects(w io.Writer, all iter.Seq[*resource.Resource]) error {
	b := bufio.NewWriter(w)
	separator := "["
	for r := range all {
		text, err := marshal(r)
		if err != nil {
			return err // the JSON is cut short, which is better than an object left out in silence
		}
		_, _ = b.WriteString(separator + "\n  ") // the next one fails, too
		if _, err := b.Write(text); err != nil {
			return err // the client is gone
		}
		separator = ","
	}
	if separator == "[" {
		_, _ = b.WriteString("[]\n")
	} else {
		_, _ = b.WriteString("\n]\n")
	}
	return b.Flush()
}

// marshal is resource.MarshalJSON with the version, on several lines.
func marshal(r *resource.Resource) ([]byte, error) {
	text, err := resource.MarshalJSON(r)
	if err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", r.Key(), err)
	}
	o.Metadata.ResourceVersion = r.Version()
	return json.MarshalIndent(o, "  ", "  ")
}
