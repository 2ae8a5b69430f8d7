package resource

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalar reads a scalar, inFlow or not. Whether it is a key or a value is seen from what follows.
func (s *scanner) scalar(inFlow bool) *yaml.Node {
	c := s.text[s.pos]
	if c == '"' || c == '\'' {
		return s.quoted(c)
	}
	if !beginsPlain(c, s.text[min(s.pos+1, len(s.text)-1)]) {
		return s.fail()
	}
	end := s.plainEnd(inFlow)
	if end < 0 {
		return s.fail()
	}
	value := strings.TrimRight(s.text[s.pos:end], " ")
	n := s.node(yaml.ScalarNode, plainTag(value), s.line, s.column())
	n.Value = value
	s.pos += len(value)
	return n
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
	n := s.node(yaml.ScalarNode, "!!str", s.line, s.column())
	text := s.text[s.pos+1:]
	end := strings.IndexByte(text, quote)
	if end < 0 || text[end+1] == quote || strings.IndexByte(text[:end], '\n') >= 0 {
		return s.fail()
	}
	n.Value, n.Style = text[:end], yaml.SingleQuotedStyle
	if quote == '"' {
		if n.Style = yaml.DoubleQuotedStyle; strings.IndexByte(n.Value, '\\') >= 0 {
			return s.fail()
		}
	}
	s.pos += end + 2
	return n
}

// beginsPlain reports whether c, before next, begins a plain scalar.
func beginsPlain(c, next byte) bool {
	switch c {
	case '-':
		return isWord(next)
	case '/', '.', '_', '+', '<', '=', '(', '$', '~', '^', ';', '\\':
		return true
	}
	return isWord(c)
}

func isWord(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// plainTag returns the tag of a plain scalar. The parser's own function has the last word; what it would say of words,
// small numbers and IPv4 addresses is known without asking.
func plainTag(value string) string {
	switch c := value[0]; {
	case c >= '1' && c <= '9':
		digits, dots := 0, 0
		for i := range len(value) {
			switch c := value[i]; {
			case c >= '0' && c <= '9':
				digits++
			case c == '.':
				dots++
			}
		}
		switch {
		case digits == len(value) && digits < 19:
			return "!!int"
		case digits+dots == len(value) && dots > 1:
			return "!!str"
		}
	case isWord(c) && strings.IndexByte("yYnNtTfFoO0", c) < 0:
		return "!!str"
	}
	return (&yaml.Node{Kind: yaml.ScalarNode, Value: value}).ShortTag()
}
