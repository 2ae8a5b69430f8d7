package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/aggregate"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
)

// Objects is the panel of served, quarantined, held and unresolved objects.
type Objects struct {
	Filter   string
	Kind     string
	Show     string // the selected tab
	Kinds    []Choice
	Tabs     []Tab
	Rows     []Object
	Problems []Problem // rows of the other tabs
	Remark   string    // names rows that the table lacks
	Pager    Pager
	// RequestTree has the lines of Server.RequestTree, if the filter is a host.
	RequestTree []string
}

// Choice is an option of the list of kinds.
type Choice struct {
	Name   string
	Text   string
	Chosen bool
}

// Tab selects the objects of one state.
type Tab struct {
	Name, Link string
	Count      int
	Class      string
	Chosen     bool
}

// Object is a row of the served objects.
type Object struct {
	*resource.Resource

	Marks []Mark
}

// Mark is a label in the row of an object.
type Mark struct{ Class, Text string }

// Problem is a row of a quarantined, held or unresolved object.
type Problem struct {
	Key     resource.Key // without a name if it is unknown
	Source  string
	Place   string
	Reason  string
	Serves  string // the text about the object that is served in its place
	Started time.Time
}

// matches reports whether the object, its source or its place contains each of the terms.
func matches(terms []string, key resource.Key, source, place string) bool {
	for _, term := range terms {
		if !contains(key.Name, term) && !contains(key.Namespace, term) && !contains(string(key.Kind), term) &&
			!contains(source, term) &&
			!contains(place, term) &&
			(!strings.Contains(term, "/") || !contains(key.FullName(), term)) {
			return false
		}
	}
	return true
}

// contains reports whether a text contains a lower-case word, in any case. The first check avoids most copies.
func contains(text, lower string) bool {
	return strings.Contains(text, lower) || strings.Contains(strings.ToLower(text), lower)
}

// objectsPanel returns the panel. The losers are the objects of shadowed sources.
func objectsPanel(
	status *admin.Status, program Program, losers map[resource.Key][]aggregate.Candidate, query pageQuery,
) Objects {
	held, unlisted := heldRows(program.HeldSources())
	panel := Objects{
		Filter: query.filter, Kind: string(query.kind), Show: query.show, Tabs: newTabs(status, len(held)+unlisted, query),
		RequestTree: program.RequestTree(query.filter),
	}
	for _, kind := range slices.Sorted(maps.Keys(status.Kinds)) {
		panel.Kinds = append(panel.Kinds, Choice{
			string(kind), fmt.Sprintf("%s (%d)", kind, status.Kinds[kind]), kind == query.kind,
		})
	}
	switch terms := strings.Fields(strings.ToLower(query.filter)); query.show {
	case showQuarantined:
		panel.fillProblems(quarantinedRows(program.Quarantined()), query, terms)
	case showHeld:
		if unlisted > 0 {
			panel.Remark = words.Count(unlisted, "more is", "more are") + " held: of each source, the first are listed."
		}
		panel.fillProblems(held, query, terms)
	case showUnresolved:
		panel.fillProblems(unresolvedRows(program.ObjectProblems().Unresolved), query, terms)
	default:
		panel.fillServed(program, losers, query, terms)
	}
	return panel
}

func newTabs(status *admin.Status, held int, query pageQuery) []Tab {
	tab := func(show, name string, number int, class string) Tab {
		if number == 0 {
			class = ""
		}
		return Tab{name, query.withTab(show).link("objects"), number, class, query.show == show}
	}
	return []Tab{
		tab(showAll, "Served", status.Objects, ""), tab(showShadowed, "In several sources", status.Conflicts.Shadowed, ""),
		tab(showQuarantined, "Quarantined", status.Quarantined, classBad), tab(showHeld, "Held", held, classWarning),
		tab(showUnresolved, "Lead nowhere", status.UnresolvedCount, classBad),
	}
}

// fillServed adds the rows of one page of the served objects.
func (o *Objects) fillServed(
	program Program, losers map[resource.Key][]aggregate.Candidate, query pageQuery, terms []string,
) {
	objects := program.Snapshot().All()
	if query.kind != "" {
		objects = program.Snapshot().List(query.kind, "")
	}
	byHost := make(map[resource.Key]bool)
	if len(terms) == 1 && strings.Contains(terms[0], ".") {
		for _, key := range program.KeysOfHost(terms[0]) {
			byHost[key] = true
		}
	}
	var selected []*resource.Resource
	for object := range objects {
		key, origin := object.Key(), object.Origin()
		if (query.show != showShadowed || len(losers[key]) > 0) &&
			(matches(terms, key, origin.Source, origin.Place) || byHost[key]) {
			selected = append(selected, object)
		}
	}
	o.Pager = newPager(query, "objects", len(selected))
	quarantined := make(map[resource.Key]bool)
	for _, rejected := range program.Quarantined() {
		quarantined[rejected.Key()] = true
	}
	for _, object := range selected[o.Pager.from:o.Pager.to] {
		row, key := Object{Resource: object}, object.Key()
		if shadowed := losers[key]; len(shadowed) > 0 {
			names := words.Each(shadowed, func(loser aggregate.Candidate) string { return loser.Source })
			row.Marks = append(row.Marks, Mark{classIdle, "wins over " + strings.Join(names, ", ")})
		}
		if quarantined[key] {
			row.Marks = append(row.Marks, Mark{classBad, "newer one is quarantined"})
		}
		if program.IsHeld(key) {
			row.Marks = append(row.Marks, Mark{classWarning, "loss is held"})
		}
		if object.Origin().Rules != "" {
			row.Marks = append(row.Marks, Mark{classIdle, "transformed"})
		}
		o.Rows = append(o.Rows, row)
	}
}

// fillProblems adds one page of those rows that the query selects.
func (o *Objects) fillProblems(rows []Problem, query pageQuery, terms []string) {
	rows = slices.DeleteFunc(rows, func(row Problem) bool {
		return query.kind != "" && row.Key.Kind != query.kind ||
			!matches(terms, row.Key, row.Source, row.Place) && !contains(row.Reason, strings.Join(terms, " "))
	})
	o.Pager = newPager(query, "objects", len(rows))
	o.Problems = rows[o.Pager.from:o.Pager.to]
}

func quarantinedRows(objects []admin.Quarantined) (rows []Problem) {
	for _, object := range objects {
		rows = append(rows, Problem{object.Key(), object.Source, object.Place, object.Reason, object.Serves(), object.Since})
	}
	return rows
}

// heldRows returns the listed losses, and the number of those that are not listed.
func heldRows(sources []admin.HeldSource) (rows []Problem, rest int) {
	for _, source := range sources {
		rest += source.FurtherLosses
		for _, held := range source.Held {
			reason := "the source has less of it: " + words.Count(held.Endpoints, "endpoint", "endpoints") + " fewer"
			if held.Missing {
				reason = "the source no longer has it"
			}
			rows = append(rows, Problem{held.Key(), source.Source, "", reason, "the previous version", source.Begun})
		}
	}
	return rows, rest
}

func unresolvedRows(problems []admin.ObjectProblem) (rows []Problem) {
	for _, problem := range problems {
		rows = append(rows, Problem{
			Key: problem.Key(), Source: problem.Source, Place: problem.Place, Reason: problem.Message,
			Serves: "the object; such requests fail",
		})
	}
	return rows
}
