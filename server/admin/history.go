package admin

import (
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

// History has the earlier states of the view.
type History interface {
	Find(history.Query) (*history.Answer, error)
	// ServedAt returns the objects that were served at a time, or an *history.EarlierError.
	ServedAt(moment time.Time, kind resource.Kind) (*history.State, error)
	// Health returns the defects.
	Health() history.Health
}

// historyLimit is the default number of changes in an answer.
const historyLimit = 1000

var errNoHistory = errors.New("there is no history: nothing is kept (stateDir: off, or history.bytes: -1)")

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	kind, since, ok := s.historyQuery(w, r, "since", query.Get("since"))
	if !ok {
		return
	}
	selection := history.Query{
		Kind: kind, Namespace: query.Get("namespace"), Name: query.Get("name"), Source: query.Get("source"),
		Since: since, Limit: historyLimit, Details: query.Get("details") == "true",
	}
	if text := query.Get("limit"); text != "" {
		var err error
		if selection.Limit, err = strconv.Atoi(text); err != nil || selection.Limit < 1 {
			http.Error(w, "want ?limit= as a number above 0", http.StatusBadRequest)
			return
		}
	}
	answer, err := s.opts.History.Find(selection)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if !encoded(r) {
		for _, entry := range answer.Entries {
			entry.Old.DecodeSpec()
			entry.New.DecodeSpec()
		}
	}
	writeJSON(w, func(w io.Writer) error { return json.NewEncoder(w).Encode(answer) })
}

func (s *Server) historyAt(w http.ResponseWriter, r *http.Request) {
	kind, moment, ok := s.historyQuery(w, r, "time", r.URL.Query().Get("time"))
	if !ok {
		return
	}
	if moment.IsZero() {
		moment = time.Now()
	}
	state, err := s.opts.History.ServedAt(moment, kind)
	if err != nil {
		code := http.StatusInternalServerError
		if _, earlier := errors.AsType[*history.EarlierError](err); earlier {
			code = http.StatusGone
		}
		http.Error(w, err.Error(), code)
		return
	}
	writeJSON(w, func(w io.Writer) error { return writeState(w, state, encoded(r)) })
}

// historyQuery returns the kind and the time of a request, which may be empty. It answers with an error if there is no
// history, or a parameter is wrong.
func (s *Server) historyQuery(
	w http.ResponseWriter, r *http.Request, timeName, timeText string,
) (kind resource.Kind, moment time.Time, ok bool) {
	if s.opts.History == nil {
		http.Error(w, errNoHistory.Error(), http.StatusNotImplemented)
		return "", moment, false
	}
	if name := r.URL.Query().Get("kind"); name != "" {
		schema, exists := kindNamed(w, name)
		if !exists {
			return "", moment, false
		}
		kind = schema.Kind
	}
	if timeText != "" {
		var err error
		if moment, err = time.Parse(time.RFC3339Nano, timeText); err != nil {
			http.Error(w, "want ?"+timeName+"= as 2006-01-02T15:04:05Z", http.StatusBadRequest)
			return "", moment, false
		}
	}
	return kind, moment, true
}

// writeState writes one object after another, since the texts of a large state take much memory.
func writeState(w io.Writer, state *history.State, encoded bool) error {
	if _, err := fmt.Fprintf(w, `{"at": %q, "objects": `, state.Time.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	err := writeList(w, func(yield func(any) bool) {
		for _, object := range state.Objects {
			if !encoded {
				object = new(*object) // the state itself stays as it is
				object.DecodeSpec()
			}
			if !yield(object) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	unknown, err := json.Marshal(append([]string{}, state.Unknown...))
	if err == nil {
		_, err = fmt.Fprintf(w, `, "unknown": %s}`+"\n", unknown)
	}
	return err
}

// encoded reports whether a request is for encoded specs.
func encoded(r *http.Request) bool { return r.URL.Query().Get("encoded") == "true" }

// History returns changes of objects, in order of time.
func (s *Server) History(query history.Query) (*history.Answer, error) {
	if s.opts.History == nil {
		return nil, errNoHistory
	}
	return s.opts.History.Find(query)
}

// gone returns the last change of an object that is not served, or nil.
func (s *Server) gone(key resource.Key) *history.Entry {
	answer, err := s.History(history.Query{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Limit: 1})
	if err != nil || len(answer.Entries) == 0 {
		return nil // /debug/history shows the error
	}
	return answer.Entries[0]
}

// historyHealth returns the defects of the history, or nil.
func (s *Server) historyHealth() *history.Health {
	if s.opts.History == nil {
		return nil
	}
	health := s.opts.History.Health()
	if health.Well() {
		return nil
	}
	return &health
}
