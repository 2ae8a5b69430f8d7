package page

import (
	"slices"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"tributary/internal/history"
	"tributary/memstore"
)

// Changes is the panel of changes, the newest first.
type Changes struct {
	Entries []Change
	Windows []Window
	Age     string // of the window, as the command history takes it
	Earlier int    // number of changes beyond the limit
	Waiting bool   // the history begins when all sources were read
	Problem string // the reason for an empty panel
}

// Change is one entry, with its difference if the reader opened it.
type Change struct {
	*history.Entry
	Open string // the address that opens it, or closes it
	Diff string
}

// Window is a choice of how far the panel looks back.
type Window struct {
	Name, Link string
	Chosen     bool
}

// windows are the choices, the default first.
var windows = []struct{ name, age string }{
	{"15 minutes", "15m"}, {"an hour", "1h"}, {"a day", "24h"}, {"a week", "168h"},
}

// changes fills the panel. The recent changes serve the default window.
func (h *Handler) changes(query pageQuery, latest recentChanges) Changes {
	panel := Changes{Age: query.age}
	for _, window := range windows {
		target := query
		target.age, target.change = window.age, ""
		panel.Windows = append(panel.Windows, Window{window.name, target.link("changes"), window.age == query.age})
	}
	answer, problem := latest.answer, latest.problem
	if query.age != windows[0].age {
		duration, _ := time.ParseDuration(query.age) // one of windows
		older, err := h.program.History(history.Query{Since: time.Now().Add(-duration), Limit: maxOlder})
		if err != nil {
			answer, problem = history.Answer{}, err.Error()
		} else {
			answer, problem = newestFirst(older), ""
		}
	}
	panel.Earlier, panel.Waiting, panel.Problem = answer.Earlier, answer.Waiting, problem
	for _, entry := range answer.Entries {
		change, target := Change{Entry: entry}, query
		target.change = entry.Time.UTC().Format(time.RFC3339Nano) + " " + entry.Key().String()
		if query.change == target.change {
			change.Diff = h.difference(entry)
			target.change = ""
		}
		change.Open = target.link("changes")
		panel.Entries = append(panel.Entries, change)
	}
	return panel
}

// difference returns the unified diff of a change, or the reason for its absence.
func (h *Handler) difference(entry *history.Entry) string {
	key := entry.Key()
	answer, err := h.program.History(history.Query{
		Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Since: entry.Time, Limit: maxOlder, Details: true,
	})
	if err != nil {
		return err.Error()
	}
	index := slices.IndexFunc(answer.Entries,
		func(candidate *history.Entry) bool { return candidate.Time.Equal(entry.Time) })
	if index < 0 || entry.Unknown {
		return "The history does not have the object before this change."
	}
	change := answer.Entries[index]
	diff := udiff.Unified("before", "after", objectText(change.Old.Resource()), objectText(change.New.Resource()))
	if diff == "" {
		return "The content is the same: it comes from another place."
	}
	return diff
}

// newestFirst returns an answer in the order of the panel.
func newestFirst(answer *history.Answer) history.Answer {
	ordered := *answer
	ordered.Entries = slices.Clone(answer.Entries)
	slices.Reverse(ordered.Entries)
	return ordered
}

const (
	// firstWindow is the first of windows, and maxChanges the number of changes that it shows; maxOlder that of the
	// others.
	firstWindow, maxChanges, maxOlder = 15 * time.Minute, 20, 200
	// rereadPeriod is how long changes are shown before the history, which is on disk, is read again.
	rereadPeriod = 5 * time.Second
)

// recentChanges are the latest changes at a time, the newest first.
type recentChanges struct {
	readAt    time.Time
	revision  memstore.Revision // of the view
	changedAt time.Time         // when this revision was seen first
	answer    history.Answer
	problem   string // the reason for an empty answer
}

// latestChanges returns the latest changes of a revision of the view, given the previous ones. The history follows the
// view with a delay, so it is read again for rereadPeriod after each change.
func latestChanges(program Program, revision memstore.Revision, previous recentChanges) recentChanges {
	readAt := time.Now()
	next := recentChanges{readAt: readAt, revision: revision, changedAt: previous.changedAt}
	if revision != previous.revision || previous.readAt.IsZero() {
		next.changedAt = readAt
	}
	if readAt.Sub(next.changedAt) > rereadPeriod && readAt.Sub(previous.readAt) < rereadPeriod {
		return previous
	}
	answer, err := program.History(history.Query{Since: readAt.Add(-firstWindow), Limit: maxChanges})
	if err != nil {
		next.problem = err.Error()
		return next
	}
	next.answer = newestFirst(answer)
	return next
}
