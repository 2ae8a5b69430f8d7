package resource

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Istio's validation has no lines, and rarely names the field. A value or a field in its message can be located if the
// object has only one of it.

// maxLocated bounds the nodes of an object that are searched for it.
const maxLocated = 10_000

// locate adds the places of fields to the findings of a verdict, if they can be found. No other goroutine uses the
// verdict yet.
func (d *decoder) locate(root *yaml.Node, result *verdict) {
	if len(result.errs)+len(result.warnings) == 0 {
		return
	}
	index := indexOf(root)
	for _, list := range []Errors{result.errs, result.warnings} {
		for _, finding := range list {
			if node := index.find(root, finding.Err.Error()); node != nil {
				finding.line, finding.column = d.base+node.Line, node.Column
				finding.Origin.Place = fmt.Sprintf("%s:%d:%d", d.path, finding.line, finding.column)
			}
		}
	}
}

// fieldIndex has the keys and values that occur once in an object; nil for those that occur more often.
type fieldIndex struct{ keys, values map[string]*yaml.Node }

func indexOf(root *yaml.Node) fieldIndex {
	index := fieldIndex{make(map[string]*yaml.Node), make(map[string]*yaml.Node)}
	once := func(nodes map[string]*yaml.Node, node *yaml.Node) {
		if _, isDuplicate := nodes[node.Value]; isDuplicate {
			nodes[node.Value] = nil
		} else {
			nodes[node.Value] = node
		}
	}
	remaining := maxLocated
	var walk func(n *yaml.Node)
	walk = func(node *yaml.Node) {
		if remaining--; remaining < 0 {
			return
		}
		switch node.Kind {
		case yaml.ScalarNode:
			once(index.values, node)
		case yaml.SequenceNode:
			for _, item := range node.Content {
				walk(item)
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				once(index.keys, node.Content[i])
				walk(node.Content[i+1])
			}
		}
	}
	if spec := valueOf(root, "spec"); spec != nil {
		walk(spec)
	}
	if remaining < 0 {
		return fieldIndex{} // a value that seems unique may occur again
	}
	return index
}

// find returns the node that a message is about, or nil.
func (f fieldIndex) find(root *yaml.Node, message string) *yaml.Node {
	if field, _, ok := strings.Cut(message, ": "); ok {
		for _, path := range []string{"spec." + field, field} {
			if n := follow(root, path); n != nil {
				return n
			}
		}
	}
	for i, text := range strings.Split(message, `"`) { // each second text stands in quotes, and may be several words
		if n := f.values[text]; n != nil && i%2 == 1 {
			return n
		}
	}
	var best *yaml.Node
	rank := 0
	for i, part := range strings.FieldsFunc(message,
		func(r rune) bool { return strings.ContainsRune(" \t,;=()[]{}\"'`", r) }) {
		for _, word := range []string{part, strings.Trim(part, ".:")} {
			if n := f.values[word]; n != nil {
				if r := valueRank(word, message); r > rank || best != nil && r == rank && len(word) > len(best.Value) {
					best, rank = n, r
				}
			}
			if n := f.keys[word]; n != nil {
				if r := keyRank(word, i); r > rank {
					best, rank = n, r
				}
			}
		}
	}
	return best
}

// The ranks of candidates: the highest one counts. Zero is no candidate.
const (
	rankOtherKey = iota + 1
	rankOtherValue
	rankFirstKey
	rankNumber
	rankQuoted
)

// valueRank returns how likely a word of a message is the equal value of the object, rather than a word of the
// language.
func valueRank(word, message string) int {
	switch {
	case strings.Contains(message, `"`+word+`"`), strings.Contains(message, "'"+word+"'"):
		return rankQuoted
	case len(word) > 1 && strings.ContainsAny(word, "0123456789"):
		return rankNumber
	case len(word) > 1 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") != "":
		return rankOtherValue
	}
	return 0
}

// keyRank is valueRank for keys. The i-th word of the message is one.
func keyRank(word string, i int) int {
	switch {
	case i == 0:
		return rankFirstKey
	case strings.ToLower(word) != word:
		return rankOtherKey
	}
	return 0
}

// follow returns the node at a path such as spec.http[0].route or metadata.labels["a/b"], or nil.
func follow(node *yaml.Node, path string) *yaml.Node {
	for node != nil && path != "" {
		switch {
		case path[0] == '.':
			path = path[1:]
		case strings.HasPrefix(path, `["`):
			key, err := strconv.QuotedPrefix(path[1:])
			if err != nil || !strings.HasPrefix(path[1+len(key):], "]") {
				return nil
			}
			name, _ := strconv.Unquote(key) // it is quoted
			node, path = valueOf(node, name), path[len(key)+2:]
		case path[0] == '[':
			number, rest, _ := strings.Cut(path[1:], "]")
			i, err := strconv.Atoi(number)
			if node = deref(node); err != nil || node.Kind != yaml.SequenceNode || i < 0 || i >= len(node.Content) {
				return nil
			}
			node, path = node.Content[i], rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			node, path = valueOf(node, path[:end]), path[end:]
		}
	}
	return node
}

// valueOf returns the value of a key of the mapping node, or nil.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	if node = deref(node); node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// FieldPlace returns the place (file:line:column) of a field such as spec.http[0].route. place (file:line) is the place
// of the object with the name in text. FieldPlace returns it if it does not find the field.
func FieldPlace(text []byte, place, name, field string) string {
	i := strings.LastIndexByte(place, ':')
	if i < 0 || !strings.HasPrefix(field, "spec.") {
		return place
	}
	var match *yaml.Node
	var search func(n *yaml.Node)
	search = func(node *yaml.Node) {
		if node.Kind == yaml.MappingNode && strconv.Itoa(node.Line) == place[i+1:] {
			if candidate := follow(node, "metadata.name"); match == nil || candidate != nil && candidate.Value == name {
				match = node
			}
		}
		for _, child := range node.Content {
			search(child)
		}
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); match == nil; {
		var document yaml.Node
		if decoder.Decode(&document) != nil {
			return place
		}
		search(&document)
	}
	if n := follow(match, field); n != nil {
		return fmt.Sprintf("%s:%d:%d", place[:i], n.Line, n.Column)
	}
	return place
}
