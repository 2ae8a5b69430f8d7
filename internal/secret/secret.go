// Package secret hides secrets in messages, logs and dumps.
package secret

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Text is a string that no message, log or dump shows. fmt reads fields without calling their methods: so the string is
// behind a pointer.
type Text struct{ value *string }

// New hides value.
func New(value string) Text {
	if value == "" {
		return Text{}
	}
	return Text{&value}
}

// Reveal returns the hidden string.
func (t Text) Reveal() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// Format prints a mark for every verb, unless the text is empty.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// String returns a mark, unless the text is empty.
func (t Text) String() string {
	if t.value == nil {
		return ""
	}
	return Mark
}

// MarshalText keeps it out of JSON and YAML.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Mark replaces a secret.
const Mark = "<secret>"

// Parameter matches, in the query of an address, a parameter that is named as a secret, its name first.
var Parameter = regexp.MustCompile(`(?i)([?&][a-z_.-]*(?:token|password|passwd|secret|credential|key)[a-z_.-]*=)[^&\s"'<>]+`)

// PublicParameters are the parameters of addresses that are shown with their value. The value of every other parameter
// may be a secret.
var PublicParameters = []string{
	"backup", "context", "contextPath", "dc", "group", "grpcOffset", "kind", "namespace", "ns", "partition", "session",
	"timeout",
}

// Veil hides possible secrets of addresses, valid or not, in messages: user and password before an @, fragments, and
// parameters that are not public. It also hides the values of variables.
type Veil struct {
	words     []string          // the longest first
	variables map[string]string // references such as ${TOKEN}, by value
}

// CoverVariable hides the value of a variable behind the reference to it.
func (v *Veil) CoverVariable(reference, value string) {
	v.Cover(value)
	if v.variables == nil {
		v.variables = make(map[string]string)
	}
	v.variables[value] = reference
	v.addWords(value)
}

// Cover adds addresses and texts that may be one.
func (v *Veil) Cover(texts ...string) {
	for _, text := range texts {
		for _, part := range hidden(text) {
			v.add(part)
		}
	}
	v.addWords()
}

// addWords adds words in order.
func (v *Veil) addWords(words ...string) {
	v.words = slices.DeleteFunc(append(v.words, words...), func(word string) bool { return word == "" })
	slices.SortFunc(v.words, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	v.words = slices.Compact(v.words)
}

// hidden returns the secret parts of an address.
func hidden(text string) (parts []string) {
	scheme, rest, ok := strings.Cut(text, "://")
	switch {
	case !ok:
		rest = text
	case scheme == "fs" || scheme == "unix" || scheme == "spiffe":
		return hiddenParameters(rest)
	}
	if ok {
		parts = hiddenParameters(rest)
	}
	for _, m := range Parameter.FindAllStringSubmatch(rest, -1) {
		parts = append(parts, strings.TrimPrefix(m[0], m[1]))
	}
	if _, fragment, ok := strings.Cut(rest, "#"); ok {
		parts = append(parts, fragment)
	}
	if index := strings.LastIndexByte(rest, '@'); index >= 0 {
		before := rest[:index]
		// of a server, and of others in parameters
		if host, _, ok := strings.Cut(before, "?"); ok && strings.Contains(host, "@") {
			parts = append(parts, host[:strings.LastIndexByte(host, '@')])
			before = before[len(host)+1:]
		}
		parts = append(parts, before)
	}
	return parts
}

// hiddenParameters returns the values of the parameters of an address that are not public.
func hiddenParameters(address string) (values []string) {
	_, query, _ := strings.Cut(address, "?")
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		if !slices.ContainsFunc(PublicParameters, func(public string) bool { return strings.EqualFold(public, name) }) {
			values = append(values, value)
		}
	}
	return values
}

func (v *Veil) add(part string) {
	plain, err := url.PathUnescape(part)
	if err != nil {
		plain = part
	}
	for _, text := range []string{part, plain} {
		words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":/@?&=,#", r) })
		// Messages have these words, and as a user name they are no secret.
		if name, _, named := strings.Cut(text, ":"); named &&
			slices.Contains([]string{"user", "username", "admin", "root"}, name) &&
			!slices.Contains(words[1:], name) {
			words = words[1:]
		}
		v.words = append(append(v.words, text), words...)
	}
}

// Hide returns a message with marks instead of secrets.
func (v *Veil) Hide(message string) string {
	for _, word := range v.words {
		mark := cmp.Or(v.variables[word], Mark)
		if len(word) < 3 { // only as a word of its own
			message = strings.ReplaceAll(message, strconv.Quote(word), strconv.Quote(mark))
			continue
		}
		message = replaced(message, word, mark)
		if quoted := strings.Trim(strconv.Quote(word), `"`); quoted != word {
			message = replaced(message, quoted, mark)
		}
	}
	return message
}

// replaced replaces a word by a mark, except within another word.
func replaced(message, word, mark string) string {
	var builder strings.Builder
	for {
		before, after, index := strings.Cut(message, word)
		if !index {
			return builder.String() + message
		}
		builder.WriteString(before)
		if isWord(before, len(before)-1) && isWord(word, 0) || isWord(after, 0) && isWord(word, len(word)-1) {
			builder.WriteString(word)
		} else {
			builder.WriteString(mark)
		}
		message = after
	}
}

func isWord(text string, i int) bool {
	return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z' ||
		text[i] >= '0' && text[i] <= '9')
}
