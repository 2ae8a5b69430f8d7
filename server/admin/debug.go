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

// json makes a page of what get returns.
func (s *Server) json(get func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ofAllKinds(w, r) {
			s.write(w, r, get())
		}
	})
}

// write writes v as JSON.
func (s *Server) write(w http.ResponseWriter, r *http.Request, v any) {
	writeJSON(w, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
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

// list makes a page of what each yields: an array of which one element at a time is in memory, since of 5,000 clients all of them
// take hundreds of megabytes.
func (s *Server) list(each iter.Seq[any]) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ofAllKinds(w, r) {
			writeJSON(w, func(w io.Writer) error { return writeList(w, each) })
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

// conflict is an entry of /debug/conflicts: a key that several sources have, or one source several times, or a ServiceEntry that
// cannot be merged into that of its host.
type conflict struct {
	resource.Ref

	Winner place   `json:"winner"`
	Losers []place `json:"losers"`
	Reason string  `json:"reason,omitempty"` // why it cannot be merged
}

type place struct {
	Source string `json:"source"`
	Place  string `json:"place"`
}

func (s *Server) conflicts() any {
	all := []conflict{}
	for shadow := range s.opts.View.Shadows() {
		c := conflict{Ref: resource.Ref(shadow.Key), Winner: placeOf(shadow.Winner)}
		for _, l := range shadow.Losers {
			c.Losers = append(c.Losers, placeOf(l))
		}
		all = append(all, c)
	}
	for _, r := range s.opts.View.Refusals() {
		all = append(all, conflict{
			Ref: resource.Ref(r.Key), Winner: placeOf(r.Winner), Losers: []place{placeOf(r.Loser)}, Reason: r.Reason,
		})
	}
	for _, src := range s.opts.Sources.Status() {
		for _, within := range src.Conflicts {
			c := conflict{Ref: within.Ref, Winner: place{src.Name, within.Winner}}
			for _, l := range within.Losers {
				c.Losers = append(c.Losers, place{src.Name, l})
			}
			all = append(all, c)
		}
	}
	return all
}

func placeOf(c aggregate.Candidate) place { return place{c.Source, c.Resource.Origin().Place} }

// NoEffect is an object that says what has no effect on Envoys and gRPC clients.
type NoEffect struct {
	conflicts.Ref
	Origin string   `json:"origin"`
	What   []string `json:"what"`
}

func (s *Server) noEffect() any {
	all := []NoEffect{}
	if s.opts.Affected == nil || s.opts.WithoutEffect == nil {
		return all
	}
	snapshot := s.opts.View.Snapshot()
	for _, key := range s.opts.Affected() {
		if r := snapshot.Get(key); r != nil {
			all = append(all, NoEffect{conflicts.Ref(key), r.Origin().String(), s.opts.WithoutEffect(r)})
		}
	}
	return all
}
