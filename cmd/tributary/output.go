package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// choice is a flag with a fixed set of values. It implements pflag.Value.
type choice struct {
	value   string
	allowed []string
}

// outputs is the flag -o of a command; the first of its values is the default.
func outputs(allowed ...string) *choice { return &choice{value: allowed[0], allowed: allowed} }

func (c *choice) add(cmd *cobra.Command) {
	cmd.Flags().VarP(c, "output", "o", "format of the output: "+strings.Join(c.allowed, ", "))
	// The flag exists and the function is valid, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp))
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "format" }
func (c *choice) Set(v string) error {
	if !slices.Contains(c.allowed, v) {
		return fmt.Errorf("want one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = v
	return nil
}

// printJSON writes v for people and programs alike.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
