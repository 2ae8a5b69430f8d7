package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"tributary/internal/yamldoc"
)

// jsonTree parses JSON values into the nodes that the YAML parser would make of them, with line and column, so that all
// further code is the same for both. JSON is not parsed as YAML, which is nearly a superset, because of the
// differences: surrogate escapes, tabs, and errors about JSON.
type jsonTree struct {
	text []byte
	dec  *json.Decoder
	// position of offset, moved forward only
	offset, line, lineStart int
}

func newJSONTree(text []byte) *jsonTree {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return &jsonTree{text: text, dec: dec, line: 1}
}

// next returns the next value of the text, or nil at its end.
func (t *jsonTree) next() (*yaml.Node, *yamldoc.Fault) {
	node, err := t.value(0)
	switch {
	case errors.Is(err, io.EOF) && node == nil:
		return nil, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the text ends within a value")
		t.advance(len(t.text))
	case err != nil:
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			t.advance(min(int(t.dec.InputOffset()), len(t.text)))
		}
	default:
		return node, nil
	}
	return nil, &yamldoc.Fault{Line: t.line, Column: t.column(), Message: err.Error()}
}

// value returns the next value. At the end of the text it returns io.EOF; it returns a node with it only if the text
// ended within a value.
func (t *jsonTree) value(depth int) (*yaml.Node, error) {
	token, err := t.token()
	if err != nil {
		return nil, err
	}
	node := t.scalar(token)
	delim, ok := token.(json.Delim)
	if !ok {
		return node, nil
	}
	if depth > maxDepth {
		return node, errTooDeep
	}
	switch delim {
	case '{':
		node.Kind, node.Tag = yaml.MappingNode, "!!map"
	case '[':
		node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
	default:
		return node, fmt.Errorf("unexpected %q", rune(delim))
	}
	for t.dec.More() {
		child, err := t.value(depth + 1)
		if err != nil {
			return node, err
		}
		node.Content = append(node.Content, child)
	}
	_, err = t.token() // the closing bracket
	return node, err
}

// token returns the next token and moves the position to its begin.
func (t *jsonTree) token() (json.Token, error) {
	before := int(t.dec.InputOffset())
	token, err := t.dec.Token()
	for before < len(t.text) && strings.IndexByte(" \t\r\n,:", t.text[before]) >= 0 {
		before++
	}
	t.advance(before)
	return token, err
}

// scalar returns a node of a token at the position.
func (t *jsonTree) scalar(tok json.Token) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: t.line, Column: t.column()}
	switch value := tok.(type) {
	case string:
		node.Tag, node.Value, node.Style = "!!str", value, yaml.DoubleQuotedStyle
	case json.Number:
		node.Tag, node.Value = "!!int", value.String()
		if strings.ContainsAny(node.Value, ".eE") {
			node.Tag = "!!float"
		}
	case bool:
		node.Tag, node.Value = "!!bool", fmt.Sprint(value)
	case nil:
		node.Tag, node.Value = "!!null", "null"
	}
	return node
}

func (t *jsonTree) advance(end int) {
	for t.offset < end {
		i := bytes.IndexByte(t.text[t.offset:end], '\n')
		if i < 0 {
			t.offset = end
			return
		}
		t.offset += i + 1
		t.line, t.lineStart = t.line+1, t.offset
	}
}

func (t *jsonTree) column() int { return t.offset - t.lineStart + 1 }
