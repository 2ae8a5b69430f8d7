package resource

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// scanner parses the part of YAML that nearly all configuration uses, many times as fast as the YAML parser, which
// otherwise takes two thirds of a start: block mappings and sequences of scalars that are plain, or in quotes without
// escapes, on one line; flow collections of these on one line; comments; all in ASCII. It leaves a document with other
// parts, valid or not, to the parser. Its result is that of the parser, with line and column of every node, but without
// comments. TestScanner and FuzzScanner compare the two.
//
// A scanner that fails continues at the end of an empty text, so that no loop needs to check for failure.
type scanner struct {
	text   string // ends with a line break
	pos    int
	line   int // the line of pos, from 1
	start  int // of the line
	indent int // of the line, when pos is at its first character; -1 at the end of the text
	depth  int
	failed bool

	nodes   arena
	pending []*yaml.Node // content of the collections that are being read
}

// Parts that the scanner leaves to the parser although it could read them.
const (
	maxScanDepth = 50   // of nesting
	maxScanKey   = 1000 // length of a key; YAML allows 1024 characters
)

// scan returns the root of the document, or nil if that is left to the parser. The nodes are good until the next scan.
func (s *scanner) scan(text []byte) *yaml.Node {
	for _, b := range text {
		if b != '\n' && (b < ' ' || b > '~') {
			return nil
		}
	}
	s.nodes.reset()
	s.pending = s.pending[:0]
	s.text, s.pos, s.line, s.start, s.depth, s.failed = string(text), -1, 0, 0, 0, false
	if !strings.HasSuffix(s.text, "\n") {
		s.text += "\n"
	}
	if strings.HasPrefix(s.text, "---\n") {
		s.pos, s.line = 3, 1
	}
	s.nextLine()
	if s.indent < 0 {
		return nil
	}
	root := s.block(s.indent)
	if s.failed || s.indent >= 0 {
		return nil
	}
	return root
}

// fail leaves the document to the parser. Its node is not used.
func (s *scanner) fail() *yaml.Node {
	s.text, s.pos, s.indent, s.failed = "\n", 0, -1, true
	return &yaml.Node{}
}

// nextLine goes from the end of a line to the first character of the next one that has content.
func (s *scanner) nextLine() {
	for s.pos+1 < len(s.text) {
		s.pos++
		s.line++
		s.start = s.pos
		switch s.skipBlanks() {
		case '\n':
		case '#':
			s.skipComment()
		default:
			s.indent = s.column() - 1
			return
		}
	}
	s.indent = -1
}

// endLine goes to the next line, if only a comment follows in this one.
func (s *scanner) endLine() {
	before := s.pos
	switch c := s.skipBlanks(); {
	case c == '\n':
	case c == '#' && s.pos > before:
		s.skipComment()
	default:
		s.fail()
		return
	}
	s.nextLine()
}

func (s *scanner) skipComment() { s.pos += strings.IndexByte(s.text[s.pos:], '\n') }

// skipBlanks skips blanks, and returns the next character.
func (s *scanner) skipBlanks() byte {
	for s.text[s.pos] == ' ' {
		s.pos++
	}
	return s.text[s.pos]
}

// column is that of pos, from 1.
func (s *scanner) column() int { return s.pos - s.start + 1 }

func (s *scanner) node(kind yaml.Kind, tag string, line, column int) *yaml.Node {
	n := s.nodes.node()
	*n = yaml.Node{Kind: kind, Tag: tag, Line: line, Column: column}
	return n
}

// begin returns the node of a collection.
func (s *scanner) begin(kind yaml.Kind, tag string, line, column int) *yaml.Node {
	if s.depth++; s.depth > maxScanDepth {
		return s.fail()
	}
	return s.node(kind, tag, line, column)
}

// end gives a node the content that is pending from base on.
func (s *scanner) end(node *yaml.Node, base int) *yaml.Node {
	node.Content = s.nodes.list(s.pending[base:])
	s.pending = s.pending[:base]
	s.depth--
	return node
}

// block reads the block collection that begins at pos, in column blockColumn, and goes on to the line after it.
func (s *scanner) block(blockColumn int) *yaml.Node {
	if s.atDash() {
		return s.sequence(blockColumn)
	}
	return s.mapping(blockColumn, s.scalar(false))
}

// mapping is block for a mapping after its first key.
func (s *scanner) mapping(blockColumn int, key *yaml.Node) *yaml.Node {
	node := s.begin(yaml.MappingNode, "!!map", key.Line, key.Column)
	base := len(s.pending)
	for {
		if !s.atColon() || s.column()-blockColumn > maxScanKey {
			return s.fail()
		}
		s.pos++
		value := s.value(blockColumn)
		s.pending = append(s.pending, key, value)
		if s.indent != blockColumn {
			break
		}
		key = s.scalar(false)
	}
	if s.indent > blockColumn {
		return s.fail()
	}
	return s.end(node, base)
}

// value reads the value after the colon in a mapping in column blockColumn, and goes to the next line.
func (s *scanner) value(blockColumn int) *yaml.Node {
	line, column := s.line, s.column()
	if c := s.skipBlanks(); c != '\n' && c != '#' {
		n := s.inline()
		s.endLine()
		return n
	}
	s.pos = s.start + column - 1
	s.endLine()
	switch {
	case s.indent > blockColumn:
		return s.block(s.indent)
	case s.indent == blockColumn && s.atDash(): // a sequence may be as far left as its key
		return s.sequence(blockColumn)
	}
	return s.node(yaml.ScalarNode, "!!null", line, column)
}

// sequence is block for a sequence.
func (s *scanner) sequence(blockColumn int) *yaml.Node {
	node := s.begin(yaml.SequenceNode, "!!seq", s.line, blockColumn+1)
	base := len(s.pending)
	for s.indent == blockColumn && s.atDash() {
		s.pos++
		item := s.item(blockColumn)
		s.pending = append(s.pending, item)
	}
	if s.indent > blockColumn {
		return s.fail()
	}
	return s.end(node, base)
}

// item reads the value after the dash of a sequence in column blockColumn, and goes to the next line.
func (s *scanner) item(blockColumn int) *yaml.Node {
	line, column := s.line, s.column()
	switch s.skipBlanks() {
	case '\n':
		if s.nextLine(); s.indent > blockColumn {
			return s.block(s.indent)
		}
		return s.node(yaml.ScalarNode, "!!null", line, column)
	case '-':
		if s.atDash() {
			s.indent = s.column() - 1
			return s.sequence(s.indent)
		}
	}
	node := s.inline()
	if node.Kind == yaml.ScalarNode && s.atColon() {
		return s.mapping(node.Column-1, node)
	}
	s.endLine()
	return node
}

// atDash reports whether an item of a block sequence begins at pos.
func (s *scanner) atDash() bool {
	return s.text[s.pos] == '-' && (s.text[s.pos+1] == ' ' || s.text[s.pos+1] == '\n')
}

// atColon reports whether a key ends at pos.
func (s *scanner) atColon() bool {
	return s.text[s.pos] == ':' && (s.text[s.pos+1] == ' ' || s.text[s.pos+1] == '\n')
}

// inline reads a scalar or a flow collection.
func (s *scanner) inline() *yaml.Node {
	switch s.text[s.pos] {
	case '[':
		return s.flow(yaml.SequenceNode, "!!seq", ']')
	case '{':
		return s.flow(yaml.MappingNode, "!!map", '}')
	}
	return s.scalar(false)
}

// flow reads a flow collection that ends with the character end.
func (s *scanner) flow(kind yaml.Kind, tag string, end byte) *yaml.Node {
	node := s.begin(kind, tag, s.line, s.column())
	node.Style = yaml.FlowStyle
	base := len(s.pending)
	if s.failed {
		return node
	}
	s.pos++
	if s.skipBlanks() == end {
		s.pos++
		return s.end(node, base)
	}
	for {
		if kind == yaml.MappingNode {
			key := s.scalar(true)
			if !s.atColon() || s.column()-key.Column > maxScanKey {
				return s.fail()
			}
			s.pos++
			s.skipBlanks()
			s.pending = append(s.pending, key)
		}
		value := s.flowValue()
		s.pending = append(s.pending, value)
		switch s.skipBlanks() {
		case end:
			s.pos++
			return s.end(node, base)
		case ',':
			s.pos++
			s.skipBlanks()
		default:
			return s.fail()
		}
	}
}

func (s *scanner) flowValue() *yaml.Node {
	if c := s.text[s.pos]; c == '[' || c == '{' {
		return s.inline()
	}
	return s.scalar(true)
}

// scalar reads a scalar, inFlow or not. The next character tells a key from a value.
func (s *scanner) scalar(inFlow bool) *yaml.Node {
	first := s.text[s.pos]
	if first == '"' || first == '\'' {
		return s.quoted(first)
	}
	if !beginsPlain(first, s.text[min(s.pos+1, len(s.text)-1)]) {
		return s.fail()
	}
	end := s.plainEnd(inFlow)
	if end < 0 {
		return s.fail()
	}
	value := strings.TrimRight(s.text[s.pos:end], " ")
	node := s.node(yaml.ScalarNode, plainTag(value), s.line, s.column())
	node.Value = value
	s.pos += len(value)
	return node
}

// plainEnd returns where the plain scalar at pos ends, with the blanks after it, or -1 if that is unclear.
func (s *scanner) plainEnd(inFlow bool) int {
	for i := s.pos; ; i++ {
		switch c := s.text[i]; c {
		case '\n':
			return i
		case '#':
			if s.text[i-1] == ' ' {
				return i
			}
		case ':':
			if next := s.text[i+1]; next == ' ' || next == '\n' {
				return i
			} else if inFlow && strings.IndexByte(",[]{}?", next) >= 0 {
				return -1
			}
		case ',', ']', '}':
			if inFlow {
				return i
			}
		case '[', '{', '?':
			if inFlow {
				return -1
			}
		}
	}
}

// quoted reads a scalar in quotes.
func (s *scanner) quoted(quote byte) *yaml.Node {
	node := s.node(yaml.ScalarNode, "!!str", s.line, s.column())
	text := s.text[s.pos+1:]
	end := strings.IndexByte(text, quote)
	if end < 0 || text[end+1] == quote || strings.IndexByte(text[:end], '\n') >= 0 {
		return s.fail()
	}
	node.Value, node.Style = text[:end], yaml.SingleQuotedStyle
	if quote == '"' {
		if node.Style = yaml.DoubleQuotedStyle; strings.IndexByte(node.Value, '\\') >= 0 {
			return s.fail()
		}
	}
	s.pos += end + 2
	return node
}

// beginsPlain reports whether a first character, before the next one, begins a plain scalar.
func beginsPlain(first, next byte) bool {
	switch first {
	case '-':
		return isWord(next)
	case '/', '.', '_', '+', '<', '=', '(', '$', '~', '^', ';', '\\':
		return true
	}
	return isWord(first)
}

func isWord(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// plainTag returns the tag of a plain scalar. The parser's own function decides, except for words, small numbers and
// IPv4 addresses: their tags are certain.
func plainTag(value string) string {
	switch first := value[0]; {
	case first >= '1' && first <= '9':
		digits, dots := 0, 0
		for i := range len(value) {
			switch char := value[i]; {
			case char >= '0' && char <= '9':
				digits++
			case char == '.':
				dots++
			}
		}
		switch {
		case digits == len(value) && digits < 19:
			return "!!int"
		case digits+dots == len(value) && dots > 1:
			return "!!str"
		}
	case isWord(first) && strings.IndexByte("yYnNtTfFoO0", first) < 0:
		return "!!str"
	}
	return (&yaml.Node{Kind: yaml.ScalarNode, Value: value}).ShortTag()
}

// arena allocates nodes and lists of nodes, and reuses them after a reset: all nodes of a document are garbage once it
// is decoded, and would be most of the garbage at a start.
type arena struct {
	nodes slab[yaml.Node]
	lists slab[*yaml.Node]
}

// node returns a node with its former content.
func (a *arena) node() *yaml.Node { return &a.nodes.take(1)[0] }

// list returns a copy of nodes.
func (a *arena) list(nodes []*yaml.Node) []*yaml.Node {
	list := a.lists.take(len(nodes))
	copy(list, nodes)
	return list
}

func (a *arena) reset() {
	a.nodes.reset()
	a.lists.reset()
}

// slab allocates slices. It keeps one block of memory, and drops further blocks.
type slab[T any] struct {
	block []T
	used  int
}

// The sizes of blocks: that of the first one, and that of the largest one that is kept.
const (
	firstBlock = 256
	keptBlock  = 16 << 10
)

func (s *slab[T]) take(count int) []T {
	if s.used+count > len(s.block) {
		s.block = make([]T, max(count, firstBlock, 2*len(s.block)))
		s.used = 0
	}
	taken := s.block[s.used : s.used+count : s.used+count]
	s.used += count
	return taken
}

func (s *slab[T]) reset() {
	s.used = 0
	if len(s.block) > keptBlock {
		s.block = nil
	}
}
