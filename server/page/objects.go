package page

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/memstore"
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
	// Picture draws the way of a request, if the filter is a host.
	Picture []string
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
	Kind, Namespace, Name string
	Link                  string
	Source, Place         string
	Marks                 []Mark
}

// Mark is a label of an object.
type Mark struct{ Class, Text string }

// Lost is a row of the quarantined, held or unresolved objects.
type Lost struct {
	Name    string // of the object, or where it is
	Link    string // or empty
	Source  string
	Place   string
	Reason  string
	Serves  string // in its place
	Started time.Time
}

// rowFacts has the data of the rows.
type rowFacts struct {
	snapshot    memstore.Snapshot
	shadows     map[resource.Key][]string // the sources that lose
	quarantined []admin.Quarantined
	guarded     []admin.Guarded
	unresolved  []admin.ObjectProblem
	held        func(resource.Key) bool
	speakOf     func(host string) []resource.Key
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

func objectsPanel(status *admin.Status, facts rowFacts, query pageQuery) Objects {
	panel := Objects{Filter: query.filter, Kind: string(query.kind), Show: query.show, Tabs: newTabs(status, query)}
	for _, kind := range slices.Sorted(maps.Keys(status.Kinds)) {
		panel.Kinds = append(panel.Kinds, Choice{
			string(kind), fmt.Sprintf("%s (%d)", kind, status.Kinds[kind]),
			kind == query.kind,
		})
	}
	terms := strings.Fields(strings.ToLower(query.filter))
	switch query.show {
	case showQuarantined:
		panel.quarantined(facts, query, terms)
	case showHeld:
		panel.held(facts, query, terms)
	case showUnresolved:
		panel.unresolved(facts, query, terms)
	default:
		panel.served(facts, query, terms)
	}
	return panel
}

func newTabs(status *admin.Status, query pageQuery) []Tab {
	held := 0
	for _, source := range status.Sources {
		if source.Hold != nil {
			held += source.Hold.Objects + source.Hold.Endpoints
		}
	}
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
func (o *Objects) served(facts rowFacts, query pageQuery, terms []string) {
	objects := facts.snapshot.All()
	if query.kind != "" {
		objects = facts.snapshot.List(query.kind, "")
	}
	if query.show == showShadowed {
		objects = inKeys(objects, facts.shadows)
	}
	byHost := make(map[resource.Key]bool)
	if len(terms) == 1 && strings.Contains(terms[0], ".") {
		for _, key := range facts.speakOf(terms[0]) {
			byHost[key] = true
		}
	}
	var selected []*resource.Resource
	for object := range objects {
		if len(terms) == 0 || byHost[object.Key()] ||
			matches(terms, object.Key(), object.Origin().Source, object.Origin().Place) {
			selected = append(selected, object)
		}
	}
	o.Pager = newPager(query, "objects", query.page, len(selected))
	quarantined := make(map[resource.Key]bool)
	for _, rejected := range facts.quarantined {
		quarantined[rejected.Key()] = true
	}
	for _, object := range selected[o.Pager.from:o.Pager.to] {
		key, origin := object.Key(), object.Origin()
		row := Object{
			Kind: string(key.Kind), Namespace: key.Namespace, Name: key.Name, Link: query.withObject(key).link("object"),
			Source: origin.Source,
			Place:  origin.Place,
		}
		if losers := facts.shadows[key]; len(losers) > 0 {
			row.Marks = append(row.Marks, Mark{idle, "wins over " + strings.Join(losers, ", ")})
		}
		if quarantined[key] {
			row.Marks = append(row.Marks, Mark{bad, "newer one is quarantined"})
		}
		if facts.held(key) {
			row.Marks = append(row.Marks, Mark{warns, "loss is held"})
		}
		if origin.Rules != "" {
			row.Marks = append(row.Marks, Mark{idle, "transformed"})
		}
		o.Rows = append(o.Rows, row)
	}
}

func inKeys(objects iter.Seq[*resource.Resource], keys map[resource.Key][]string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for object := range objects {
			if _, present := keys[object.Key()]; present && !yield(object) {
				return
			}
		}
	}
}

func (o *Objects) quarantined(facts rowFacts, query pageQuery, terms []string) {
	var selected []admin.Quarantined
	for _, rejected := range facts.quarantined {
		if (query.kind == "" || rejected.Kind == query.kind) &&
			(matches(terms, rejected.Key(), rejected.Source, rejected.Place) ||
				contains(rejected.Reason, strings.Join(terms, " "))) {
			selected = append(selected, rejected)
		}
	}
	o.Pager = newPager(query, "objects", query.page, len(selected))
	for _, rejected := range selected[o.Pager.from:o.Pager.to] {
		row := Lost{
			Name: "(cannot be told)", Source: rejected.Source, Place: rejected.Place, Reason: rejected.Reason,
			Serves: rejected.Serves(), Started: rejected.Since,
		}
		if rejected.Name != "" {
			row.Name, row.Link = rejected.Key().String(), query.withObject(rejected.Key()).link("object")
		}
		o.Lost = append(o.Lost, row)
	}
}

func (o *Objects) held(facts rowFacts, query pageQuery, terms []string) {
	var selected []Lost
	rest := 0
	for _, guarded := range facts.guarded {
		rest += guarded.More
		for _, held := range guarded.Held {
			key := held.Key()
			if (query.kind != "" && held.Kind != query.kind) || !matches(terms, key, guarded.Source, "") {
				continue
			}
			lost := "the source has less of it: " + countText(held.Endpoints, "endpoint", "endpoints") + " fewer"
			if held.Gone {
				lost = "the source no longer has it"
			}
			selected = append(selected, Lost{
				Name: key.String(), Link: query.withObject(key).link("object"), Source: guarded.Source, Reason: lost,
				Serves: "the previous version", Started: guarded.Since,
			})
		}
	}
	if rest > 0 {
		o.Remark = fmt.Sprintf("%d more are held: of each source, the first are listed.", rest)
	}
	o.Pager = newPager(query, "objects", query.page, len(selected))
	o.Lost = selected[o.Pager.from:o.Pager.to]
}

func (o *Objects) unresolved(facts rowFacts, query pageQuery, terms []string) {
	var rows []Lost
	for index := range facts.unresolved {
		problem := &facts.unresolved[index]
		key := problem.Key()
		if (query.kind == "" || key.Kind == query.kind) && (matches(terms, key, problem.Source, problem.Place) ||
			contains(problem.Message, strings.Join(terms, " "))) {
			rows = append(rows, Lost{
				Name: key.String(), Link: query.withObject(key).link("object"), Source: problem.Source, Place: problem.Place,
				Reason: problem.Message, Serves: "the object; such requests fail",
			})
		}
	}
	o.Pager = newPager(query, "objects", query.page, len(rows))
	o.Lost = rows[o.Pager.from:o.Pager.to]
}
