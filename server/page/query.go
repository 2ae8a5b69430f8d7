package page

import (
	"net/url"
	"strconv"
	"strings"

	"tributary/resource"
)

// The tabs of the objects.
const (
	showAll         = "all"
	showShadowed    = "shadowed"
	showQuarantined = "quarantined"
	showHeld        = "held"
	showUnresolved  = "unresolved"
)

// rowsPerPage is the number of rows in a page of a table.
const rowsPerPage = 50

// maxFilterBytes limits the bytes of a filter.
const maxFilterBytes = 200

// pageQuery is the query of a page's address.
type pageQuery struct {
	filter  string        // the filter of the objects
	kind    resource.Kind // empty for all kinds
	show    string        // the tab of the objects
	object  resource.Key  // the object of the detail panel; zero without one
	page    int           // the page of the objects, from 1
	clients int           // the page of the clients, from 1
	client  string        // the filter of the clients
	age     string        // one of windows
	change  string        // time and key of the open change
}

// parseQuery reads a query. In place of invalid values, which people may type, it uses the defaults.
func parseQuery(values url.Values) pageQuery {
	filter := func(name string) string {
		text := strings.TrimSpace(values.Get(name))
		if len(text) > maxFilterBytes {
			text = strings.TrimSpace(strings.ToValidUTF8(text[:maxFilterBytes], ""))
		}
		return text
	}
	query := pageQuery{
		filter: filter("q"), client: filter("client"), show: showAll, change: values.Get("change"), age: windows[0].age,
		page: pageNumber(values.Get("page")), clients: pageNumber(values.Get("clients")),
	}
	if schema, ok := resource.SchemaByName(values.Get("kind")); ok {
		query.kind = schema.Kind
	}
	for _, window := range windows {
		if window.age == values.Get("since") {
			query.age = window.age
		}
	}
	switch show := values.Get("show"); show {
	case showShadowed, showQuarantined, showHeld, showUnresolved:
		query.show = show
	}
	if parts := strings.SplitN(values.Get("object"), "/", 3); len(parts) == 3 {
		if schema, ok := resource.SchemaByName(parts[0]); ok && parts[2] != "" {
			query.object = resource.Key{Kind: schema.Kind, Namespace: parts[1], Name: parts[2]}
		}
	}
	return query
}

func pageNumber(text string) int {
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		return 1
	}
	return number
}

// link returns the address of the page for the query.
func (q pageQuery) link(anchor string) string {
	values := url.Values{}
	setValue := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	setValue("q", q.filter)
	setValue("kind", string(q.kind))
	if q.show != showAll {
		setValue("show", q.show)
	}
	if q.object != (resource.Key{}) {
		setValue("object", string(q.object.Kind)+"/"+q.object.Namespace+"/"+q.object.Name)
	}
	if q.age != windows[0].age {
		setValue("since", q.age)
	}
	setValue("change", q.change)
	setValue("client", q.client)
	if q.page > 1 {
		setValue("page", strconv.Itoa(q.page))
	}
	if q.clients > 1 {
		setValue("clients", strconv.Itoa(q.clients))
	}
	link := "/"
	if len(values) > 0 {
		link += "?" + values.Encode()
	}
	return link + "#" + anchor
}

func (q pageQuery) withTab(show string) pageQuery {
	q.show, q.page, q.object = show, 1, resource.Key{}
	return q
}
func (q pageQuery) withObject(key resource.Key) pageQuery { q.object = key; return q }

// Pager has the links between the pages of a table.
type Pager struct {
	From, To, Total int // row numbers from 1; To is zero without rows
	Page, Pages     int
	First, Previous string // links; empty on the first page
	Next, Last      string // links; empty on the last page
	from, to        int    // slice indexes of these rows
}

// newPager returns the pager of a table, which is "objects" or "clients", with a number of rows. A page beyond the last
// one becomes the last.
func newPager(query pageQuery, table string, total int) Pager {
	page := &query.page
	if table == "clients" {
		page = &query.clients
	}
	pager := Pager{Total: total, Pages: max((total+rowsPerPage-1)/rowsPerPage, 1)}
	pager.Page = min(max(*page, 1), pager.Pages)
	pager.from = (pager.Page - 1) * rowsPerPage
	pager.to = min(pager.from+rowsPerPage, total)
	if pager.to > pager.from {
		pager.From, pager.To = pager.from+1, pager.to
	}
	address := func(number int) string {
		*page = number
		return query.link(table)
	}
	if pager.Page > 1 {
		pager.First, pager.Previous = address(1), address(pager.Page-1)
	}
	if pager.Page < pager.Pages {
		pager.Next, pager.Last = address(pager.Page+1), address(pager.Pages)
	}
	return pager
}
