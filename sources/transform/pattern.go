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

func patterns(texts []string) (ps []pattern) {
	for _, t := range texts {
		ps = append(ps, patternOf(t))
	}
	return ps
}

// stars returns the number of stars.
func (p pattern) stars() int { return len(p.parts) - 1 }

func (p pattern) matches(s string) bool {
	_, ok := p.match(s)
	return ok
}

// match returns the text for each star. All but the last are as short as possible.
func (p pattern) match(s string) (captured []string, ok bool) {
	last := p.stars()
	if last == 0 {
		return nil, s == p.text
	}
	if s, ok = strings.CutPrefix(s, p.parts[0]); !ok {
		return nil, false
	}
	if s, ok = strings.CutSuffix(s, p.parts[last]); !ok {
		return nil, false
	}
	for _, part := range p.parts[1:last] {
		before, after, found := strings.Cut(s, part)
		if !found {
			return nil, false
		}
		captured, s = append(captured, before), after
	}
	return append(captured, s), true
}

// anyMatches reports whether one of ps matches s.
func anyMatches(ps []pattern, s string) bool {
	return slices.ContainsFunc(ps, func(p pattern) bool { return p.matches(s) })
}
