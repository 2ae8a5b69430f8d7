package resource

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// chunk is the text of one YAML document, still unparsed, so that a broken one does not take its neighbours along.
type chunk struct {
	text []byte
	line int // of the file, of the first line of text; from 1
}

// split cuts data into documents, at the lines that begin one ("---") or end one ("..."). Both are document marks
// wherever they stand in column 1, also within block scalars and quotes (YAML 1.2 §9.1.2), so no parsing is needed.
// A chunk that begins with a mark includes it, because content may follow on the same line.
func split(data []byte) []chunk {
	var chunks []chunk
	start, startLine := 0, 1
	cut := func(end, nextLine int) {
		if text := data[start:end]; !blank(text) {
			chunks = append(chunks, chunk{text, startLine})
		}
		start, startLine = end, nextLine
	}
	for pos, line := 0, 1; pos < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		switch {
		case isMark(data[pos:end], "---"):
			cut(pos, line)
		case isMark(data[pos:end], "..."):
			cut(pos, line)
			start, startLine = end, line+1
		}
		pos = end
	}
	cut(len(data), 0)
	return chunks
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
	for line := range bytes.Lines(text) {
		if isMark(line, "---") {
			line = line[3:]
		} else if line[0] == '%' {
			continue
		}
		if line = bytes.TrimLeft(line, " \t\r\n"); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// parse returns the root of the document, or nil if it is empty. Lines of its nodes count from the start of the chunk.
func (c chunk) parse() (*yaml.Node, *syntaxError) {
	if line, col, ok := firstInvalid(c.text); ok {
		return nil, &syntaxError{line, col, "not valid UTF-8; is this a text file?"}
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(c.text, &doc); err != nil {
		return nil, c.explain(err)
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// syntaxError says why a text could not be parsed. Line counts from the start of the text; column is 0 if unknown.
type syntaxError struct {
	line, column int
	message      string
}

// explain turns the parser's message "yaml: line 3: found character that cannot start any token" into a place and a
// reason that a person can act on.
func (c chunk) explain(err error) *syntaxError {
	e := &syntaxError{line: 1, message: strings.TrimPrefix(err.Error(), "yaml: ")}
	var line int
	if n, _ := fmt.Sscanf(e.message, "line %d: ", &line); n == 1 {
		e.line = max(line, 1)
		_, e.message, _ = strings.Cut(e.message, ": ")
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
