package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/internal/nearest"
	"tributary/internal/words"
)

// meant says what somebody may have meant by a name; empty if nothing is near.
func meant(name string, names []string) string {
	if guess := nearest.Name(name, names); guess != "" {
		return `; did you mean "` + guess + `"?`
	}
	return ""
}

// noCommand is for commands that are nothing but a place for others: what is given is none of those.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant(args[0], names))
}

// explainFlag says which flag may have been meant.
func explainFlag(cmd *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usage("%w%s", err, meant(name, names))
}

// sayArguments has cmd, and all below it, say in words which arguments they want.
func sayArguments(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		sayArguments(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if _, said := errors.AsType[*failure](err); said || err == nil {
			return err
		}
		given := "no argument"
		if len(args) > 0 {
			given = words.Count(len(args), "argument", "arguments")
		}
		return usage("got %s; want: %s", given, cmd.UseLine())
	}
}
