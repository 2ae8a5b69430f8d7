package model

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// Envoy reads regular expressions as bytes of Latin 1, and refuses one whose RE2 program is larger than its runtime allows
// (re2.max_program_size.error_level). These are the limits that clients have.
const (
	PlainProgram = 100    // Envoy's own
	LargeProgram = 32_768 // of Istio's proxies, and with tributary's bootstrap
)

// LargestProgram is how many instructions the program of a regular expression may have.
func (p *Profile) LargestProgram() int {
	if p.Large {
		return LargeProgram
	}
	return PlainProgram
}

// takesPrograms says whether a client that says so takes programs of the larger size.
func takesPrograms(said string) bool {
	n, err := strconv.ParseUint(said, 10, 64)
	return err == nil && n >= LargeProgram
}

// ProgramSize is how many instructions RE2 makes of a regular expression; sometimes some fewer are enough. It follows RE2 in what Go's
// package, which is of the same making, does otherwise: programs are of bytes, and ways without a step are put together in the end.
func ProgramSize(re string) int {
	var latin1 strings.Builder
	for i := range len(re) {
		latin1.WriteRune(rune(re[i]))
	}
	parsed, err := syntax.Parse(latin1.String(), syntax.Perl)
	if err != nil {
		return 0 // which is said of it elsewhere
	}
	if rough := roughSize(parsed); rough > MaxProgram {
		return rough
	}
	middle, anchored := withoutAnchors(parsed.Simplify())
	prog, err := syntax.Compile(middle)
	if err != nil {
		return 0
	}
	n := flat(prog) + 1 // the instruction that fails
	if !anchored {
		n += 2 // it may begin anywhere
	}
	return n
}

const (
	rangeCost    = 4 // of a range of characters beyond ASCII
	maxRoughSize = 10_000_000
)

// roughSize estimates the instructions of a program before it is made. They may be far more than the letters of the
// expression.
func roughSize(expression *syntax.Regexp) int {
	size := 1
	for _, part := range expression.Sub {
		size += roughSize(part)
	}
	switch expression.Op {
	case syntax.OpLiteral:
		size += len(string(expression.Rune))
	case syntax.OpCharClass:
		for i := 0; i < len(expression.Rune); i += 2 {
			if size++; expression.Rune[i+1] > unicode.MaxASCII {
				size += rangeCost - 1
			}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		size += 2 * rangeCost
	case syntax.OpRepeat:
		size *= max(expression.Min, expression.Max, 1)
	}
	return min(size, maxRoughSize)
}

// withoutAnchors returns an expression without what says that it is at the beginning, and whether something does, and at the end of the
// text: that is no part of RE2's programs.
func withoutAnchors(re *syntax.Regexp) (middle *syntax.Regexp, begins bool) {
	if re.Op != syntax.OpConcat {
		return re, false
	}
	all := re.Sub
	if begins = all[0].Op == syntax.OpBeginText; begins {
		all = all[1:]
	}
	if len(all) > 0 && all[len(all)-1].Op == syntax.OpEndText {
		all = all[:len(all)-1]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Flags: re.Flags, Sub: all}, begins
}

// flat is the size of a program that is a list for each place to which a step leads: of the steps from there, and jumps to other lists.
func flat(prog *syntax.Prog) (n int) {
	lists := map[uint32]bool{uint32(prog.Start): true} //nolint:gosec // an index
	for i := range prog.Inst {
		switch in := &prog.Inst[i]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch, syntax.InstNop, syntax.InstMatch, syntax.InstFail:
		default:
			lists[in.Out] = true
		}
	}
	seen := make(map[uint32]uint32, len(prog.Inst)) // in which list last
	for first := range lists {
		todo := []uint32{first}
		for len(todo) > 0 {
			at := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if by, ok := seen[at]; ok && by == first {
				continue
			}
			seen[at] = first
			in := &prog.Inst[at]
			switch {
			case at != first && lists[at]:
				n++
			case in.Op == syntax.InstAlt, in.Op == syntax.InstAltMatch:
				todo = append(todo, in.Out, in.Arg)
			case in.Op == syntax.InstNop:
				todo = append(todo, in.Out)
			default:
				n += bytesOf(in)
			}
		}
	}
	return n
}

// bytesOf is how many ranges of bytes a step is for; one for what is no character.
func bytesOf(in *syntax.Inst) int {
	switch in.Op {
	case syntax.InstFail:
		return 0
	case syntax.InstRuneAny:
		return 1
	case syntax.InstRuneAnyNotNL:
		return 2
	case syntax.InstRune:
	default:
		return 1
	}
	if len(in.Rune) == 1 {
		return 1
	}
	n, folds := 0, foldsCase(in)
	for i := 0; i < len(in.Rune) && in.Rune[i] <= unicode.MaxLatin1; i += 2 {
		if !folds || in.Rune[i] < 'A' || in.Rune[i+1] > 'Z' {
			n++
		}
	}
	return n
}

// foldsCase says whether a step is for letters of ASCII whatever their case: RE2 has them once.
func foldsCase(in *syntax.Inst) bool {
	for r := 'a'; r <= 'z'; r++ {
		if in.MatchRunePos(r) >= 0 != (in.MatchRunePos(unicode.ToUpper(r)) >= 0) {
			return false
		}
	}
	return true
}

// MaxProgram is how large, by our reckoning, a regular expression may be: RE2 makes programs of 131,000 instructions at most.
const MaxProgram = 100_000
