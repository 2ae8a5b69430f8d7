// Package output writes for people what the program knows: the answers of the admin server, objects as tables, resources of Envoy's, and
// how two sets of objects differ, each as wide as the screen and without what a terminal would obey.
package output

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// text collects lines. It is written at once by who has an error to return.
type text struct {
	strings.Builder
	now    time.Time
	screen Screen
}

// line adds a line. Writing to a strings.Builder does not fail.
func (t *text) line(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

// width is that of the labels of a section.
const width = 13

// section adds lines under a label; without lines it adds nothing.
func (t *text) section(label string, lines ...string) {
	for _, l := range lines {
		t.line("  %-*s %s", width, label, l)
		label = ""
	}
}

func (t *text) writeTo(w io.Writer) error {
	var b strings.Builder
	for line := range strings.Lines(t.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n") // a column that ends in empty cells ends in blanks
	}
	_, err := io.WriteString(w, t.screen.Colored(b.String()))
	return err
}

// at is a time, and how long ago that was.
func (t *text) at(when time.Time) string {
	return when.UTC().Format(time.RFC3339) + " (" + t.ago(when) + ")"
}

func (t *text) ago(when time.Time) string { return Brief(t.now.Sub(when)) + " ago" }

// each is what f makes of each of all.
func each[T any](all []T, f func(T) string) (lines []string) {
	for _, one := range all {
		lines = append(lines, f(one))
	}
	return lines
}

// oneLine is s without what would break a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
