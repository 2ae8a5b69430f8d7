package model

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"

	"tributary/internal/pattern"
)

// Envoy refuses all routes of a port, or a whole listener, for one regular expression that RE2 refuses. Go's are nearly the same.

// RegexProblem returns why an Envoy that allows maxInstructions would refuse a regular expression, or "".
func RegexProblem(re string, maxInstructions int) string {
	if re == "" {
		return ""
	}
	parsed, err := syntax.Parse(re, syntax.Perl)
	if err != nil {
		return "not a regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	for _, m := range unicodeClass.FindAllStringSubmatch(re, -1) {
		if name := m[1]; !isClass(name) {
			return fmt.Sprintf("Envoy's regular expressions have no character class %q", name)
		}
	}
	if escape := beyondBytes(re); escape != "" {
		return fmt.Sprintf("Envoy's regular expressions match bytes: write %s as the character itself", escape)
	}
	if pattern.Size(parsed) > MaxProgram {
		return "too large for Envoy's regular expressions"
	}
	if n := ProgramSize(re); n+n/16 > maxInstructions { // some estimates are too small by that much
		return fmt.Sprintf("compiles to about %d RE2 instructions; Envoy's re2.max_program_size.error_level allows %d", n, maxInstructions)
	}
	return ""
}

// beyondBytes returns the first escape of a number above 255 in a regular expression that Go takes, or "". Envoy 1.40 refuses it.
func beyondBytes(re string) string {
	for rest := re; ; {
		i := strings.IndexByte(rest, '\\')
		if i < 0 || i+1 == len(rest) {
			return ""
		}
		rest = rest[i:]
		if strings.HasPrefix(rest, `\Q`) {
			_, rest, _ = strings.Cut(rest, `\E`)
			continue
		}
		if m := numbered.FindStringSubmatch(rest); m != nil {
			number, base := m[1], 16
			if number == "" {
				number, base = m[2], 8
			}
			if n, err := strconv.ParseUint(number, base, 32); err != nil || n > math.MaxUint8 {
				return m[0]
			}
		}
		rest = rest[2:]
	}
}

var numbered = regexp.MustCompile(`^\\(?:x\{([0-9A-Fa-f]+)\}|([0-7]{1,3}))`)

var unicodeClass = regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`)

// isClass reports whether RE2 knows a character class. Since version 1.25 Go knows more, and other spellings.
func isClass(name string) bool {
	_, script := unicode.Scripts[name]
	_, category := unicode.Categories[name]
	return name == "Any" || script || category && name != "Cn" && name != "LC"
}
