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

// Objects is the panel of what is served, and of what is not.
type Objects struct {
	Filter string
	Kind   string
	Show   string
	Kinds  []Choice
	Tabs   []Tab
	Rows   []Object
	Lost   []Lost // in quarantine, or held
	More   string // what is not in the table
	Pager  Pager
	// Picture draws the way of a request, if the filter is a host.
	Picture []string
}

// Choice is a kind to choose.
type Choice struct {
	Name   string
	Text   string
	Chosen bool
}

// Tab is a part of the objects.
type Tab struct {
	Name, Link string
	Count      int
	Class      string
	Chosen     bool
}

// Object is a row: something that is served.
type Object struct {
	Kind, Namespace, Name string
	Link                  string
	Source, Place         string
	Marks                 []Mark
}

// Mark is something that is to be known of an object.
type Mark struct{ Class, Text string }

// Lost is a row of what is in quarantine, or of which a loss is held.
type Lost struct {
	Name   string // of the object, or where it is
	Link   string // or empty
	Source string
	Place  string
	Reason string
	Serves string // in its place
	Since  time.Time
}

// facts are what the rows are made of.
type facts struct {
	snapshot    memstore.Snapshot
	shadows     map[resource.Key][]string // the sources that lose
	quarantined []admin.Quarantined
	guarded     []admin.Guarded
	unresolved  []admin.ObjectProblem
	held        func(resource.Key) bool
	speakOf     func(host string) []resource.Key
}

// matches reports whether an object of a kind, of a source, is looked for. All words have to be found.
func matches(terms []string, key resource.Key, source, place string) bool {
	for _, t := range terms {
		if !contains(key.Name, t) && !contains(key.Namespace, t) && !contains(string(key.Kind), t) && !contains(source, t) &&
			!contains(place, t) &&
			(!strings.Contains(t, "/") || !contains(key.FullName(), t)) {
			return false
		}
	}
	return true
}

// contains reports whether text contains a word in lower case, without making a copy of most texts.
func contains(text, lower string) bool {
	return strings.Contains(text, lower) || strings.Contains(strings.ToLower(text), lower)
}

func objectsOf(st *admin.Status, f facts, q query) Objects {
	o := Objects{Filter: q.filter, Kind: string(q.kind), Show: q.show, Tabs: tabsOf(st, q)}
	for _, kind := range slices.Sorted(maps.Keys(st.Kinds)) {
		o.Kinds = append(o.Kinds, Choice{string(kind), fmt.Sprintf("%s (%d)", kind, st.Kinds[kind]), kind == q.kind})
	}
	terms := strings.Fields(strings.ToLower(q.filter))
	switch q.show {
	case showQuarantined:
		o.quarantined(f, q, terms)
	case showHeld:
		o.held(f, q, terms)
	case showUnresolved:
		o.unresolved(f, q, terms)
	default:
		o.served(f, q, terms)
	}
	return o
}

func tabsOf(st *admin.Status, q query) []Tab {
	held := 0
	for _, s := range st.Sources {
		if s.Hold != nil {
			held += s.Hold.Objects + s.Hold.Endpoints
		}
	}
	tab := func(show, name string, n int, class string) Tab {
		if n == 0 {
			class = ""
		}
		return Tab{name, q.showing(show).link("objects"), n, class, q.show == show}
	}
	return []Tab{
		tab(showAll, "Served", st.Objects, ""), tab(showShadowed, "In several sources", st.Conflicts.Shadowed, ""),
		tab(showQuarantined, "Quarantined", st.Quarantined, bad), tab(showHeld, "Held", held, warns),
		tab(showUnresolved, "Lead nowhere", st.UnresolvedCount, bad),
	}
}

// served fills in a page of what is served. It looks at each object once, and keeps those of the page alone.
func (o *Objects) served(f facts, q query, terms []string) {
	all := f.snapshot.All()
	if q.kind != "" {
		all = f.snapshot.List(q.kind, "")
	}
	if q.show == showShadowed {
		all = having(all, f.shadows)
	}
	named := make(map[resource.Key]bool)
	if len(terms) == 1 && strings.Contains(terms[0], ".") {
		for _, key := range f.speakOf(terms[0]) {
			named[key] = true
		}
	}
	var found []*resource.Resource
	for r := range all {
		if len(terms) == 0 || named[r.Key()] || matches(terms, r.Key(), r.Origin().Source, r.Origin().Place) {
			found = append(found, r)
		}
	}
	o.Pager = newPager(q, "objects", q.page, len(found))
	quarantined := make(map[resource.Key]bool)
	for _, one := range f.quarantined {
		quarantined[one.Key()] = true
	}
	for _, r := range found[o.Pager.from:o.Pager.to] {
		key, origin := r.Key(), r.Origin()
		row := Object{
			Kind: string(key.Kind), Namespace: key.Namespace, Name: key.Name, Link: q.of(key).link("object"), Source: origin.Source,
			Place: origin.Place,
		}
		if losers := f.shadows[key]; len(losers) > 0 {
			row.Marks = append(row.Marks, Mark{idle, "wins over " + strings.Join(losers, ", ")})
		}
		if quarantined[key] {
			row.Marks = append(row.Marks, Mark{bad, "newer one is quarantined"})
		}
		if f.held(key) {
			row.Marks = append(row.Marks, Mark{warns, "loss is held"})
		}
		if origin.Rules != "" {
			row.Marks = append(row.Marks, Mark{idle, "transformed"})
		}
		o.Rows = append(o.Rows, row)
	}
}

func having(all iter.Seq[*resource.Resource], keys map[resource.Key][]string) iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for r := range all {
			if _, has := keys[r.Key()]; has && !yield(r) {
				return
			}
		}
	}
}

func (o *Objects) quarantined(f facts, q query, terms []string) {
	var found []admin.Quarantined
	for _, one := range f.quarantined {
		if (q.kind == "" || one.Kind == q.kind) && (matches(terms, one.Key(), one.Source, one.Place) ||
			contains(one.Reason, strings.Join(terms, " "))) {
			found = append(found, one)
		}
	}
	o.Pager = newPager(q, "objects", q.page, len(found))
	for _, one := range found[o.Pager.from:o.Pager.to] {
		row := Lost{Name: "(cannot be told)", Source: one.Source, Place: one.Place, Reason: one.Reason, Serves: one.Serves(), Since: one.Since}
		if one.Name != "" {
			row.Name, row.Link = one.Key().String(), q.of(one.Key()).link("object")
		}
		o.Lost = append(o.Lost, row)
	}
}

func (o *Objects) held(f facts, q query, terms []string) {
	var found []Lost
	more := 0
	for _, g := range f.guarded {
		more += g.More
		for _, h := range g.Held {
			key := h.Key()
			if (q.kind != "" && h.Kind != q.kind) || !matches(terms, key, g.Source, "") {
				continue
			}
			lost := "the source has less of it: " + count(h.Endpoints, "endpoint", "endpoints") + " fewer"
			if h.Gone {
				lost = "the source no longer has it"
			}
			found = append(found, Lost{
				Name: key.String(), Link: q.of(key).link("object"), Source: g.Source, Reason: lost, Serves: "what there was before", Since: g.Since,
			})
		}
	}
	if more > 0 {
		o.More = fmt.Sprintf("%d more are held: of each source, the first are listed.", more)
	}
	o.Pager = newPager(q, "objects", q.page, len(found))
	o.Lost = found[o.Pager.from:o.Pager.to]
}

func (o *Objects) unresolved(f facts, q query, terms []string) {
	var rows []Lost
	for i := range f.unresolved {
		problem := &f.unresolved[i]
		key := problem.Key()
		if (q.kind == "" || key.Kind == q.kind) && (matches(terms, key, problem.Source, problem.Place) ||
			contains(problem.Message, strings.Join(terms, " "))) {
			rows = append(rows, Lost{
				Name: key.String(), Link: q.of(key).link("object"), Source: problem.Source, Place: problem.Place,
				Reason: problem.Message, Serves: "the object; such requests fail",
			})
		}
	}
	o.Pager = newPager(q, "objects", q.page, len(rows))
	o.Lost = rows[o.Pager.from:o.Pager.to]
}
