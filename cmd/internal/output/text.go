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

// text collects lines until writeTo, so that only that returns an error.
type text struct {
	strings.Builder
	now    time.Time
	screen Screen
}

// line adds a line. Writing to a strings.Builder does not fail.
func (t *text) line(format string, values ...any) { _, _ = fmt.Fprintf(t, format+"\n", values...) }

const width = 13

// section adds lines under a label, and no label without lines.
func (t *text) section(label string, lines ...string) {
	for _, line := range lines {
		t.line("  %-*s %s", width, label, line)
		label = ""
	}
}

func (t *text) writeTo(writer io.Writer) error {
	var trimmed strings.Builder
	for line := range strings.Lines(t.String()) {
		trimmed.WriteString(strings.TrimRight(line, " \n") + "\n") // a column that ends in empty cells ends in blanks
	}
	_, err := io.WriteString(writer, t.screen.Colored(trimmed.String()))
	return err
}

func (t *text) timestamp(when time.Time) string {
	return when.UTC().Format(time.RFC3339) + " (" + t.elapsed(when) + ")"
}

func (t *text) elapsed(when time.Time) string { return Brief(t.now.Sub(when)) + " ago" }

// firstLines formats the first entries up to a limit. The format rest then gets the number of remaining ones.
func firstLines[T any](entries []T, limit int, rest string, format func(T) string) []string {
	lines := words.Each(entries[:min(len(entries), limit)], format)
	if remaining := len(entries) - limit; remaining > 0 {
		lines = append(lines, fmt.Sprintf(rest, remaining))
	}
	return lines
}

// singleLine replaces line breaks and runs of blanks by one blank.
func singleLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Screen has the properties of the output.
type Screen struct {
	Width int  // in columns; zero for no limit, as of a file
	Color bool // the terminal supports colours, and NO_COLOR is not set
}

// ScreenOf returns the screen of a writer: without limit or colours unless it is a terminal.
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

// Escaped returns a writer to file. For a terminal it escapes control characters except line ends, tabs and this
// package's colours, since clients, registries and peers wrote much of the output.
func Escaped(file *os.File) io.Writer {
	if _, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err != nil { //nolint:gosec // a descriptor fits
		return file
	}
	return &escapingWriter{file: file}
}

type escapingWriter struct {
	file       *os.File
	incomplete []byte // the first bytes of a character
}

// Unescaped returns the file below a writer of Escaped, for programs that draw on the terminal. It returns other
// writers unchanged.
func Unescaped(w io.Writer) io.Writer {
	if writer, ok := w.(*escapingWriter); ok {
		return writer.file
	}
	return w
}

func (e *escapingWriter) Fd() uintptr { return e.file.Fd() }

func (e *escapingWriter) Write(p []byte) (int, error) {
	text := append(e.incomplete, p...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
		}
	}
	e.incomplete = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(e.file, escape(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// colourCodes matches the colours of this package.
var colourCodes = regexp.MustCompile(`\x1b\[(1;31|32|0)m`)

// escape escapes the text between this package's colours.
func escape(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	var escaped strings.Builder
	start := 0
	for _, colour := range append(colourCodes.FindAllStringIndex(text, -1), []int{len(text), len(text)}) {
		escaped.WriteString(words.Printable(text[start:colour[0]], "\n\t") + text[colour[0]:colour[1]])
		start = colour[1]
	}
	return escaped.String()
}

// alarmWords appear in red.
var alarmWords = []string{
	"NOT READY", "PROBLEMS", "LEADS NOWHERE", "REJECTED", "REFUSED", "EXPIRED", "NOT KEPT", "NOT IN FORCE",
	"NOT AS SERVED", "unreachable", "denied", "degraded",
}

const red, green, plain = "\x1b[1;31m", "\x1b[32m", "\x1b[0m"

// Cut shortens the lines of a text to the width.
func (s Screen) Cut(text string) string {
	return mapLines(text, s.Width > 0, func(line string) string {
		if utf8.RuneCountInString(line) <= s.Width {
			return line
		}
		return string([]rune(line)[:s.Width-1]) + "…"
	})
}

// Fits reports whether no line of text would be cut.
func (s Screen) Fits(text string) bool { return s.Cut(text) == text }

// Colored adds colours if the screen supports them, and escapes those in the text.
func (s Screen) Colored(text string) string {
	if s.Color {
		text = words.Printable(text, "\n\t")
	}
	return mapLines(text, s.Color, func(line string) string {
		for _, word := range alarmWords {
			line = strings.Replace(line, word, red+word+plain, 1)
		}
		return strings.Replace(line, "healthy", green+"healthy"+plain, 1)
	})
}

func mapLines(text string, enabled bool, transform func(line string) string) string {
	if !enabled {
		return text
	}
	var changed strings.Builder
	for line := range strings.Lines(text) {
		line, terminated := strings.CutSuffix(line, "\n")
		changed.WriteString(transform(line))
		if terminated {
			changed.WriteByte('\n')
		}
	}
	return changed.String()
}
