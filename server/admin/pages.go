package admin

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"tributary/aggregate/conflicts"
	"tributary/sources"
)

// Page is an entry of the index at /debug/: a path that the server answers.
type Page struct {
	Path       string      `json:"path"`
	Method     string      `json:"method"` // GET, or POST for changes
	About      string      `json:"about"`
	Parameters []Parameter `json:"parameters,omitempty"` // query parameters

	handler http.Handler
}

// Parameter is a query parameter of a page.
type Parameter struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Required bool   `json:"needed,omitempty"`
}

// pattern returns the path as a pattern of http.ServeMux. That of the index matches no path below it.
func (p *Page) pattern() string {
	if p.Path == indexPath {
		return p.Path + "{$}"
	}
	return p.Path
}

// Pages returns the pages for GET requests.
func (s *Server) Pages() []Page {
	return slices.DeleteFunc(s.allPages(), func(page Page) bool { return page.Method != http.MethodGet })
}

// isHidden reports whether the options hide a path.
func (s *Server) isHidden(path string) bool {
	return s.opts.NoDebug && strings.HasPrefix(path, "/debug/") ||
		s.opts.NoProfiles && strings.HasPrefix(path, "/debug/pprof/")
}

const indexPath = "/debug/"

// allPages returns the pages for GET requests, and then those for changes.
func (s *Server) allPages() (pages []Page) {
	addPage := func(path, about string, handler http.Handler, parameters ...Parameter) {
		pages = append(pages, Page{path, http.MethodGet, about, parameters, handler})
	}
	optional := func(name, about string) Parameter { return Parameter{Name: name, About: about} }
	required := func(name, about string) Parameter { return Parameter{Name: name, About: about, Required: true} }
	const kindAbout = "a kind, by any of its names, such as se"

	addPage("/-/healthy", "200 while the process answers", handler(s.healthy))
	addPage("/-/ready", "200 once every required source was read; before that 503 and the sources that are missing",
		handler(s.ready))
	addPage("/metrics", "metrics in Prometheus format", s.metrics())
	addPage(indexPath, "this list of pages and their parameters", valuePage(s.allPages))
	addPage("/debug/status", "sources, clients, holds, findings and problems on one page", valuePage(s.Status))
	addPage("/debug/explain",
		"which source an object or a host comes from, and why it is served as it is; needs host, or kind and name",
		handler(s.explain),
		optional("kind", kindAbout), optional("namespace", "of the object; empty for an object without one"),
		optional("name", "of the object"),
		optional("host", "a host, an IP address, or a name in a registry"))
	addPage("/debug/configz", "the objects that are served, in the format of istiod's /debug/configz",
		handler(s.configz), optional("kind", kindAbout))
	addPage("/debug/seen", "when each object of a kind was first seen here",
		handler(s.firstSeen), required("kind", kindAbout))
	addPage("/debug/clients", "the clients with the versions that each was sent, acknowledged and rejected",
		listPage(s.clientEntries))
	addPage("/debug/syncz", "the same in the format of istiod's /debug/syncz", listPage(s.syncz))
	addPage("/debug/config_dump", "the configuration that an Envoy was sent, in the format of its config_dump",
		handler(s.configDump),
		required("proxyID", "the node id of an Envoy that is connected"),
		optional("include_eds", "with its endpoints; takes no value"))
	addPage("/debug/sources", "the sources and their state",
		valuePage(func() any { return append([]sources.Status{}, s.opts.Sources.Status()...) }))
	addPage("/debug/quarantine", "invalid objects and documents, which are not served", valuePage(s.Quarantined))
	addPage("/debug/rejected", "the 100 resources that most addresses reject, with the clients' errors and the objects "+
		"that changed since they were last acknowledged",
		valuePage(s.rejectedList))
	addPage("/debug/unresolved",
		"references to objects that do not exist, and unserved parts of objects of the Gateway API",
		valuePage(s.ObjectProblems))
	addPage("/debug/no-effect", "settings of objects that Envoys and gRPC clients ignore", valuePage(s.noEffect))
	addPage("/debug/guard", "losses on hold, until the objects are back or POST /-/guard/release",
		valuePage(s.HeldSources))
	addPage("/debug/conflicts",
		"objects that several sources or places have, and entries that cannot be merged: which one is served",
		valuePage(s.conflictEntries))
	addPage("/debug/competing", "hosts and workloads claimed by several objects, and the effect in istiod",
		valuePage(func() any { return append([]conflicts.Conflict{}, s.opts.View.Competing()...) }))
	addPage("/debug/expected", "the configuration that an Envoy should have now, in the format of its config_dump, and "+
		"the resources that it rejects",
		handler(s.expected),
		required("node", "the Envoy's node as JSON, as in its bootstrap"),
		optional("delta", "the Envoy uses delta xDS; takes no value"))
	encodedParameter := optional("encoded", "true: specs as protobuf in base64 (body) instead of JSON (spec)")
	addPage("/debug/history", "changes of what is served", handler(s.history),
		optional("kind", kindAbout), optional("namespace", "of the objects"), optional("name", "of the objects"),
		optional("source", "the name of the source that changed it"),
		optional("since", "a time such as 2006-01-02T15:04:05Z"),
		optional("limit", "how many of the newest changes; default 1000"),
		optional("details", "true: with each object before and after the change"), encodedParameter)
	addPage("/debug/history/at", "the objects that were served at a time", handler(s.historyAt),
		optional("time", "such as 2006-01-02T15:04:05Z; default now"), optional("kind", kindAbout), encodedParameter)
	addPage("/debug/pprof/", "profiles of the process", http.HandlerFunc(pprof.Index))

	addChange := func(path, about string, change handler, parameters ...Parameter) {
		parameters = append(parameters, optional("by", "the name of the user, for the log"))
		pages = append(pages, Page{path, http.MethodPost, about, parameters, change})
	}
	addChange("/-/reload", "read the configuration file again", s.reload)
	addChange("/-/guard/release", "end the hold of a source: its losses take effect", s.release,
		required("source", "the name of the source"),
		optional("hold", "only if the current hold has this ID, as in /debug/guard"))
	addChange("/-/clients/kick", "end the streams of a client, so that it reconnects", s.kick,
		required("node", "the node ID"))
	addChange("/-/log-level", "change the lowest level that is logged, until the process ends", s.logLevel,
		required("level", "debug, info, warn or error"))
	return slices.DeleteFunc(pages, func(page Page) bool { return s.isHidden(page.Path) })
}
