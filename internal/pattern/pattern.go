// Package pattern reckons what regular expressions cost. It is a package of its own since server/debug and server/envoy, which do not know
// each other, use it.
package pattern

import (
	"regexp/syntax"
	"unicode"
)

const (
	rangeCost = 4 // of a range of characters beyond ASCII
	most      = 10_000_000
)

// Size is about how many instructions a program for a regular expression has, which may be far more than the expression has letters. It is
// known before such a program is made.
func Size(re *syntax.Regexp) int {
	n := 1
	for _, sub := range re.Sub {
		n += Size(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(string(re.Rune))
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if n++; re.Rune[i+1] > unicode.MaxASCII {
				n += rangeCost - 1
			}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n += 2 * rangeCost
	case syntax.OpRepeat:
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, most)
}
