package config

import (
	"fmt"
	"strings"
)

// Error is everything that is wrong with a configuration, in the order of the file.
type Error struct {
	Problems []Problem
	Cause    error // of the one that is there, or nil
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error lists the problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Problem is one thing that is wrong.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 if there is no place to name
	Column  int    `json:"column,omitempty"`
	Key     string `json:"key,omitempty"` // such as configSources[0].address
	Message string `json:"message"`
}

// String returns "file:line:column: key: message".
func (p Problem) String() string { return p.Place() + ": " + p.Text() }

// Place returns "file:line:column", or the file alone if there is no place to name.
func (p Problem) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Text returns "key: message".
func (p Problem) Text() string {
	if p.Key == "" {
		return p.Message
	}
	return p.Key + ": " + p.Message
}
