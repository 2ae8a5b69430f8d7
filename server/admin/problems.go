package admin

import (
	"fmt"
	"strings"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/resource"
)

// ObjectProblems are problems of served objects that make requests fail.
type ObjectProblems struct {
	// Unresolved are references to hosts, subsets, delegates and Gateways that no object has, and parts of objects of the
	// Gateway API that are not served.
	Unresolved []ObjectProblem `json:"unresolved"`
	// Unchecked are references that may lead to an object of a source that was never read.
	Unchecked []string `json:"unchecked,omitempty"`
	// Refused are objects that Envoys and gRPC clients do not get, since they exceed limits.productBytes.
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

// ObjectProblems returns the problems of objects. The list of unresolved references is not nil.
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
	status.Unresolved, status.UnresolvedCount = firstListed(problems.Unresolved), len(problems.Unresolved)
	status.Unchecked, status.UncheckedCount = firstListed(problems.Unchecked), len(problems.Unchecked)
	status.Refused, status.RefusedCount = firstListed(problems.Refused), len(problems.Refused)
	if s.opts.Affected == nil {
		return
	}
	unresolved := make(map[resource.Key]bool) // the status has these objects as problems already
	for _, problem := range problems.Unresolved {
		unresolved[problem.Key()] = true
	}
	for _, key := range s.opts.Affected() {
		if !unresolved[key] {
			status.WithoutEffect++
		}
	}
}

// unresolvedMessages returns the messages about references of an object that lead to no object.
func (s *Server) unresolvedMessages(key resource.Key) (messages []string) {
	for _, problem := range s.ObjectProblems().Unresolved {
		if problem.Key() == key {
			messages = append(messages, problem.Message)
		}
	}
	return messages
}

// addObjectProblems adds a trouble for each listed problem of an object, and one for the rest.
func (st *Status) addObjectProblems(list *troubles) {
	addProblems := func(problems []ObjectProblem, count int, area, advice string, summary func(unlisted int) string) {
		for i := range problems {
			list.add(area, HarmRefused, advice, "%s", problems[i].String()).setObject(problems[i].Key())
		}
		if unlisted := count - len(problems); unlisted > 0 {
			list.add(area, HarmRefused, advice, "%s", summary(unlisted)).Arguments = []string{"status", "-o", "json"}
		}
	}
	addProblems(st.Unresolved, st.UnresolvedCount, AreaReference,
		"Requests that need it fail. Correct it, or add the missing object.",
		func(unlisted int) string {
			return words.Count(unlisted, "more reference leads", "more references lead") + " to no object: see /debug/unresolved"
		})
	addProblems(st.Refused, st.RefusedCount, AreaObject,
		"Split the object into smaller ones, or raise limits.productBytes.",
		func(unlisted int) string {
			return "limits.productBytes refuses " + words.Count(unlisted, "more object", "more objects")
		})
	if st.UncheckedCount > 0 && len(st.Obstacles) == 0 {
		list.add(AreaReference, HarmOther,
			"It is unknown whether these references lead to an object. Repair the source that was never read.",
			"%s cannot be checked, since a source was never read: %s",
			words.Count(st.UncheckedCount, "reference", "references"), strings.Join(st.Unchecked, ", "))
	}
}

// NoEffect is an entry of /debug/no-effect: an object with parts that Envoys and gRPC clients ignore.
type NoEffect struct {
	conflicts.Ref
	Origin string   `json:"origin"`
	Parts  []string `json:"what"`
}

func (s *Server) noEffect() []NoEffect {
	entries := []NoEffect{}
	if s.opts.Affected == nil || s.opts.WithoutEffect == nil {
		return entries
	}
	snapshot := s.opts.View.Snapshot()
	for _, key := range s.opts.Affected() {
		if object := snapshot.Get(key); object != nil {
			entries = append(entries, NoEffect{conflicts.Ref(key), object.Origin().String(), s.opts.WithoutEffect(object)})
		}
	}
	return entries
}
