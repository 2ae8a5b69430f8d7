package admin

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"tributary/aggregate/conflicts"
	"tributary/resource"
	"tributary/server/xds"
)

// Rejected is a resource that clients reject. Version, Error and what follows are those of the client that has rejected it for longest.
type Rejected struct {
	TypeURL  string    `json:"type_url"`
	Resource string    `json:"resource,omitempty"` // empty if it is not known which one
	Version  string    `json:"version,omitempty"`
	Error    string    `json:"error"`
	Node     string    `json:"node"`
	Peer     string    `json:"peer"`
	Since    time.Time `json:"since"`
	Clients  int       `json:"clients"`
	// Fallback describes what that client is sent instead; empty if it keeps what it accepted before.
	Fallback string `json:"fallback,omitempty"`
	// UnenforcedNode is the client that has not had the current policies for longest, and UnenforcedSince is since when; empty if all have.
	UnenforcedNode  string    `json:"unenforced_node,omitempty"`
	UnenforcedSince time.Time `json:"unenforced_since,omitzero"`
	// Acked is the version that the client acknowledged before; empty if it has acknowledged none on this connection.
	Acked string `json:"acked,omitempty"`
	// Changed are the objects of which the resource is made and that changed since the client last acknowledged it; all of which it is made,
	// if it has acknowledged nothing.
	Changed []conflicts.Ref `json:"changed"`
	// Incomplete says that there may be more: the client last acknowledged the resource too long ago, or not on this connection.
	Incomplete bool `json:"incomplete,omitempty"`

	collection *xds.Collection
	rejection  xds.Rejection
	hosts      map[string]struct{} // the addresses of its clients
}

// maxRejected is how many rejected resources are listed.
const maxRejected = 100

// rejected returns resources that clients reject, those that most addresses reject first, and how many more there are. Of those that
// equally many reject, addresses and then the connections of each take turns, what each has rejected for longest first. The list is not
// nil.
func (s *Server) rejected() (list []Rejected, more int) {
	type id struct{ typeURL, name string }
	found := make(map[id]*Rejected)
	for c := range s.opts.Clients.EachClient() {
		for _, t := range c.Types {
			for _, r := range t.Rejected {
				key := id{t.TypeURL, r.Name}
				one := found[key]
				if one == nil {
					one = &Rejected{Since: r.Since, hosts: make(map[string]struct{})}
					found[key] = one
				}
				clients, node, since := one.Clients+1, one.UnenforcedNode, one.UnenforcedSince
				if u := r.UnenforcedSince; !u.IsZero() && (since.IsZero() || u.Before(since)) {
					node, since = ClientName(c.Node.GetId(), c.Peer), u
				}
				one.hosts[hostOf(c.Peer)] = struct{}{}
				if clients == 1 || r.Since.Before(one.Since) {
					*one = Rejected{
						TypeURL: t.TypeURL, Resource: r.Name, Version: r.Version, Error: r.Error, Node: c.Node.GetId(), Peer: c.Peer, Since: r.Since,
						Acked: r.Acked, Fallback: r.Fallback, collection: t.Collection, rejection: r, hosts: one.hosts,
					}
				}
				one.Clients, one.UnenforcedNode, one.UnenforcedSince = clients, node, since
			}
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b *Rejected) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Resource, b.Resource))
	})
	takeTurns(all, func(peer string) string { return peer })
	takeTurns(all, hostOf)
	slices.SortStableFunc(all, func(a, b *Rejected) int { return cmp.Compare(len(b.hosts), len(a.hosts)) })
	list = []Rejected{}
	for _, r := range all[:min(len(all), maxRejected)] {
		r.Changed, r.Incomplete = s.changed(r)
		list = append(list, *r)
	}
	return list, len(all) - len(list)
}

// takeTurns orders rejections so that the first one of each client, which its peer's address tells, comes before the second one of any.
func takeTurns(all []*Rejected, client func(peer string) string) {
	count, rank := make(map[string]int), make(map[*Rejected]int)
	for _, r := range all {
		rank[r] = count[client(r.Peer)]
		count[client(r.Peer)]++
	}
	slices.SortStableFunc(all, func(a, b *Rejected) int { return cmp.Compare(rank[a], rank[b]) })
}

// hostOf returns the IP address of a peer.
func hostOf(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

// changed returns the objects of which a rejected resource is made and that changed since the client last acknowledged it, and whether
// there may be more.
func (s *Server) changed(r *Rejected) (all []conflicts.Ref, incomplete bool) {
	all = []conflicts.Ref{}
	if schema, ok := resource.SchemaByTypeURL(r.TypeURL); ok { // the resource is the object
		if r.Resource == "" {
			return all, true
		}
		namespace, name, found := strings.Cut(r.Resource, "/")
		if !found {
			namespace, name = "", r.Resource
		}
		return append(all, conflicts.Ref{Kind: schema.Kind, Namespace: namespace, Name: name}), false
	}
	if s.opts.ChangedSince == nil {
		return all, true
	}
	keys, complete := s.opts.ChangedSince(r.collection, r.rejection)
	for _, key := range keys {
		all = append(all, conflicts.Ref(key))
	}
	return all, !complete || r.rejection.Revision == 0
}

// rejectedWith returns the rejected resources for which an object may be to blame.
func (s *Server) rejectedWith(key resource.Key) (some []Rejected) {
	all, _ := s.rejected()
	for _, r := range all {
		if slices.Contains(r.Changed, conflicts.Ref(key)) {
			some = append(some, r)
		}
	}
	return some
}

// What names the resource by its type, such as RouteConfiguration 80.
func (r *Rejected) What() string {
	kind := r.TypeURL[strings.LastIndexAny(r.TypeURL, "./")+1:]
	return strings.TrimSpace(kind + " " + r.Resource)
}

// maxCauses is how many objects are named in one line.
const maxCauses = 5

// Causes says in one line what the client has instead, if that is a fallback, and which objects may be to blame.
func (r *Rejected) Causes() string {
	switch causes := r.causes(); {
	case r.UnenforcedNode != "":
		return "policies of " + r.UnenforcedNode + " are not in force since " + r.UnenforcedSince.UTC().Format(time.RFC3339) + "; " + causes
	case r.Fallback != "":
		return "it has " + r.Fallback + "; " + causes
	default:
		return causes
	}
}

func (r *Rejected) causes() string {
	var names []string
	for _, o := range r.Changed[:min(len(r.Changed), maxCauses)] {
		names = append(names, o.Key().String())
	}
	if len(r.Changed) > maxCauses {
		names = append(names, "others")
	}
	text := strings.Join(names, ", ")
	switch {
	case r.Acked == "" && text != "":
		return "the client has acknowledged no version of it; it is made of " + text
	case r.Acked == "":
		return "the client has acknowledged no version of it"
	case text == "" && r.Incomplete:
		return "what changed since the client last acknowledged it is not known"
	case text == "":
		return "no object of it changed since the client last acknowledged it"
	case r.Incomplete:
		return "changed since the client last acknowledged it: " + text + ", and perhaps others earlier"
	}
	return "changed since the client last acknowledged it: " + text
}
