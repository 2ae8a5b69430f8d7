package output

import (
	"fmt"
	"io"
	"strings"
	"time"

	"tributary/internal/history"
	"tributary/internal/words"
)

// History writes a line for each change, and with details the differences below it.
func History(writer io.Writer, answer *history.Answer, details bool, screen Screen) error {
	report := &text{screen: screen}
	name, source, widest := 0, 0, len("updated*")
	for _, entry := range answer.Entries {
		widest = max(widest, len(entry.Event))
		name, source = max(name, len(entrySubject(entry))), max(source, len(entry.Source))
	}
	for _, entry := range answer.Entries {
		event := entry.Event
		if entry.Unwatched {
			event += "*"
		}
		report.line("%s  %-*s  %-*s  %-*s  %s", entry.Time.UTC().Format("2006-01-02T15:04:05.000Z"), widest, event, name,
			entrySubject(entry), source, entry.Source, singleLine(entry.Place+entry.Text))
		if !details || entry.Kind == "" {
			continue
		}
		var changed strings.Builder
		switch {
		case entry.Unknown:
			changed.WriteString("the previous version is unknown: it changed while no server was running\n")
		case entry.Event == history.Moved && entry.Old != nil:
			fmt.Fprintf(&changed, "it came from %s\n", singleLine(entry.Old.Source+" "+entry.Old.Place))
		default:
			before, after := &Side{Name: "before"}, &Side{Name: "after"}
			before.Add(entry.Old.Resource())
			after.Add(entry.New.Resource())
			if _, err := WriteDifferences(&changed, before, after); err != nil {
				return err
			}
		}
		for line := range strings.Lines(changed.String()) {
			report.line("    %s", strings.TrimRight(line, "\n"))
		}
	}
	return report.writeTo(writer)
}

func entrySubject(entry *history.Entry) string {
	if entry.Kind == "" {
		return "-"
	}
	return entry.Key().String()
}

// HistoryNote names the changes that the history lacks or the limit hides.
func HistoryNote(w io.Writer, answer *history.Answer, requested time.Time) {
	note := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // the caller's stderr
	if answer.Waiting {
		note(history.NotBegun)
	} else if len(answer.Entries) == 0 {
		note("no changes")
	}
	if answer.Earlier > 0 {
		note("%s not shown (--limit)", words.Count(answer.Earlier, "earlier change is", "earlier changes are"))
	}
	if answer.From.After(requested) && (len(answer.Entries) == 0 || !requested.IsZero()) {
		note("the history is whole since %s", answer.From.UTC().Format(time.RFC3339))
	}
}
