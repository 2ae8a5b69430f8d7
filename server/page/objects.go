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
	Filter string
	Kind   string
	Show   string
	Kinds  []Choice
	Tabs   []Tab
	Rows   []Object
	Lost   []Lost // in quarantine, or held
	Remark string // about rows that the table lacks
	Pager  Pager
	// RequestTree draws the way of a request, if the filter is a host.
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

// Mark is a label of an object.
type Mark struct{ Class, Text string }

// Lost is a row of the quarantined, held or unresolved objects.
type Lost struct {
	Key     resource.Key // without a name if it is unknown
	Source  string
	Place   string
	Reason  string
	Serves  string // in its place
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

// contains reports whether text contains a word in lower case. The first check avoids most copies.
func contains(text, lower string) bool {
	return strings.Contains(text, lower) || strings.Contains(strings.ToLower(text), lower)
}

// objectsPanel fills the panel. The objects that lose are those of shadowed sources.
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
		panel.lost(quarantinedRows(program.Quarantined()), query, terms)
	case showHeld:
		if unlisted > 0 {
			panel.Remark = words.Count(unlisted, "more is", "more are") + " held: of each source, the first are listed."
		}
		panel.lost(held, query, terms)
	case showUnresolved:
		panel.lost(unresolvedRows(program.ObjectProblems().Unresolved), query, terms)
	default:
		panel.served(program, losers, query, terms)
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
		tab(showQuarantined, "Quarantined", status.Quarantined, bad), tab(showHeld, "Held", held, warns),
		tab(showUnresolved, "Lead nowhere", status.UnresolvedCount, bad),
	}
}

// served fills in a page of the served objects.
func (o *Objects) served(
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
			row.Marks = append(row.Marks, Mark{idle, "wins over " + strings.Join(names, ", ")})
		}
		if quarantined[key] {
			row.Marks = append(row.Marks, Mark{bad, "newer one is quarantined"})
		}
		if program.IsHeld(key) {
			row.Marks = append(row.Marks, Mark{warns, "loss is held"})
		}
		if object.Origin().Rules != "" {
			row.Marks = append(row.Marks, Mark{idle, "transformed"})
		}
		o.Rows = append(o.Rows, row)
	}
}

// lost fills in a page of the selected rows.
func (o *Objects) lost(rows []Lost, query pageQuery, terms []string) {
	rows = slices.DeleteFunc(rows, func(row Lost) bool {
		return query.kind != "" && row.Key.Kind != query.kind ||
			!matches(terms, row.Key, row.Source, row.Place) && !contains(row.Reason, strings.Join(terms, " "))
	})
	o.Pager = newPager(query, "objects", len(rows))
	o.Lost = rows[o.Pager.from:o.Pager.to]
}

func quarantinedRows(objects []admin.Quarantined) (rows []Lost) {
	for _, object := range objects {
		rows = append(rows, Lost{object.Key(), object.Source, object.Place, object.Reason, object.Serves(), object.Since})
	}
	return rows
}

// heldRows returns the listed losses, and the number of those that are not listed.
func heldRows(sources []admin.HeldSource) (rows []Lost, rest int) {
	for _, source := range sources {
		rest += source.FurtherLosses
		for _, held := range source.Held {
			reason := "the source has less of it: " + words.Count(held.Endpoints, "endpoint", "endpoints") + " fewer"
			if held.Missing {
				reason = "the source no longer has it"
			}
			rows = append(rows, Lost{held.Key(), source.Source, "", reason, "the previous version", source.Begun})
		}
	}
	return rows, rest
}

func unresolvedRows(problems []admin.ObjectProblem) (rows []Lost) {
	for _, problem := range problems {
		rows = append(rows, Lost{
			Key: problem.Key(), Source: problem.Source, Place: problem.Place, Reason: problem.Message,
			Serves: "the object; such requests fail",
		})
	}
	return rows
}
