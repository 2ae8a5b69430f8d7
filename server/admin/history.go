package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tributary/internal/history"
	"tributary/resource"
)

// History has the changes of the view, and its earlier states.
type History interface {
	Find(history.Query) (*history.Answer, error)
	// ServedAt returns the objects that were served at a time, or an *history.EarlierError.
	ServedAt(moment time.Time, kind resource.Kind) (*history.State, error)
	// Health returns the defects of the history itself.
	Health() history.Health
}

// historyLimit is the default number of changes in an answer.
const historyLimit = 1000

var errNoHistory = errors.New("there is no history: nothing is kept (stateDir: off, or history.bytes: -1)")

func (s *Server) history(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	kind, since, err := s.historyQuery(query, "since", query.Get("since"))
	if err != nil {
		return err
	}
	selection := history.Query{
		Kind: kind, Namespace: query.Get("namespace"), Name: query.Get("name"), Source: query.Get("source"),
		Since: since, Limit: historyLimit, Details: query.Get("details") == "true",
	}
	if text := query.Get("limit"); text != "" {
		if selection.Limit, err = strconv.Atoi(text); err != nil || selection.Limit < 1 {
			return badRequest("want ?limit= as a number above 0")
		}
	}
	answer, err := s.opts.History.Find(selection)
	if err != nil {
		return err
	}
	if !encoded(query) {
		for _, entry := range answer.Entries {
			entry.Old.DecodeSpec()
			entry.New.DecodeSpec()
		}
	}
	return writeJSON(response, func(w io.Writer) error { return json.NewEncoder(w).Encode(answer) })
}

func (s *Server) historyAt(response http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	kind, moment, err := s.historyQuery(query, "time", query.Get("time"))
	if err != nil {
		return err
	}
	if moment.IsZero() {
		moment = time.Now()
	}
	state, err := s.opts.History.ServedAt(moment, kind)
	if _, earlier := errors.AsType[*history.EarlierError](err); earlier {
		return &failure{http.StatusGone, err}
	}
	if err != nil {
		return err
	}
	return writeJSON(response, func(w io.Writer) error { return writeState(w, state, encoded(query)) })
}

// historyQuery returns the kind and the time of a query. Both are zero if the query lacks them.
func (s *Server) historyQuery(
	query url.Values, timeName, timeText string,
) (kind resource.Kind, moment time.Time, err error) {
	if s.opts.History == nil {
		return "", moment, &failure{http.StatusNotImplemented, errNoHistory}
	}
	if name := query.Get("kind"); name != "" {
		kind, err = kindNamed(name)
	}
	if err == nil && timeText != "" {
		if moment, err = time.Parse(time.RFC3339Nano, timeText); err != nil {
			err = badRequest("want ?%s= as 2006-01-02T15:04:05Z", timeName)
		}
	}
	return kind, moment, err
}

// writeState writes a state as JSON. It encodes one object at a time, since the texts of a large state take much
// memory.
func writeState(writer io.Writer, state *history.State, encoded bool) error {
	if _, err := fmt.Fprintf(writer, `{"at": %q, "objects": `, state.Time.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	err := writeList(writer, func(yield func(any) bool) {
		for _, object := range state.Objects {
			if !encoded {
				object = new(*object) // a copy: the state must not be modified
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
		_, err = fmt.Fprintf(writer, `, "unknown": %s}`+"\n", unknown)
	}
	return err
}

// encoded reports whether a query asks for specs as encoded protobuf.
func encoded(query url.Values) bool { return query.Get("encoded") == "true" }

// History returns changes of objects, in order of time.
func (s *Server) History(query history.Query) (*history.Answer, error) {
	if s.opts.History == nil {
		return nil, errNoHistory
	}
	return s.opts.History.Find(query)
}

// lastChange returns the last change of an object, or nil if the history has none.
func (s *Server) lastChange(key resource.Key) *history.Entry {
	answer, err := s.History(history.Query{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Limit: 1})
	if err != nil || len(answer.Entries) == 0 {
		return nil // /debug/history shows the error
	}
	return answer.Entries[0]
}

// historyHealth returns the defects of the history, or nil if there are none.
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
