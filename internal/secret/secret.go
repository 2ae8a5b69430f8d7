// Package secret has texts that are not to be seen.
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

// Text is a string that no message, log or dump shows: not even as a field that fmt reads without asking its methods,
// which is why it is behind a pointer.
type Text struct{ value *string }

// New hides value.
func New(value string) Text {
	if value == "" {
		return Text{}
	}
	return Text{&value}
}

// Reveal returns what is hidden.
func (s Text) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Format prints a mark for what is there, for every verb.
func (s Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// String returns a mark for what is there.
func (s Text) String() string {
	if s.value == nil {
		return ""
	}
	return Mark
}

// MarshalText keeps it out of JSON and YAML.
func (s Text) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Mark stands for what is not shown.
const Mark = "<secret>"

// Parameter matches, in the query of an address, a parameter that is named as a secret, its name first.
var Parameter = regexp.MustCompile(`(?i)([?&][a-z_.-]*(?:token|password|passwd|secret|credential|key)[a-z_.-]*=)[^&\s"'<>]+`)

// PublicParameters are the parameters of addresses whose values are shown. The value of every other parameter may be a secret.
var PublicParameters = []string{
	"backup", "context", "contextPath", "dc", "group", "grpcOffset", "kind", "namespace", "ns", "partition", "session", "timeout",
}

// Veil hides from messages what may be a secret in some addresses, right or wrong ones: what stands before an @, behind a #, and in
// parameters that are not public. It also hides the values of variables.
type Veil struct {
	words     []string          // the longest first
	variables map[string]string // the references, such as ${TOKEN}, by the value that they stand for
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

// Cover adds addresses, and what may be one. Others have nothing to hide.
func (v *Veil) Cover(texts ...string) {
	for _, text := range texts {
		for _, part := range hidden(text) {
			v.add(part)
		}
	}
	v.addWords()
}

// addWords keeps the words in order.
func (v *Veil) addWords(words ...string) {
	v.words = slices.DeleteFunc(append(v.words, words...), func(word string) bool { return word == "" })
	slices.SortFunc(v.words, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	v.words = slices.Compact(v.words)
}

// hidden are the parts of an address that are not shown.
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
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		before := rest[:at]
		if host, _, ok := strings.Cut(before, "?"); ok && strings.Contains(host, "@") { // of a server, and of others in parameters
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
	for _, p := range []string{part, plain} {
		words := strings.FieldsFunc(p, func(r rune) bool { return strings.ContainsRune(":/@?&=,#", r) })
		// Messages have these words, and as the name before a password they are no secret.
		if name, _, named := strings.Cut(p, ":"); named && slices.Contains([]string{"user", "username", "admin", "root"}, name) &&
			!slices.Contains(words[1:], name) {
			words = words[1:]
		}
		v.words = append(append(v.words, p), words...)
	}
}

// Hide returns a message without what is to be hidden.
func (v *Veil) Hide(message string) string {
	for _, word := range v.words {
		mark := cmp.Or(v.variables[word], Mark)
		if len(word) < 3 { // it may stand anywhere, but alone
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

// replaced has a mark wherever a word stands that is no part of another one.
func replaced(message, word, mark string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(message, word)
		if !found {
			return b.String() + message
		}
		b.WriteString(before)
		if isWord(before, len(before)-1) && isWord(word, 0) || isWord(after, 0) && isWord(word, len(word)-1) {
			b.WriteString(word)
		} else {
			b.WriteString(mark)
		}
		message = after
	}
}

func isWord(text string, i int) bool {
	return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z' ||
		text[i] >= '0' && text[i] <= '9')
}
