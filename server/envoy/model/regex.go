package model

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
)

// Envoy refuses all routes of a port, or a listener, for a single regular expression that RE2 refuses. Go's syntax is
// nearly the same.

// RegexProblem returns why an Envoy that allows maxInstructions would refuse a regular expression, or "".
func RegexProblem(expression string, maxInstructions int) string {
	if expression == "" {
		return ""
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return "not a regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	for _, match := range unicodeClass.FindAllStringSubmatch(expression, -1) {
		if name := match[1]; !isClass(name) {
			return fmt.Sprintf("Envoy's regular expressions have no character class %q", name)
		}
	}
	if escape := beyondBytes(expression); escape != "" {
		return fmt.Sprintf("Envoy's regular expressions match bytes: write %s as the character itself", escape)
	}
	if roughSize(parsed) > MaxProgram {
		return "too large for Envoy's regular expressions"
	}
	if n := ProgramSize(expression); n+n/16 > maxInstructions { // estimates may be too small by a sixteenth
		return fmt.Sprintf("compiles to about %d RE2 instructions; Envoy's re2.max_program_size.error_level allows %d", n,
			maxInstructions)
	}
	return ""
}

// escaped matches a sequence that begins with a backslash, and the number of an escape, in hexadecimal or octal digits.
var escaped = regexp.MustCompile(`(?s)\\Q.*?(?:\\E|$)|\\(?:x\{([0-9A-Fa-f]+)\}|([0-7]{1,3})|.)`)

// beyondBytes returns the first escape of a number above 255 in a regular expression that Go accepts, or "". Envoy 1.40
// refuses it.
func beyondBytes(expression string) string {
	for _, match := range escaped.FindAllStringSubmatch(expression, -1) {
		hex, hexErr := strconv.ParseUint("0"+match[1], 16, 32)
		octal, _ := strconv.ParseUint("0"+match[2], 8, 32)
		if hexErr != nil || max(hex, octal) > math.MaxUint8 {
			return match[0]
		}
	}
	return ""
}

var unicodeClass = regexp.MustCompile(`\\[pP]\{\^?([^}]*)\}`)

// isClass reports whether RE2 has a character class. Since version 1.25 Go has more, and other spellings.
func isClass(name string) bool {
	_, script := unicode.Scripts[name]
	_, category := unicode.Categories[name]
	return name == "Any" || script || category && name != "Cn" && name != "LC"
}
