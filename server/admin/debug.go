package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/resource"
)

// json returns the handler of a page with a value as JSON.
func (s *Server) json(value func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if coversAllKinds(w, r) {
			s.write(w, value())
		}
	})
}

func (s *Server) write(w http.ResponseWriter, value any) {
	writeJSON(w, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	})
}

// writeJSON sets the type of an answer that write writes.
func writeJSON(w http.ResponseWriter, write func(io.Writer) error) {
	w.Header().Set("Content-Type", "application/json")
	_ = write(w) // the client is gone
}

// reply writes a line of plain text.
func reply(w http.ResponseWriter, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...) //nolint:gosec // the text is plain
}

// list returns the handler of a page with an array. One element at a time is in memory, since 5,000 clients take
// hundreds of megabytes.
func (s *Server) list(elements iter.Seq[any]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if coversAllKinds(w, r) {
			writeJSON(w, func(w io.Writer) error { return writeList(w, elements) })
		}
	})
}

// writeList writes an array like write, one element at a time.
func writeList(w io.Writer, elements iter.Seq[any]) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("  ", "  ")
	encoder.SetEscapeHTML(false)
	separator, end := "[\n  ", "[]\n"
	for element := range elements {
		text.Reset()
		text.WriteString(separator)
		separator, end = ",\n  ", "\n]\n"
		if err := encoder.Encode(element); err != nil {
			return err
		}
		if _, err := w.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err // the reader closed the connection
		}
	}
	_, err := io.WriteString(w, end)
	return err
}

// conflict is an entry of /debug/conflicts: a key in several sources, or several times in one, or a ServiceEntry that
// cannot be merged into that of its host.
type conflict struct {
	resource.Ref

	Winner place   `json:"winner"`
	Losers []place `json:"losers"`
	Reason string  `json:"reason,omitempty"` // of a failed merge
}

type place struct {
	Source string `json:"source"`
	Place  string `json:"place"`
}

func (s *Server) conflicts() any {
	list := []conflict{}
	add := func(ref resource.Ref, winner place, reason string, losers ...place) {
		list = append(list, conflict{ref, winner, losers, reason})
	}
	for shadow := range s.opts.View.Shadows() {
		add(resource.Ref(shadow.Key), placeOf(shadow.Winner), "", places(shadow.Losers, placeOf)...)
	}
	for _, refusal := range s.opts.View.Refusals() {
		add(resource.Ref(refusal.Key), placeOf(refusal.Winner), refusal.Reason, placeOf(refusal.Loser))
	}
	for _, source := range s.opts.Sources.Status() {
		placeIn := func(text string) place { return place{source.Name, text} }
		for _, duplicate := range source.Conflicts {
			add(duplicate.Ref, placeIn(duplicate.Winner), "", places(duplicate.Losers, placeIn)...)
		}
	}
	return list
}

func places[T any](losers []T, place func(T) place) (list []place) {
	for _, loser := range losers {
		list = append(list, place(loser))
	}
	return list
}

func placeOf(candidate aggregate.Candidate) place {
	return place{candidate.Source, candidate.Resource.Origin().Place}
}

// NoEffect is an object with parts that have no effect on Envoys and gRPC clients.
type NoEffect struct {
	conflicts.Ref
	Origin string   `json:"origin"`
	What   []string `json:"what"`
}

func (s *Server) noEffect() any {
	list := []NoEffect{}
	if s.opts.Affected == nil || s.opts.WithoutEffect == nil {
		return list
	}
	snapshot := s.opts.View.Snapshot()
	for _, key := range s.opts.Affected() {
		if object := snapshot.Get(key); object != nil {
			list = append(list, NoEffect{conflicts.Ref(key), object.Origin().String(), s.opts.WithoutEffect(object)})
		}
	}
	return list
}
