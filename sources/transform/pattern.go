package transform

import (
	"slices"
	"strings"
)

// pattern is text with stars: each stands for any characters, or none.
type pattern struct {
	text  string
	parts []string // between the stars
}

func patternOf(text string) pattern { return pattern{text, strings.Split(text, "*")} }

func patterns(texts []string) (compiled []pattern) {
	for _, t := range texts {
		compiled = append(compiled, patternOf(t))
	}
	return compiled
}

// stars returns the number of stars.
func (p pattern) stars() int { return len(p.parts) - 1 }

func (p pattern) matches(s string) bool {
	_, ok := p.match(s)
	return ok
}

// match returns the text for each star. All but the last are as short as possible.
func (p pattern) match(text string) (captured []string, ok bool) {
	last := p.stars()
	if last == 0 {
		return nil, text == p.text
	}
	if text, ok = strings.CutPrefix(text, p.parts[0]); !ok {
		return nil, false
	}
	if text, ok = strings.CutSuffix(text, p.parts[last]); !ok {
		return nil, false
	}
	for _, part := range p.parts[1:last] {
		before, after, isThere := strings.Cut(text, part)
		if !isThere {
			return nil, false
		}
		captured, text = append(captured, before), after
	}
	return append(captured, text), true
}

// anyMatches reports whether one of the patterns matches a text.
func anyMatches(ps []pattern, s string) bool {
	return slices.ContainsFunc(ps, func(p pattern) bool { return p.matches(s) })
}
