package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/internal/nearest"
	"tributary/internal/words"
)

// noCommand is for commands that are nothing but a place for others: what is given is none of those.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	meant := nearest.Meant(args[0], names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, args[0]) }); meant == "" && i >= 0 {
		meant = " (did you mean " + names[i] + "?)"
	}
	return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), meant)
}

// explainFlag says which flag may have been meant.
func explainFlag(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage("--%s %s: %s", wrong.GetFlag().Name, wrong.GetValue(), valueWanted(wrong.GetFlag(), errors.Unwrap(wrong)))
	}
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return usage("%w%s", err, nearest.Meant(name, names))
}

// valueWanted says which value a flag wants, where what refused the one that was given is a library.
func valueWanted(f *pflag.Flag, refused error) string {
	switch sort := f.Value.Type(); {
	case f.Name == "log-level":
		return "want debug, info, warn or error"
	case sort == "duration":
		return "want a duration, such as 10s or 5m"
	case sort == "int":
		return "want a whole number"
	case sort == "bool":
		return "want true or false"
	case sort == "stringToString":
		return "want KEY=VALUE"
	}
	return refused.Error()
}

var (
	missing   = regexp.MustCompile(`^required flag\(s\) "([^"]+)".* not set$`)
	oneOf     = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	exclusive = regexp.MustCompile(`^if any flags in the group \[.+\] are set none of the others can be; \[(.+)\] were all set$`)
)

// inFlags says in words what the library of commands says of flags that are missing, or do not go together.
func inFlags(err error) error {
	all := func(names, between string) string { return "--" + strings.ReplaceAll(names, " ", between+"--") }
	if m := missing.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s is missing", m[1])
	}
	if m := oneOf.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("give %s", all(m[1], " or "))
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s do not go together: give one of them", all(m[1], " and "))
	}
	return err
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
