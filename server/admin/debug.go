package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/resource"
)

// handler answers a request. Before it writes, it may return an error, which is the answer then.
type handler func(w http.ResponseWriter, r *http.Request) error

func (h handler) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	if err := h(response, r); err != nil {
		code := http.StatusInternalServerError
		if failed, ok := errors.AsType[*failure](err); ok {
			code = failed.code
		}
		http.Error(response, err.Error(), code)
	}
}

// failure is an error with the status of an answer.
type failure struct {
	code int
	error
}

func badRequest(format string, args ...any) error {
	return &failure{http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// page returns the handler of a page about all kinds.
func page(write func(w http.ResponseWriter) error) handler {
	return func(response http.ResponseWriter, r *http.Request) error {
		if r.URL.Query().Has("kind") {
			return badRequest("%s is about all kinds, and takes no ?kind=", r.URL.Path)
		}
		return write(response)
	}
}

// valuePage returns the handler of a page with a value as JSON.
func valuePage[T any](value func() T) handler {
	return page(func(w http.ResponseWriter) error { return writeValue(w, value()) })
}

// listPage returns the handler of a page with an array. One element at a time is in memory, since 5,000 clients take
// hundreds of megabytes.
func listPage(elements iter.Seq[any]) handler {
	return page(func(w http.ResponseWriter) error {
		return writeJSON(w, func(w io.Writer) error { return writeList(w, elements) })
	})
}

func writeValue(w http.ResponseWriter, value any) error {
	return writeJSON(w, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(value)
	})
}

// writeJSON sets the type of an answer that write writes.
func writeJSON(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Type", "application/json")
	_ = write(w) // the client is gone
	return nil
}

// reply writes a line of plain text.
func reply(w http.ResponseWriter, format string, args ...any) error {
	_, _ = fmt.Fprintf(w, format+"\n", args...) //nolint:gosec // the text is plain
	return nil
}

// writeList writes an array like write, one element at a time.
func writeList(writer io.Writer, elements iter.Seq[any]) error {
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
		if _, err := writer.Write(bytes.TrimSuffix(text.Bytes(), []byte("\n"))); err != nil {
			return err // the reader closed the connection
		}
	}
	_, err := io.WriteString(writer, end)
	return err
}

// contestedKey is an entry of /debug/conflicts: a key in several sources, or several times in one, or a ServiceEntry
// that cannot be merged into that of its host.
type contestedKey struct {
	resource.Ref

	Winner place   `json:"winner"`
	Losers []place `json:"losers"`
	Reason string  `json:"reason,omitempty"` // of a failed merge
}

type place struct {
	Source string `json:"source"`
	Place  string `json:"place"`
}

func (s *Server) contestedKeys() []contestedKey {
	list := []contestedKey{}
	addKey := func(ref resource.Ref, winner place, reason string, losers ...place) {
		list = append(list, contestedKey{ref, winner, losers, reason})
	}
	for shadow := range s.opts.View.Shadows() {
		addKey(resource.Ref(shadow.Key), placeOf(shadow.Winner), "", words.Each(shadow.Losers, placeOf)...)
	}
	for _, refusal := range s.opts.View.Refusals() {
		addKey(resource.Ref(refusal.Key), placeOf(refusal.Winner), refusal.Reason, placeOf(refusal.Loser))
	}
	for _, source := range s.opts.Sources.Status() {
		placeIn := func(text string) place { return place{source.Name, text} }
		for _, duplicate := range source.Duplicates {
			addKey(duplicate.Ref, placeIn(duplicate.Winner), "", words.Each(duplicate.Losers, placeIn)...)
		}
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

func (s *Server) noEffect() []NoEffect {
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
