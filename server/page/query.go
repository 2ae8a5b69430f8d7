package page

import (
	"net/url"
	"strconv"
	"strings"

	"tributary/internal/words"
	"tributary/resource"
)

// What of the objects is shown.
const (
	showAll         = "all"
	showShadowed    = "shadowed"
	showQuarantined = "quarantined"
	showHeld        = "held"
	showUnresolved  = "unresolved"
)

// perPage is how many rows a page of a table has.
const perPage = 50

// longestFilter is as much of a filter as is looked for.
const longestFilter = 200

// query is what a browser asks to see.
type query struct {
	filter  string
	kind    resource.Kind // or empty
	show    string
	object  resource.Key // or zero
	page    int          // of the objects, from 1
	clients int          // the page of the clients, from 1
	client  string       // part of a node ID, address or identity
	age     string       // of windows
	change  string       // time and key of the open change
}

// parse reads a query. What makes no sense is as if it were not there: it came from an address that somebody typed.
func parse(v url.Values) query {
	q := query{filter: strings.TrimSpace(v.Get("q")), show: showAll, page: number(v.Get("page")), clients: number(v.Get("clients"))}
	if len(q.filter) > longestFilter {
		q.filter = strings.TrimSpace(strings.ToValidUTF8(q.filter[:longestFilter], ""))
	}
	if schema, ok := resource.SchemaByName(v.Get("kind")); ok {
		q.kind = schema.Kind
	}
	q.client = strings.TrimSpace(v.Get("client"))
	if len(q.client) > longestFilter {
		q.client = strings.ToValidUTF8(q.client[:longestFilter], "")
	}
	q.change, q.age = v.Get("change"), windows[0].age
	for _, window := range windows {
		if window.age == v.Get("since") {
			q.age = window.age
		}
	}
	switch show := v.Get("show"); show {
	case showShadowed, showQuarantined, showHeld, showUnresolved:
		q.show = show
	}
	if parts := strings.SplitN(v.Get("object"), "/", 3); len(parts) == 3 {
		if schema, ok := resource.SchemaByName(parts[0]); ok && parts[2] != "" {
			q.object = resource.Key{Kind: schema.Kind, Namespace: parts[1], Name: parts[2]}
		}
	}
	return q
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// link is the address of the page that shows q.
func (q query) link(anchor string) string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("q", q.filter)
	set("kind", string(q.kind))
	if q.show != showAll {
		set("show", q.show)
	}
	if q.object != (resource.Key{}) {
		set("object", string(q.object.Kind)+"/"+q.object.Namespace+"/"+q.object.Name)
	}
	if q.age != windows[0].age {
		set("since", q.age)
	}
	set("change", q.change)
	set("client", q.client)
	if q.page > 1 {
		set("page", strconv.Itoa(q.page))
	}
	if q.clients > 1 {
		set("clients", strconv.Itoa(q.clients))
	}
	link := "/"
	if len(v) > 0 {
		link += "?" + v.Encode()
	}
	return link + "#" + anchor
}

func (q query) showing(show string) query {
	q.show, q.page, q.object = show, 1, resource.Key{}
	return q
}
func (q query) of(key resource.Key) query { q.object = key; return q }

// Pager leads through the pages of a table.
type Pager struct {
	From, To, Total int // what is shown, from 1; To is zero if nothing is
	Page, Pages     int
	First, Previous string // addresses, or empty
	Next, Last      string
	from, to        int // the same as a slice has it
}

// newPager is for a table of some rows. A page behind the last is the last.
func newPager(q query, table string, page, total int) Pager {
	p := Pager{Total: total, Pages: max((total+perPage-1)/perPage, 1)}
	p.Page = min(max(page, 1), p.Pages)
	p.from = (p.Page - 1) * perPage
	p.to = min(p.from+perPage, total)
	if p.to > p.from {
		p.From, p.To = p.from+1, p.to
	}
	to := func(n int) string {
		if table == "clients" {
			q.clients = n
		} else {
			q.page = n
		}
		return q.link(table)
	}
	if p.Page > 1 {
		p.First, p.Previous = to(1), to(p.Page-1)
	}
	if p.Page < p.Pages {
		p.Next, p.Last = to(p.Page+1), to(p.Pages)
	}
	return p
}

func count(n int, one, many string) string { return words.Count(n, one, many) }
