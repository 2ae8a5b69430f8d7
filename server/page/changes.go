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
	Age     string // of the chosen window, such as 15m, as the command history takes it
	Earlier int    // number of earlier changes, beyond the limit
	Waiting bool   // the history begins once all sources are read
	Failure string // the reason for an empty panel
}

// Change is an entry of the history. It has a difference if the reader opened it.
type Change struct {
	*history.Entry
	Link string // opens the entry, or closes it
	Diff string
}

// Window is a period that the reader can choose: the panel has the changes since.
type Window struct {
	Name, Link string
	Chosen     bool
}

// windows are the periods to choose from, the default first.
var windows = []struct{ name, age string }{
	{"15 minutes", "15m"}, {"an hour", "1h"}, {"a day", "24h"}, {"a week", "168h"},
}

// changesPanel returns the panel. For the default window it has the cached changes; it reads the others.
func (h *Handler) changesPanel(query pageQuery, latest recentChanges) Changes {
	panel := Changes{Age: query.age}
	for _, window := range windows {
		target := query
		target.age, target.change = window.age, ""
		panel.Windows = append(panel.Windows, Window{window.name, target.link("changes"), window.age == query.age})
	}
	answer, failure := latest.answer, latest.failure
	if query.age != windows[0].age {
		period, _ := time.ParseDuration(query.age) // one of windows
		older, err := h.program.History(history.Query{Since: time.Now().Add(-period), Limit: maxOlder})
		if err != nil {
			answer, failure = history.Answer{}, err.Error()
		} else {
			answer, failure = newestFirst(older), ""
		}
	}
	panel.Earlier = answer.Earlier
	panel.Waiting = answer.Waiting
	panel.Failure = failure
	for _, entry := range answer.Entries {
		change := Change{Entry: entry}
		target := query
		target.change = entry.Time.UTC().Format(time.RFC3339Nano) + " " + entry.Key().String()
		if query.change == target.change {
			change.Diff = h.difference(entry)
			target.change = ""
		}
		change.Link = target.link("changes")
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
	recentPeriod = 15 * time.Minute // the first of windows
	maxRecent    = 20               // the changes that it shows
	maxOlder     = 200              // the changes that another window shows
	// rereadPeriod limits reads of the history, which is on disk: recent changes are shown for this long.
	rereadPeriod = 5 * time.Second
)

// recentChanges are the changes of recentPeriod at the time of a read, the newest first.
type recentChanges struct {
	readAt    time.Time
	revision  memstore.Revision // of the view
	changedAt time.Time         // when a read first had this revision
	answer    history.Answer
	failure   string // the reason for an empty answer
}

// latestChanges returns the recent changes. It returns the previous ones if the view is unchanged and they are younger
// than rereadPeriod. The history follows the view with a delay: for rereadPeriod after a change, each call reads it.
func latestChanges(program Program, revision memstore.Revision, previous recentChanges) recentChanges {
	readAt := time.Now()
	next := recentChanges{readAt: readAt, revision: revision, changedAt: previous.changedAt}
	if revision != previous.revision || previous.readAt.IsZero() {
		next.changedAt = readAt
	}
	if readAt.Sub(next.changedAt) > rereadPeriod && readAt.Sub(previous.readAt) < rereadPeriod {
		return previous
	}
	answer, err := program.History(history.Query{Since: readAt.Add(-recentPeriod), Limit: maxRecent})
	if err != nil {
		next.failure = err.Error()
		return next
	}
	next.answer = newestFirst(answer)
	return next
}
