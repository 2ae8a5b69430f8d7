package resource

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

// chunk is the text of one YAML document, still unparsed, so that a broken one does not take its neighbours along.
type chunk struct {
	text  []byte
	line  int    // of the file, of the first line of text; from 1
	fault string // why it is no document at all, if it is none
}

// split cuts data into documents, at the lines that begin one ("---") or end one ("..."). Both are document marks
// wherever they stand in column 1, also within block scalars and quotes (YAML 1.2 §9.1.2), so no parsing is needed.
// A chunk that begins with a mark includes it, because content may follow on the same line.
func split(data []byte) []chunk {
	var chunks []chunk
	start, startLine := 0, 1
	cut := func(end, nextLine int) {
		if text := data[start:end]; !blank(text) {
			chunks = append(chunks, chunk{text: text, line: startLine})
		}
		start, startLine = end, nextLine
	}
	line, pos := 1, 0
	for l := range lines(data) {
		end := pos + len(l)
		switch {
		case isMark(l, "---"):
			cut(pos, line)
		case isMark(l, "..."):
			cut(pos, line)
			if !blank(l[3:]) {
				chunks = append(chunks, chunk{line: line, fault: "text behind the mark of the end of a document (...)"})
			}
			start, startLine = end, line+1
		}
		line, pos = line+1, end
	}
	cut(len(data), 0)
	return chunks
}

// lines yields the lines of text with what ends them. A carriage return alone ends one, too, as it does for the parser.
func lines(text []byte) iter.Seq[[]byte] {
	returns := bytes.IndexByte(text, '\r') >= 0
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			end := bytes.IndexByte(text, '\n') + 1
			if end == 0 {
				end = len(text)
			}
			if returns {
				if i := bytes.IndexByte(text[:end], '\r'); i >= 0 && i+2 < end || i+1 == len(text) || i+2 == end && text[i+1] != '\n' {
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

// isMark reports whether line consists of mark, or begins with it and a blank.
func isMark(line []byte, mark string) bool {
	if len(line) < 3 || string(line[:3]) != mark {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// blank reports whether text holds nothing but white space, comments, directives and a bare "---".
func blank(text []byte) bool {
	for line := range lines(text) {
		switch {
		case isMark(line, "---"):
			line = line[3:]
		case bytes.HasPrefix(line, []byte("%YAML ")), bytes.HasPrefix(line, []byte("%TAG ")):
			continue
		}
		line = bytes.TrimLeft(line, " \t\r\n")
		if len(line) > 0 && line[0] != '#' || endsWithin(line) {
			return false
		}
	}
	return true
}

// endsWithin reports whether the parser takes a line for more than one: it knows characters that end one and that hardly
// anybody else does.
func endsWithin(line []byte) bool {
	for _, end := range []string{"\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(line, []byte(end)) {
			return true
		}
	}
	return false
}

// parseJSON returns the values of a document that is JSON, of which there may be several one after another. It returns
// nil if it is anything else. Much YAML that begins with a brace is JSON, and if so, the JSON parser knows it better.
func (c chunk) parseJSON() (roots []*yaml.Node) {
	if !bytes.HasPrefix(c.text, []byte("{")) || !utf8.Valid(c.text) {
		return nil
	}
	for tree := newJSONTree(c.text); ; {
		root, err := tree.next()
		if err != nil {
			return nil
		}
		if root == nil {
			return roots
		}
		roots = append(roots, root)
	}
}

// parse returns the root of the document, or nil if it is empty. Lines of its nodes count from the start of the chunk.
func (c chunk) parse() (root *yaml.Node, fault *syntaxError) {
	if line, col, ok := firstInvalid(c.text); ok {
		return nil, &syntaxError{line, col, "not valid UTF-8; is this a text file?"}
	}
	defer func() {
		if p := recover(); p != nil {
			root, fault = nil, &syntaxError{line: 1, message: fmt.Sprintf("the YAML parser panics: %v", p)}
		}
	}()
	root, err := readOne(c.text)
	if err != nil {
		return nil, c.explain(err)
	}
	return root, nil
}

// readOne returns the root of the one document of text, or nil if that is empty. The parser stops at the end of the
// document; what it has not read must be nothing.
func readOne(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, rest yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // there is no document
	case err != nil:
		return nil, err
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, fmt.Errorf("yaml: line %d: %s", rest.Line, textBehind)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return doc.Content[0], nil
}

const textBehind = "text behind the end of the document; documents are separated by lines of ---"

// syntaxError says why a text could not be parsed. Line counts from the start of the text; column is 0 if unknown.
type syntaxError struct {
	line, column int
	message      string
}

// parserProblems begin the messages of the YAML parser proper, which name the line before the right one, or the one before
// that in which the collection begins. Those of its scanner name the right one.
var parserProblems = []string{
	"did not find expected <", "did not find expected node content", "did not find expected '-' indicator", "did not find expected key",
	"did not find expected ',' or ", "found undefined tag handle", "found duplicate %", "found incompatible YAML document",
}

// explain turns the parser's message "yaml: line 3: found character that cannot start any token" into a place and a
// reason that a person can act on.
func (c chunk) explain(err error) *syntaxError {
	e := &syntaxError{line: 1}
	var line int
	line, e.message = splitLine(err)
	e.line = max(line, 1)
	if parsers := slices.ContainsFunc(parserProblems, func(p string) bool { return strings.HasPrefix(e.message, p) }); parsers || line == 0 {
		if at := c.firstWith(e.message); at > 0 {
			e.line = at
		} else if parsers {
			e.line = line + 1
		}
	}
	if strings.HasPrefix(e.message, "did not find expected <document start>") {
		e.message = textBehind
	}
	if strings.Contains(e.message, "cannot start any token") {
		// The parser is off by one at times.
		for i, text := range bytes.SplitN(c.text, []byte("\n"), e.line+2) {
			if i+2 < e.line || i > e.line {
				continue
			}
			if indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]; bytes.IndexByte(indent, '\t') >= 0 {
				e.line, e.column = i+1, bytes.IndexByte(indent, '\t')+1
				e.message = "a tab indents this line; YAML takes only blanks"
				break
			}
		}
	}
	return e
}

// splitLine takes the line off a message of the parser; it is 0 if there is none.
func splitLine(err error) (line int, message string) {
	message = strings.TrimPrefix(err.Error(), "yaml: ")
	if n, _ := fmt.Sscanf(message, "line %d: ", &line); n == 1 {
		_, message, _ = strings.Cut(message, ": ")
	}
	return line, message
}

// maxTries is how long a text may be that is parsed again to find the line of a fault.
const maxTries = 64 << 10

// firstWith returns the line in which a fault is: the last one of the shortest beginning of the text that has it. It returns
// 0 if the text is too long to look for it.
func (c chunk) firstWith(message string) int {
	if len(c.text) > maxTries {
		return 0
	}
	var ends []int // of lines
	end := 0
	for l := range lines(c.text) {
		end += len(l)
		ends = append(ends, end)
	}
	n := sort.Search(len(ends), func(i int) bool {
		_, err := readOne(c.text[:ends[i]])
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

// firstInvalid returns the place of the first byte of text that is not UTF-8.
func firstInvalid(text []byte) (line, column int, found bool) {
	if utf8.Valid(text) {
		return 0, 0, false
	}
	line = 1
	for l := range bytes.Lines(text) {
		if !utf8.Valid(l) {
			column = 1
			for len(l) > 0 {
				r, size := utf8.DecodeRune(l)
				if r == utf8.RuneError && size == 1 {
					break
				}
				l, column = l[size:], column+1
			}
			return line, column, true
		}
		line++
	}
	return line, 1, true // not reached: a break is not part of any rune
}
