package model

import (
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The sizes are those that Envoy 1.40 names when its runtime allows programs of 0.
func TestProgramSize(t *testing.T) {
	const id = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
	for re, size := range map[string]int{
		"a": 5, "abc": 7, ".": 6, ".*": 6, ".+": 7, ".{10}": 24, `\d+`: 6, `\w+`: 8, `\s*`: 7, "[^/]+": 7, "[^/]{1,10}": 33, "[a-zA-Z0-9_-]+": 9,
		"[^a]":                     6,
		"/api/v[0-9]+/users/[^/]+": 22, "(a|b|c)": 7, "(foo|bar|foobar)": 18, "(?i)abc": 7, "(?i)[a-z]+": 6, "a?": 6, "a*b*": 7, "^/a$": 4,
		"(a|b)*c":     8,
		"/(?:x|y)/.*": 9, "é": 6, "[à-ü]": 5, `\pL`: 11, `\bfoo\b`: 9, "/tenants/[0-9a-f]{8}": 29, "/tenants/" + id + "/orders/" + id: 157,
	} {
		require.Equal(t, size, ProgramSize(re), re)
	}
	require.Greater(t, ProgramSize("(?:"+strings.Repeat("a", 40)+"){1000}"), LargeProgram)
}

func TestRoughSize(t *testing.T) {
	for text, least := range map[string]int{
		"a": 1, "a{1000}": 1000, "((a{10}){10}){10}": 1000, "[α-ω]": 4, "a|b*": 2, "(?:ab){500}": 1000,
	} {
		expression, err := syntax.Parse(text, syntax.Perl)
		require.NoError(t, err)
		require.GreaterOrEqual(t, roughSize(expression), least, text)
		require.LessOrEqual(t, roughSize(expression), 10*least+10, text)
	}
}
