package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"tributary/internal/history"
	"tributary/internal/words"
)

// History writes changes, a line each, and below it from what to what it changed, if that is wanted.
func History(w io.Writer, a *history.Answer, details bool, screen Screen) error {
	t := &text{screen: screen}
	name, source, widest := 0, 0, len("updated*")
	for _, e := range a.Entries {
		widest = max(widest, len(e.Event))
		name, source = max(name, len(subject(e))), max(source, len(e.Source))
	}
	for _, e := range a.Entries {
		event := e.Event
		if e.Unwatched {
			event += "*"
		}
		t.line("%s  %-*s  %-*s  %-*s  %s", e.At.UTC().Format("2006-01-02T15:04:05.000Z"), widest, event, name, subject(e), source, e.Source,
			oneLine(e.Place+e.Text))
		if !details || e.Kind == "" {
			continue
		}
		var changed strings.Builder
		switch {
		case e.Unknown:
			changed.WriteString("what it was before is not known: it changed while no server was running\n")
		case e.Event == history.Moved && e.Old != nil:
			fmt.Fprintf(&changed, "it came from %s\n", oneLine(e.Old.Source+" "+e.Old.Place))
		default:
			before, after := &Side{Name: "before"}, &Side{Name: "after"}
			if e.Old != nil {
				before.Add(e.Old.Resource())
			}
			if e.New != nil {
				after.Add(e.New.Resource())
			}
			if _, err := WriteDifferences(&changed, before, after); err != nil {
				return err
			}
		}
		for line := range strings.Lines(changed.String()) {
			t.line("    %s", strings.TrimRight(line, "\n"))
		}
	}
	return t.writeTo(w)
}

// subject is the object that an entry is about; of an event, nothing.
func subject(e *history.Entry) string {
	if e.Kind == "" {
		return "-"
	}
	return e.Key().String()
}

// HistoryNote says what is not shown, since the history does not have it or too much of it.
func HistoryNote(w io.Writer, a *history.Answer, since time.Time) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // whom to tell if it fails?
	if a.Waiting {
		say(history.NotBegun)
	} else if len(a.Entries) == 0 {
		say("no changes")
	}
	if a.Earlier > 0 {
		say("%s not shown (--limit)", words.Count(a.Earlier, "earlier change is", "earlier changes are"))
	}
	if a.From.After(since) && (len(a.Entries) == 0 || !since.IsZero()) {
		say("the history is whole since %s", a.From.UTC().Format(time.RFC3339))
	}
}
