package pagetest

import (
	"fmt"
	"regexp"
	"strings"
)

// varying is what is different in each run, where the page has it, and a name for it.
var varying = []struct {
	what *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?Z?\b`), "TIME"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|ms|s|m|h|d))+\b`), "AGE"},
	{regexp.MustCompile(`\b(version|pid|hold) +\S+`), "$1 ONE"},
	{regexp.MustCompile(`(\S) {2,}`), "$1  "},
}

// plain is a line without what varies.
func plain(line string) string {
	line = strings.TrimRight(line, " \t\r")
	for _, v := range varying {
		line = v.what.ReplaceAllString(line, v.name)
	}
	return line
}

const elided = "…"

// compare tells how what was printed is different from what the page shows; nothing if it is not.
func compare(shown []string, printed string) string {
	lines := strings.Split(strings.TrimRight(printed, "\n"), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	want := make([]string, len(shown))
	for i := range shown {
		want[i] = plain(shown[i])
	}
	if matches(want, lines) {
		return ""
	}
	var builder strings.Builder
	position := 0
	for position < len(want) && position < len(lines) && strings.TrimSpace(want[position]) != elided &&
		same(want[position], lines[position]) {
		_, _ = fmt.Fprintf(&builder, "    %s\n", lines[position])
		position++
	}
	for _, line := range want[position:] {
		_, _ = fmt.Fprintf(&builder, "  - %s\n", line)
	}
	for _, line := range lines[position:] {
		_, _ = fmt.Fprintf(&builder, "  + %s\n", line)
	}
	return builder.String()
}

// matches reports whether lines are as they are wanted, of which a line of "…" stands for any number.
func matches(want, printed []string) bool {
	if len(want) == 0 {
		return len(printed) == 0
	}
	if strings.TrimSpace(want[0]) != elided {
		return len(printed) > 0 && same(want[0], printed[0]) && matches(want[1:], printed[1:])
	}
	for skip := range len(printed) + 1 {
		if matches(want[1:], printed[skip:]) {
			return true
		}
	}
	return false
}

// same reports whether a line is as it is wanted, where "…" stands for any text.
func same(want, printed string) bool {
	parts := strings.Split(want, elided)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(`^` + strings.Join(parts, `.*`) + `$`).MatchString(printed)
}
