package words

import (
	"fmt"
	"strings"
	"unicode"
)

// Printable returns text with escapes in the place of characters that a terminal obeys instead of showing them, but for some:
// control and format characters, such as those that change the direction of what follows, and separators of lines.
func Printable(text, but string) string {
	is := func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) && !strings.ContainsRune(but, r)
	}
	if !strings.ContainsFunc(text, is) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !is(r):
			b.WriteRune(r)
		case r > 0xff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\x%02x`, r)
		}
	}
	return b.String()
}
