package admin

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
)

// Page is what is found at a path.
type Page struct {
	Path       string      `json:"path"`
	Method     string      `json:"method"` // GET, or POST for what changes something
	About      string      `json:"about"`
	Parameters []Parameter `json:"parameters,omitempty"` // of the query

	handler http.Handler
}

// Parameter is one of the query of a page.
type Parameter struct {
	Name  string `json:"name"`
	About string `json:"about"`
	// Needed says that the page is nothing without it.
	Needed bool `json:"needed,omitempty"`
}

// pattern is the path as a mux has it.
func (p *Page) pattern() string {
	if p.Path == indexPath {
		return p.Path + "{$}"
	}
	return p.Path
}

// Pages are those that there are to read.
func (s *Server) Pages() []Page {
	return slices.DeleteFunc(s.allPages(), func(p Page) bool { return s.leftOut(p.Path) })
}

func (s *Server) leftOut(path string) bool {
	return s.opts.NoDebug && strings.HasPrefix(path, "/debug/") || s.opts.NoProfiles && strings.HasPrefix(path, "/debug/pprof/")
}

const indexPath = "/debug/"

// index is everything that can be asked.
func (s *Server) index() any { return append(s.Pages(), s.changes()...) }

func (s *Server) allPages() []Page {
	var all []Page
	add := func(path, about string, handler http.Handler, parameters ...Parameter) {
		all = append(all, Page{path, http.MethodGet, about, parameters, handler})
	}
	optional := func(name, about string) Parameter { return Parameter{Name: name, About: about} }
	needed := func(name, about string) Parameter { return Parameter{name, about, true} }
	const aKind = "a kind, by any of its names, such as se"

	add("/-/healthy", "200 as long as the process answers", http.HandlerFunc(s.healthy))
	add("/-/ready", "200 if everything was read once; otherwise 503 and what is missing", http.HandlerFunc(s.ready))
	add("/metrics", "metrics in the format of Prometheus", s.metrics())
	add(indexPath, "this list: what can be asked, and with which parameters", s.json(s.index))
	add("/debug/status", "the whole on one page", s.json(func() any { return s.Status() }))
	add("/debug/explain", "why an object, or what is said of a host, is what it is: host is needed, or kind and name",
		http.HandlerFunc(s.explain),
		optional("kind", aKind), optional("namespace", "of the object; none for an object that has none"), optional("name", "of the object"),
		optional("host", "a host, an IP address, or a name in a registry"))
	add("/debug/configz", "the objects that are served, in istiod's form", http.HandlerFunc(s.configz), optional("kind", aKind))
	add("/debug/seen", "when each object of a kind was first seen here", http.HandlerFunc(s.seen), needed("kind", aKind))
	add("/debug/clients", "the clients, and what each was sent, acknowledged and rejected", s.list(s.clients))
	add("/debug/syncz", "the same in istiod's form", s.list(s.syncz))
	add("/debug/connections", "the clients in istiod's form", http.HandlerFunc(s.connections))
	proxy := needed("proxyID", "the node id of an Envoy that is connected")
	add("/debug/config_dump", "what an Envoy was sent, in the form of its config_dump", http.HandlerFunc(s.configDump), proxy,
		optional("include_eds", "with its endpoints, too; it has no value"))
	add("/debug/clusters", "the endpoints that an Envoy was sent, in the form of its /clusters?format=json", http.HandlerFunc(s.clusters),
		proxy)
	add("/debug/list", "the pages that istioctl x internal-debug can ask for over xDS", s.json(func() any { return toolPages }))
	add("/debug/sources", "the sources and their condition", s.json(s.sources))
	add("/debug/quarantine", "what is not served because it is not valid", s.json(func() any { return s.Quarantined() }))
	add("/debug/rejected", "the 100 resources that most addresses reject, in whose words, and which objects changed since they were last "+
		"acknowledged",
		s.json(func() any { list, _ := s.rejected(); return list }))
	add("/debug/no-effect", "what of the objects has no effect on Envoys and gRPC clients", s.json(s.noEffect))
	add("/debug/guard", "the losses that are held back, until they are back or POST /-/guard/release",
		s.json(func() any { return s.Guarded() }))
	add("/debug/conflicts", "what is not served because something else has its key", s.json(s.conflicts))
	add("/debug/competing", "hosts claimed by several objects, and what istiod does", s.json(s.competing))
	add("/debug/verify", "what the istiods and Envoys of the configuration do not have as it is served", s.json(s.verified))
	add("/debug/expected", "the configuration that an Envoy should have now, in the form of its config_dump, and what it rejects", http.HandlerFunc(s.expected),
		needed("node", "its node, as JSON, such as that of its bootstrap"), optional("delta", "it asks by delta; it has no value"))
	encoded := optional("encoded", "true for specs as protobuf in base64 (body), and not as JSON (spec)")
	add("/debug/history", "what changed", http.HandlerFunc(s.history),
		optional("kind", aKind), optional("namespace", "of the objects"), optional("name", "of the objects"),
		optional("source", "the name of that which did it"),
		optional("since", "a time such as 2006-01-02T15:04:05Z"), optional("limit", "only the newest so many; 1000 if it is not given"),
		optional("details", "true for what the objects were before and after"), encoded)
	add("/debug/history/at", "the objects that were served at a time", http.HandlerFunc(s.historyAt),
		optional("time", "such as 2006-01-02T15:04:05Z; now if it is not given"), optional("kind", aKind), encoded)
	add("/debug/pprof/", "profiles of the process", http.HandlerFunc(pprof.Index))
	return all
}

// changes are what changes something.
func (s *Server) changes() []Page {
	by := Parameter{Name: "by", About: "who asks, for the log"}
	all := []Page{
		{"/-/reload", http.MethodPost, "read the configuration file again", []Parameter{by}, http.HandlerFunc(s.reload)},
		{"/-/guard/release", http.MethodPost, "let a source lose what is held of it", []Parameter{
			{"source", "its name", true}, {Name: "hold", About: "only if it is this hold, which /debug/guard names"}, by,
		}, http.HandlerFunc(s.release)},
	}
	if s.opts.Upgrade != nil {
		all = append(all, Page{upgradePath, http.MethodPost, "have the program that is now where this one came from take over", []Parameter{
			by, {Name: "within", About: "how long that may take, such as 90s; 2m if it is not given"},
		}, http.HandlerFunc(s.upgrade)})
	}
	return all
}
