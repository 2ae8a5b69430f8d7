package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
)

// choice is a flag with a fixed set of values. It implements pflag.Value.
type choice struct {
	value   string
	allowed []string
	path    *jsonpath.JSONPath // of jsonpath=EXPRESSION, if that is allowed
}

// outputs is the flag -o of a command; the first of its values is the default.
func outputs(allowed ...string) *choice { return &choice{value: allowed[0], allowed: allowed} }

func (c *choice) add(cmd *cobra.Command) {
	cmd.Flags().VarP(c, "output", "o", "format of the output: "+strings.Join(c.allowed, ", "))
	completeFlag(cmd, "output", cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp))
}

func (c *choice) String() string { return c.value }

func (c *choice) Type() string { return "format" }

func (c *choice) Set(value string) (err error) {
	if expression, ok := strings.CutPrefix(value, "jsonpath="); ok && slices.Contains(c.allowed, jsonPathFormat) {
		c.value, c.allowed = "jsonpath", append(c.allowed, "jsonpath")
		c.path, err = parsePath(expression)
		return err
	}
	if !slices.Contains(c.allowed, value) {
		return fmt.Errorf("want one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = value
	return nil
}

const jsonPathFormat = "jsonpath=EXPRESSION"

// moment is a flag with a time, as people write it. It implements pflag.Value.
type moment struct {
	time.Time
	text string
}

func (m *moment) String() string { return m.text }

func (m *moment) Type() string { return "time" }

// clocks bounds the difference between the clocks of two machines.
const clocks = 5 * time.Second

// Set takes a time, in UTC unless it names another zone, or a duration before now.
func (m *moment) Set(text string) error {
	now := time.Now().UTC()
	if ago, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil {
		*m = moment{now.Add(-ago), text}
		return nil
	}
	for _, form := range []string{
		time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly,
	} {
		for _, full := range []string{text, now.Format("2006-01-02 ") + text} { // a time without a date is today's
			if parsed, err := time.ParseInLocation(form, full, now.Location()); err == nil {
				*m = moment{parsed, text}
				return nil
			}
		}
	}
	return fmt.Errorf("want how long ago, such as 90s or 1h30m, or a time such as 15:04, 2006-01-02 15:04 or "+
		"2006-01-02T15:04:05Z, got %q",
		text)
}

// past refuses a time in the future, which has no history.
func (m *moment) past(flag string) error {
	if m.After(time.Now().Add(clocks)) {
		return usage("%s %s is in the future", flag, m.text)
	}
	return nil
}

// query returns the parameter for the admin server.
func (m *moment) query() string { return m.UTC().Format(time.RFC3339Nano) }
