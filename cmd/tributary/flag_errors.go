package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/internal/words"
)

// unknownCommand refuses the argument of a command that only has subcommands: it is none of them.
func unknownCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := words.Each(command.Commands(), (*cobra.Command).Name)
	meant := words.Suggestion(args[0], names)
	if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, args[0]) }); meant == "" &&
		i >= 0 {
		meant = " (did you mean " + names[i] + "?)"
	}
	return usage("unknown command %q for %q%s", args[0], command.CommandPath(), meant)
}

// explainFlag adds the wanted value, or the most similar flag, to an error about a flag.
func explainFlag(command *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage("--%s %s: %s", wrong.GetFlag().Name, wrong.GetValue(),
			valueWanted(wrong.GetFlag(), errors.Unwrap(wrong)))
	}
	var names []string
	command.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		return usage("%w%s", err, words.Suggestion(name, names))
	}
	return err
}

// valueWanted describes the wanted value of a flag; else it returns the library's refusal of another value.
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

// explainFlagGroups replaces the library's messages about missing or conflicting flags.
func explainFlagGroups(err error) error {
	flags := func(names, between string) string { return "--" + strings.ReplaceAll(names, " ", between+"--") }
	if m := missing.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("--%s is missing", m[1])
	}
	if m := oneOf.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("give %s", flags(m[1], " or "))
	}
	if m := exclusive.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%s do not go together: give one of them", flags(m[1], " and "))
	}
	return err
}

// describeArguments makes a command, and all below it, describe the wanted arguments in words.
func describeArguments(command *cobra.Command) {
	for _, c := range command.Commands() {
		describeArguments(c)
	}
	check := command.Args
	if check == nil {
		return
	}
	command.Args = func(command *cobra.Command, args []string) error {
		err := check(command, args)
		if _, exits := errors.AsType[*failure](err); exits || err == nil {
			return err
		}
		given := "no argument"
		if len(args) > 0 {
			given = words.Count(len(args), "argument", "arguments")
		}
		return usage("got %s; want: %s", given, command.UseLine())
	}
}

var (
	missing   = regexp.MustCompile(`^required flag\(s\) "([^"]+)".* not set$`)
	oneOf     = regexp.MustCompile(`^at least one of the flags in the group \[(.+)\] is required$`)
	exclusive = regexp.MustCompile(`^if any flags in the group \[.+\] are set none of the others can be; ` +
		`\[(.+)\] were all set$`)
)
