package admin

import (
	"fmt"
	"strings"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/resource"
)

// ObjectProblems are problems of served objects that cost requests.
type ObjectProblems struct {
	// Unresolved are references to hosts, subsets, delegates and Gateways that no object has, and parts of objects of the
	// Gateway API that are not served.
	Unresolved []ObjectProblem `json:"unresolved"`
	// Unchecked are references that only a source could resolve that was never read.
	Unchecked []string `json:"unchecked,omitempty"`
	// Refused are objects that limits.productBytes keeps from Envoys and gRPC clients.
	Refused []ObjectProblem `json:"refused,omitempty"`
}

// ObjectProblem is one problem of an object.
type ObjectProblem struct {
	conflicts.Ref
	Source  string `json:"source"`
	Place   string `json:"place,omitempty"`
	Message string `json:"message"`
}

// String returns the problem in one line.
func (p *ObjectProblem) String() string {
	place := p.Source
	if p.Place != "" {
		place += ": " + p.Place
	}
	return fmt.Sprintf("%s (%s): %s", p.Key(), place, p.Message)
}

// ObjectProblems returns the problems of objects. Its list of references is not nil.
func (s *Server) ObjectProblems() (problems ObjectProblems) {
	if s.opts.Problems != nil {
		problems = s.opts.Problems()
	}
	if problems.Unresolved == nil {
		problems.Unresolved = []ObjectProblem{}
	}
	return problems
}

// fillProblems adds the problems of objects to a status.
func (s *Server) fillProblems(status *Status) {
	problems := s.ObjectProblems()
	status.UnresolvedCount, status.UncheckedCount = len(problems.Unresolved), len(problems.Unchecked)
	status.RefusedCount = len(problems.Refused)
	status.Unresolved, status.Unchecked = firstOf(problems.Unresolved), firstOf(problems.Unchecked)
	status.Refused = firstOf(problems.Refused)
	if s.opts.Affected == nil {
		return
	}
	unresolved := make(map[resource.Key]bool) // the status has their references as problems
	for _, problem := range problems.Unresolved {
		unresolved[problem.Key()] = true
	}
	for _, key := range s.opts.Affected() {
		if !unresolved[key] {
			status.WithoutEffect++
		}
	}
}

// unresolvedOf returns the messages about references of an object.
func (s *Server) unresolvedOf(key resource.Key) (messages []string) {
	for _, problem := range s.ObjectProblems().Unresolved {
		if problem.Key() == key {
			messages = append(messages, problem.Message)
		}
	}
	return messages
}

// addObjectProblems adds a trouble for each listed problem of an object.
func (st *Status) addObjectProblems(list *troubles) {
	addProblems := func(problems []ObjectProblem, count int, about, advice string, summary func(unlisted int) string) {
		for i := range problems {
			list.add(about, HarmRefused, advice, "%s", problems[i].String()).explain(problems[i].Key())
		}
		if unlisted := count - len(problems); unlisted > 0 {
			list.add(about, HarmRefused, advice, "%s", summary(unlisted)).Run = []string{"status", "-o", "json"}
		}
	}
	addProblems(st.Unresolved, st.UnresolvedCount, AboutReference,
		"Requests that need it fail. Correct it, or add the missing object.",
		func(unlisted int) string {
			return words.Count(unlisted, "more reference leads", "more references lead") + " to no object: see /debug/unresolved"
		})
	addProblems(st.Refused, st.RefusedCount, AboutObject,
		"Split the object into smaller ones, or raise limits.productBytes.",
		func(unlisted int) string {
			return "limits.productBytes refuses " + words.Count(unlisted, "more object", "more objects")
		})
	if st.UncheckedCount > 0 && len(st.Missing) == 0 {
		list.add(AboutReference, HarmOther,
			"It is unknown whether these references lead to an object. Repair the source that was never read.",
			"%s cannot be checked, since a source was never read: %s",
			words.Count(st.UncheckedCount, "reference", "references"), strings.Join(st.Unchecked, ", "))
	}
}
