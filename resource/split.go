package resource

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"tributary/internal/yamldoc"
)

// chunk is the text of one YAML document, still unparsed, so that a broken document does not affect its neighbours.
type chunk struct {
	text  []byte
	line  int    // of the file, of the first line of text; from 1
	fault string // the reason if it is no document
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
	line, offset := 1, 0
	for row := range yamldoc.Lines(data) {
		end := offset + len(row)
		switch {
		case isMark(row, "---"):
			cut(offset, line)
		case isMark(row, "..."):
			cut(offset, line)
			if !blank(row[3:]) {
				chunks = append(chunks, chunk{text: row, line: line, fault: "text behind the mark of the end of a document (...)"})
			}
			start, startLine = end, line+1
		}
		line, offset = line+1, end
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

// blank reports whether text only has white space, comments, directives and a bare "---".
func blank(text []byte) bool {
	for line := range yamldoc.Lines(text) {
		switch {
		case isMark(line, "---"):
			line = line[3:]
		case bytes.HasPrefix(line, []byte("%YAML ")), bytes.HasPrefix(line, []byte("%TAG ")):
			continue
		}
		line = bytes.TrimLeft(line, " \t\r\n")
		// The parser also sees the line breaks that other programs do not know.
		if len(line) > 0 && line[0] != '#' || bytes.ContainsAny(line, "\u0085\u2028\u2029") {
			return false
		}
	}
	return true
}

// parseJSON returns the values of a JSON document, which may be several one after another. It returns nil for another
// document. Much YAML that begins with a brace is JSON, and the JSON parser is better for it.
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
