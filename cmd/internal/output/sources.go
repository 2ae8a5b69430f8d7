package output

import (
	"slices"

	"tributary/server/admin"
)

// counted are the columns with what may be wrong with a source. On a screen they are left out while there is nothing in any.
var counted = []struct {
	title string
	of    func(admin.SourceState) int
}{
	{"HELD", func(s admin.SourceState) int {
		if s.Hold == nil {
			return 0
		}
		return s.Hold.Objects
	}},
	{"QUARANTINED", func(s admin.SourceState) int { return s.Quarantined }},
	{"WARNINGS", func(s admin.SourceState) int { return s.Warnings }},
	{"LEFT OUT", func(s admin.SourceState) int { return s.LeftOut }},
}

// sources writes a table of the sources. What there is to say of one stands in its row if that fits the screen, and else below the table:
// it must not be cut.
func (t *text) sources(all []admin.SourceState) {
	rows := t.sourceRows(all, true)
	fits := t.screen.Fits(rows.text())
	if !fits {
		rows = t.sourceRows(all, false)
	}
	rows.flush()
	for _, s := range all {
		if said := t.message(s); said != "" && !fits {
			t.line("  %s: %s", s.Name, said)
		}
	}
}

func (t *text) sourceRows(all []admin.SourceState, messages bool) *columns {
	shown := counted
	if t.screen.Width > 0 {
		shown = nil
		for _, c := range counted {
			if slices.ContainsFunc(all, func(s admin.SourceState) bool { return c.of(s) > 0 }) {
				shown = append(shown, c)
			}
		}
	}
	titles := []any{"SOURCE", "STATE", "OBJECTS"}
	for _, c := range shown {
		titles = append(titles, c.title)
	}
	titles = append(titles, "LAST CHANGE")
	if messages {
		titles = append(titles, "MESSAGE")
	}
	rows := t.columns(titles...)
	for _, s := range all {
		state, change := s.State, "-"
		if s.Stale {
			state += ", stale"
		}
		if !s.Synced {
			state += ", not synced"
		}
		if s.LastPublish != nil {
			change = t.ago(*s.LastPublish)
		}
		cells := []any{s.Name, state, s.Objects}
		for _, c := range shown {
			cells = append(cells, c.of(s))
		}
		cells = append(cells, change)
		if messages {
			cells = append(cells, t.message(s))
		}
		rows.row(cells...)
	}
	return rows
}
