package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"tributary/internal/history"
	"tributary/resource"
)

// History is what was served before.
type History interface {
	Find(history.Query) (*history.Answer, error)
	// ServedAt returns the objects that were served at a time, or an *history.EarlierError if they are not known.
	ServedAt(moment time.Time, kind resource.Kind) (*history.State, error)
	// Health returns what is wrong with it; nothing if it is empty.
	Health() history.Health
}

// historyLimit is how many changes are told of at once unless more are asked for.
const historyLimit = 1000

var errNoHistory = errors.New("there is no history: nothing is kept (stateDir: off, or history.bytes: -1)")

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	kind, ok := s.historyKind(w, r)
	if !ok {
		return
	}
	q := history.Query{
		Kind: kind, Namespace: query.Get("namespace"), Name: query.Get("name"), Source: query.Get("source"),
		Limit: historyLimit, Details: query.Get("details") == "true",
	}
	if q.Since, ok = timeIn(w, "since", query.Get("since"), time.Time{}); !ok {
		return
	}
	var err error
	if text := query.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 {
			http.Error(w, "want ?limit= as a number above 0", http.StatusBadRequest)
			return
		}
	}
	a, err := s.opts.History.Find(q)
	if err == nil && !encoded(r) {
		for _, e := range a.Entries {
			e.Old.DecodeSpec()
			e.New.DecodeSpec()
		}
	}
	s.answerHistory(w, r, a, err)
}

func (s *Server) historyAt(w http.ResponseWriter, r *http.Request) {
	kind, ok := s.historyKind(w, r)
	if !ok {
		return
	}
	at, ok := timeIn(w, "time", r.URL.Query().Get("time"), time.Now())
	if !ok {
		return
	}
	a, err := s.opts.History.ServedAt(at, kind)
	if err != nil {
		s.answerHistory(w, r, nil, err)
		return
	}
	s.writeJSON(w, r, func(w io.Writer) error { return writeState(w, a, encoded(r)) })
}

// timeIn returns the time in the text of a parameter, or fallback without one. It answers with an error if that is none.
func timeIn(w http.ResponseWriter, name, text string, fallback time.Time) (at time.Time, ok bool) {
	if text == "" {
		return fallback, true
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		http.Error(w, "want ?"+name+"= as 2006-01-02T15:04:05Z", http.StatusBadRequest)
	}
	return at, err == nil
}

// writeState writes one object after another, so that the specs of a large state are never all in memory as text.
func writeState(w io.Writer, state *history.State, encoded bool) error {
	head, err := json.Marshal(history.State{Time: state.Time, Unknown: state.Unknown})
	if err != nil {
		return err
	}
	before, after, _ := bytes.Cut(head, []byte("null")) // the objects, of which there is no list
	if _, err := w.Write(append(before, '[')); err != nil {
		return err
	}
	e, separator := json.NewEncoder(w), ""
	for _, o := range state.Objects {
		if !encoded {
			o = new(*o) // the state itself stays as it is
			o.DecodeSpec()
		}
		if _, err := io.WriteString(w, separator); err != nil {
			return err // who asked has gone
		}
		if err := e.Encode(o); err != nil {
			return err
		}
		separator = ","
	}
	_, err = fmt.Fprintf(w, "]%s\n", after)
	return err
}

// encoded reports whether specs are to be as they are, for programs.
func encoded(r *http.Request) bool { return r.URL.Query().Get("encoded") == "true" }

// historyKind returns the kind that is asked for, which may be none, and whether there is anything to ask.
func (s *Server) historyKind(w http.ResponseWriter, r *http.Request) (resource.Kind, bool) {
	if s.opts.History == nil {
		http.Error(w, errNoHistory.Error(), http.StatusNotImplemented)
		return "", false
	}
	name := r.URL.Query().Get("kind")
	if name == "" {
		return "", true
	}
	schema, ok := kindNamed(w, name)
	if !ok {
		return "", false
	}
	return schema.Kind, true
}

// History returns changes of objects, in order of time.
func (s *Server) History(query history.Query) (*history.Answer, error) {
	if s.opts.History == nil {
		return nil, errNoHistory
	}
	return s.opts.History.Find(query)
}

// gone is the last change of an object that is not served; nil if that is not known.
func (s *Server) gone(key resource.Key) *history.Entry {
	if s.opts.History == nil {
		return nil
	}
	a, err := s.opts.History.Find(history.Query{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Limit: 1})
	if err != nil || len(a.Entries) == 0 {
		return nil // who asks the history is told why
	}
	return a.Entries[0]
}

// historyHealth is what is wrong with the history; nil if nothing is, or there is none.
func (s *Server) historyHealth() *history.Health {
	if s.opts.History == nil {
		return nil
	}
	h := s.opts.History.Health()
	if h.Well() {
		return nil
	}
	return &h
}

func (s *Server) answerHistory(w http.ResponseWriter, r *http.Request, answer any, err error) {
	if _, earlier := errors.AsType[*history.EarlierError](err); earlier {
		http.Error(w, err.Error(), http.StatusGone)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.writeJSON(w, r, func(w io.Writer) error { return json.NewEncoder(w).Encode(answer) })
}
