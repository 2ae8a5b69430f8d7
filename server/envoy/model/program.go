package model

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// Envoy reads regular expressions as bytes of Latin 1, and refuses RE2 programs larger than its runtime
// allows (re2.max_program_size.error_level). These are the limits that clients have.
const (
	PlainProgram = 100    // Envoy's default
	LargeProgram = 32_768 // of Istio's proxies, and with tributary's bootstrap
)

// LargestProgram limits the instructions of a regular expression.
func (p *Profile) LargestProgram() int {
	if p.Large {
		return LargeProgram
	}
	return PlainProgram
}

// takesPrograms reports whether the size in the node's metadata allows large programs.
func takesPrograms(size string) bool {
	n, err := strconv.ParseUint(size, 10, 64)
	return err == nil && n >= LargeProgram
}

// ProgramSize estimates the instructions of a regular expression in RE2; the estimate may be slightly too large. It
// derives them from the program of Go's related package, and follows RE2 where they differ: RE2 matches bytes, and
// merges paths without a step in the end.
func ProgramSize(expression string) int {
	var latin1 strings.Builder
	for i := range len(expression) {
		latin1.WriteRune(rune(expression[i]))
	}
	parsed, err := syntax.Parse(latin1.String(), syntax.Perl)
	if err != nil {
		return 0 // RegexProblem reports it
	}
	if rough := roughSize(parsed); rough > MaxProgram {
		return rough
	}
	middle, anchored := withoutAnchors(parsed.Simplify())
	prog, err := syntax.Compile(middle)
	if err != nil {
		return 0
	}
	size := flatSize(prog) + 1 // the instruction that fails
	if !anchored {
		size += 2 // the loop that skips a prefix
	}
	return size
}

const (
	rangeCost    = 4 // of a range of characters beyond ASCII
	maxRoughSize = 10_000_000
)

// roughSize estimates the instructions of a program before its compilation. They may be far more than the letters of
// the expression.
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
			size++
			if expression.Rune[i+1] > unicode.MaxASCII {
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

// withoutAnchors removes the anchors at the beginning and the end of an expression, and reports whether it had the
// former: RE2's programs do not contain anchors.
func withoutAnchors(regexp *syntax.Regexp) (middle *syntax.Regexp, begins bool) {
	if regexp.Op != syntax.OpConcat {
		return regexp, false
	}
	parts := regexp.Sub
	begins = parts[0].Op == syntax.OpBeginText
	if begins {
		parts = parts[1:]
	}
	if len(parts) > 0 && parts[len(parts)-1].Op == syntax.OpEndText {
		parts = parts[:len(parts)-1]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Flags: regexp.Flags, Sub: parts}, begins
}

// flatSize is the size of a flattened program. It has a list for each target of a step, with the steps from there and
// jumps to other lists.
func flatSize(prog *syntax.Prog) (size int) {
	lists := map[uint32]bool{uint32(prog.Start): true} //nolint:gosec // an index
	for i := range prog.Inst {
		switch instruction := &prog.Inst[i]; instruction.Op {
		case syntax.InstAlt, syntax.InstAltMatch, syntax.InstNop, syntax.InstMatch, syntax.InstFail:
		default:
			lists[instruction.Out] = true
		}
	}
	seen := make(map[uint32]uint32, len(prog.Inst)) // the last list with the instruction
	for first := range lists {
		todo := []uint32{first}
		for len(todo) > 0 {
			index := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if lastList, ok := seen[index]; ok && lastList == first {
				continue
			}
			seen[index] = first
			instruction := &prog.Inst[index]
			switch {
			case index != first && lists[index]:
				size++
			case instruction.Op == syntax.InstAlt, instruction.Op == syntax.InstAltMatch:
				todo = append(todo, instruction.Out, instruction.Arg)
			case instruction.Op == syntax.InstNop:
				todo = append(todo, instruction.Out)
			default:
				size += bytesOf(instruction)
			}
		}
	}
	return size
}

// bytesOf counts the ranges of bytes that a step matches; an instruction without characters counts as one.
func bytesOf(instruction *syntax.Inst) int {
	switch instruction.Op {
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
	if len(instruction.Rune) == 1 {
		return 1
	}
	count, folds := 0, foldsCase(instruction)
	for i := 0; i < len(instruction.Rune) && instruction.Rune[i] <= unicode.MaxLatin1; i += 2 {
		if !folds || instruction.Rune[i] < 'A' || instruction.Rune[i+1] > 'Z' {
			count++
		}
	}
	return count
}

// foldsCase reports whether a step ignores the case of ASCII letters: RE2 lists them once.
func foldsCase(instruction *syntax.Inst) bool {
	for r := 'a'; r <= 'z'; r++ {
		if instruction.MatchRunePos(r) >= 0 != (instruction.MatchRunePos(unicode.ToUpper(r)) >= 0) {
			return false
		}
	}
	return true
}

// MaxProgram limits the estimated size of a regular expression: RE2 compiles at most 131,000 instructions.
const MaxProgram = 100_000
