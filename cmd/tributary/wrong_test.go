package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// hinted are the flags that a text names.
var hinted = regexp.MustCompile("(?:^|[\\s`(])(--[a-z][a-z-]+|-[a-z]\\b)")

// onlyItsFlags checks that the output of a command names only flags that it has and that were given.
func onlyItsFlags(t *testing.T, args []string, output string) {
	t.Helper()
	command, _, err := newRoot().Find(args)
	if err != nil || !command.HasParent() || slices.Contains([]string{"help", "completion", "__complete"}, args[0]) {
		return
	}
	command.InitDefaultHelpFlag()
	for _, m := range hinted.FindAllStringSubmatch(output, -1) {
		name := m[1]
		exists := command.Flags().Lookup(name[min(2, len(name)-1):]) != nil
		if len(name) == 2 {
			exists = command.Flags().ShorthandLookup(name[1:]) != nil
		}
		assert.True(t, exists || slices.Contains(args, name), "%v names %s: %s", args, name, output)
	}
}
