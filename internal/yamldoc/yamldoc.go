// Package yamldoc parses a text of one YAML document, to its end, and reports the place of its fault.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Fault is the reason why a text cannot be parsed. Line counts from the start of the text; column is 0 if unknown.
type Fault struct {
	Line, Column int
	Message      string
}

// Lines yields the lines of text with their line breaks. A carriage return alone is one, as for the parser.
func Lines(text []byte) iter.Seq[[]byte] {
	returns := bytes.IndexByte(text, '\r') >= 0
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			end := bytes.IndexByte(text, '\n') + 1
			if end == 0 {
				end = len(text)
			}
			if returns {
				if i := bytes.IndexByte(text[:end], '\r'); i >= 0 &&
					(i+2 < end || i+1 == len(text) || i+2 == end && text[i+1] != '\n') {
					end = i + 1
				}
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

// Parse returns the root of the document, or nil if it is empty.
func Parse(text []byte) (root *yaml.Node, fault *Fault) {
	if line, col, ok := FirstInvalid(text); ok {
		return nil, &Fault{line, col, "not valid UTF-8; is this a text file?"}
	}
	defer func() {
		if p := recover(); p != nil {
			root, fault = nil, &Fault{Line: 1, Message: fmt.Sprintf("the YAML parser panics: %v", p)}
		}
	}()
	root, err := readOne(text)
	if err != nil {
		return nil, explain(text, err)
	}
	return root, nil
}

// readOne returns the root of the one document of text, or nil if that is empty. The parser stops at the end of the
// document; the rest must be empty.
func readOne(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var node, rest yaml.Node
	switch err := decoder.Decode(&node); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // there is no document
	case err != nil:
		return nil, err
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, fmt.Errorf("yaml: line %d: %s", rest.Line, TextBehind)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return node.Content[0], nil
}

// TextBehind is the message about text after the document.
const TextBehind = "text behind the end of the document"

// parserProblems begin the messages of the YAML parser itself, which name the line before the right one, or before the
// start of the collection. Messages of its scanner name the right line.
var parserProblems = []string{
	"did not find expected <", "did not find expected node content", "did not find expected '-' indicator",
	"did not find expected key",
	"did not find expected ',' or ", "found undefined tag handle", "found duplicate %", "found incompatible YAML document",
}

// explain turns the parser's message "yaml: line 3: found character that cannot start any token" into a place and a
// reason that a person can act on.
func explain(text []byte, err error) *Fault {
	fault := &Fault{Line: 1}
	var line int
	line, fault.Message = splitLine(err)
	fault.Line = max(line, 1)
	if parsers := slices.ContainsFunc(parserProblems,
		func(p string) bool { return strings.HasPrefix(fault.Message, p) }); parsers || line == 0 {
		if index := firstWith(text, fault.Message); index > 0 {
			fault.Line = index
		} else if parsers {
			fault.Line = line + 1
		}
	}
	if strings.HasPrefix(fault.Message, "did not find expected <document start>") {
		fault.Message = TextBehind
	}
	if strings.Contains(fault.Message, "cannot start any token") {
		// The parser is off by one at times.
		for i, row := range bytes.SplitN(text, []byte("\n"), fault.Line+2) {
			if i+2 < fault.Line || i > fault.Line {
				continue
			}
			if indent := row[:len(row)-len(bytes.TrimLeft(row, " \t"))]; bytes.IndexByte(indent, '\t') >= 0 {
				fault.Line, fault.Column = i+1, bytes.IndexByte(indent, '\t')+1
				fault.Message = tabbed
				break
			}
		}
	}
	fault.Message = inWords(fault.Message)
	return fault
}

const tabbed = "a tab indents this line; YAML takes only blanks"

// inWords replaces a message about the parser's work by one about the text.
func inWords(message string) string {
	for _, replacement := range []struct{ says, means string }{
		{"did not find expected ',' or '}'", "want a comma or a } before this, or quotes around a value"},
		{"did not find expected ',' or ']'", "want a comma or a ] before this, or quotes around a value"},
		{"did not find expected node content", "want a value here, or a bracket is not closed"},
		{"did not find expected key", "this line is indented as none of those before it, or a quote or bracket before it " +
			"is not closed"},
		{
			"did not find expected '-' indicator",
			"this line is indented as an item of the list before it, and does not begin with -",
		},
		{
			"mapping values are not allowed in this context",
			"there is a : where no key can be: the value before it wants quotes, or the line is " +
				"indented wrongly",
		},
		{"could not find expected ':'", "a key without a :, or a quote before it that is not closed"},
		{"found unexpected end of stream", "a quote is not closed"},
		{"found character that cannot start any token", "a value that begins so wants quotes"},
		{"found a tab character that violates indentation", tabbed},
		{"found a tab character where an indentation space is expected", tabbed},
	} {
		if strings.HasPrefix(message, replacement.says) {
			return replacement.means
		}
	}
	if strings.HasPrefix(message, "unknown anchor ") { // the message does not quote it: it may be part of a secret
		return "an alias (*) of an anchor (&) that is not there before it; a value that begins with * wants quotes"
	}
	return message
}

// splitLine removes the line from a message of the parser; it is 0 without one.
func splitLine(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(message, "line %d: ", &line); n == 1 {
		_, message, _ = strings.Cut(message, ": ")
	}
	return line, message
}

// maxTries is the longest text that is parsed again to find the line of a fault.
const maxTries = 64 << 10

// firstWith returns the line of a fault: the last line of the shortest beginning of the text with that fault. It
// returns 0 if the text is too long.
func firstWith(text []byte, message string) int {
	if len(text) > maxTries {
		return 0
	}
	var ends []int // of lines
	end := 0
	for l := range Lines(text) {
		end += len(l)
		ends = append(ends, end)
	}
	n := sort.Search(len(ends), func(i int) bool {
		_, err := readOne(text[:ends[i]])
		if err == nil {
			return false
		}
		_, got := splitLine(err)
		return got == message
	})
	if n == len(ends) {
		return 0
	}
	return n + 1
}

// FirstInvalid returns the place of the first byte of text that is not UTF-8.
func FirstInvalid(text []byte) (line, column int, found bool) {
	if utf8.Valid(text) {
		return 0, 0, false
	}
	valid := 0
	for r, size := utf8.DecodeRune(text); r != utf8.RuneError || size > 1; r, size = utf8.DecodeRune(text[valid:]) {
		valid += size
	}
	start := bytes.LastIndexByte(text[:valid], '\n') + 1
	return bytes.Count(text[:start], []byte{'\n'}) + 1, utf8.RuneCount(text[start:valid]) + 1, true
}
