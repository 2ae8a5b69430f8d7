package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestBadConfigurations parses the configurations of testdata/bad. Above each stand its messages: "# want: " and a
// problem, "# warning: " and a warning, or "# fine". A file has several configurations where one of them has the
// messages of one problem alone; the lines of messages are those of the file. -update writes the messages.
func TestBadConfigurations(t *testing.T) {
	for name, value := range map[string]string{"DEBUG": "false", "PASSWORD": "hunter2", "TOKEN": "s3cr3t/pw"} {
		t.Setenv(name, value)
	}
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			got := withMessages(t, filepath.Base(file), string(want))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644)) //nolint:gosec // as git has it
			}
			require.Equal(t, string(want), got)
		})
	}
}

// withMessages returns the text of a file of configurations with the messages that Parse has for each.
func withMessages(t *testing.T, name, text string) string {
	var done strings.Builder
	lines := 0
	for text != "" {
		head := 0 // the lines of messages
		for isMessage(text) {
			_, text, _ = strings.Cut(text, "\n")
			head++
		}
		body := ""
		for text != "" && !isMessage(text) {
			line, rest, _ := strings.Cut(text, "\n")
			body, text = body+line+"\n", rest
		}
		found := messages(t, name, strings.Repeat("\n", lines+head)+body)
		if len(found) != head {
			head = len(found)
			found = messages(t, name, strings.Repeat("\n", lines+head)+body)
		}
		fmt.Fprintf(&done, "%s\n%s", strings.Join(found, "\n"), body)
		lines += head + strings.Count(body, "\n")
	}
	return done.String()
}

func isMessage(text string) bool {
	return strings.HasPrefix(text, "# want: ") || strings.HasPrefix(text, "# warning: ") || strings.HasPrefix(text, "# fine\n")
}

// messages returns the problems or the warnings of a configuration. They have no secret.
func messages(t *testing.T, name, text string) (lines []string) {
	c, err := config.Parse(name, []byte(text))
	if err == nil {
		for _, warning := range c.Warnings {
			lines = append(lines, "# warning: "+warning.String())
		}
		if lines == nil {
			lines = []string{"# fine"}
		}
	}
	if e := new(config.Error); errors.As(err, &e) {
		for _, problem := range e.Problems {
			lines = append(lines, "# want: "+problem.String())
		}
	}
	require.NotEmpty(t, lines, "%v", err)
	require.NotRegexp(t, "s3cr3t|s3cret|cr3tpw|hunter2|//me:", lines)
	return lines
}
