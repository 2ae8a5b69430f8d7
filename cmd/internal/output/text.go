// Package output writes for people what the program knows: the answers of the admin server, objects as tables, resources of Envoy's, and
// how two sets of objects differ, each as wide as the screen and without what a terminal would obey.
package output

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"tributary/internal/words"
)

// text collects lines. It is written at once by who has an error to return.
type text struct {
	strings.Builder
	now    time.Time
	screen Screen
}

// line adds a line. Writing to a strings.Builder does not fail.
func (t *text) line(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

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

func (t *text) at(when time.Time) string {
	return when.UTC().Format(time.RFC3339) + " (" + t.ago(when) + ")"
}

func (t *text) ago(when time.Time) string { return Brief(t.now.Sub(when)) + " ago" }

// atMost is what f says of the first n of all, and then how many more there are, in a text with a place for that.
func atMost[T any](all []T, n int, rest string, f func(T) string) []string {
	lines := words.Each(all[:min(len(all), n)], f)
	if more := len(all) - n; more > 0 {
		lines = append(lines, fmt.Sprintf(rest, more))
	}
	return lines
}

// oneLine is s without what would break a line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Screen is what is written to.
type Screen struct {
	Width int  // in columns; zero for no limit, as of a file
	Color bool // it takes colours, and nobody asked for none
}

// ScreenOf returns what w is.
func ScreenOf(w io.Writer) Screen {
	file, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return Screen{}
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ) //nolint:gosec // a descriptor fits
	if err != nil {
		return Screen{}
	}
	return Screen{Width: int(size.Col), Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Escaped returns a writer to file. If that is a terminal, characters that it would obey are escaped, but for line ends, tabs and
// our own colours: much of what is printed was written by clients, registries and peers.
func Escaped(file *os.File) io.Writer {
	if _, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err != nil { //nolint:gosec // a descriptor fits
		return file
	}
	return &safe{file: file}
}

type safe struct {
	file *os.File
	rest []byte // the beginning of a character whose end is yet to be written
}

// Unescaped returns the file that a writer of Safe writes to, for programs that draw on the terminal themselves, and any other writer as it
// is.
func Unescaped(w io.Writer) io.Writer {
	if s, ok := w.(*safe); ok {
		return s.file
	}
	return w
}

func (s *safe) Fd() uintptr { return s.file.Fd() }

func (s *safe) Write(p []byte) (int, error) {
	text := append(s.rest, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	s.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(s.file, escape(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// colours are ours.
var colours = regexp.MustCompile(`\x1b\[(1;31|32|0)m`)

// escape escapes what stands between our colours.
func escape(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	var b strings.Builder
	begin := 0
	for _, colour := range append(colours.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		b.WriteString(words.Printable(text[begin:colour[0]], "\n\t") + text[colour[0]:colour[1]])
		begin = colour[1]
	}
	return b.String()
}

// alarming and calming are what a look at a screen is to find.
var alarming = []string{
	"NOT READY", "PROBLEMS", "LEADS NOWHERE", "REJECTED", "REFUSED", "EXPIRED", "NOT KEPT", "NOT IN FORCE",
	"NOT AS SERVED", "unreachable", "denied", "degraded",
}

const red, green, plain = "\x1b[1;31m", "\x1b[32m", "\x1b[0m"

// Cut returns text with what does not fit taken off its lines.
func (s Screen) Cut(text string) string {
	return lines(text, s.Width > 0, func(line string) string {
		if utf8.RuneCountInString(line) <= s.Width {
			return line
		}
		return string([]rune(line)[:s.Width-1]) + "…"
	})
}

// Fits reports whether no line of text would be cut.
func (s Screen) Fits(text string) bool { return s.Cut(text) == text }

// Colored returns text with colours, if the screen takes them. Colours that text has already are escaped.
func (s Screen) Colored(text string) string {
	if s.Color {
		text = words.Printable(text, "\n\t")
	}
	return lines(text, s.Color, func(line string) string {
		for _, word := range alarming {
			line = strings.Replace(line, word, red+word+plain, 1)
		}
		return strings.Replace(line, "healthy", green+"healthy"+plain, 1)
	})
}

func lines(text string, change bool, f func(line string) string) string {
	if !change {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		b.WriteString(f(line))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
