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

// Rejected is a resource that clients reject. The fields from Version to Fallback, and the changes, are about the
// client with the oldest rejection.
type Rejected struct {
	TypeURL  string    `json:"type_url"`
	Resource string    `json:"resource,omitempty"` // empty if the client does not name it
	Version  string    `json:"version,omitempty"`
	Error    string    `json:"error"`
	Node     string    `json:"node"`
	Peer     string    `json:"peer"`
	Since    time.Time `json:"since"`
	Clients  int       `json:"clients"`
	Fallback string    `json:"fallback,omitempty"` // sent instead; empty if the client keeps its accepted version
	// UnenforcedNode is the client that is without the current policies for the longest time, since UnenforcedSince.
	UnenforcedNode  string    `json:"unenforced_node,omitempty"`
	UnenforcedSince time.Time `json:"unenforced_since,omitzero"`
	Acked           string    `json:"acked,omitempty"` // the version that the client acknowledged on this connection
	// Changed are the objects of the resource that changed since the acknowledgement; without one, all its objects.
	Changed    []conflicts.Ref `json:"changed"`
	Incomplete bool            `json:"incomplete,omitempty"` // Changed may lack objects: the acknowledgement is too old

	collection *xds.Collection
	rejection  xds.Rejection
	hosts      map[string]bool // the addresses of its clients
}

// maxRejected limits the listed resources.
const maxRejected = 100

// rejected returns the rejected resources, and the number of those beyond the limit. Resources of more addresses come
// first. Among equals, addresses and then their connections take turns, each with its oldest rejection first.
func (s *Server) rejected() (list []Rejected, unlisted int) {
	type resourceID struct{ typeURL, name string }
	resources := make(map[resourceID]*Rejected)
	for client := range s.opts.Clients.EachClient() {
		for _, subscription := range client.Types {
			for _, rejection := range subscription.Rejected {
				id := resourceID{subscription.TypeURL, rejection.Name}
				rejected := resources[id]
				if rejected == nil {
					rejected = &Rejected{
						TypeURL: id.typeURL, Resource: id.name, Changed: []conflicts.Ref{}, hosts: make(map[string]bool),
					}
					resources[id] = rejected
				}
				rejected.add(&client, subscription.Collection, rejection)
			}
		}
	}
	sorted := slices.SortedFunc(maps.Values(resources), func(a, b *Rejected) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TypeURL, b.TypeURL), cmp.Compare(a.Resource, b.Resource))
	})
	takeTurns(sorted, func(peer string) string { return peer })
	takeTurns(sorted, hostOf)
	slices.SortStableFunc(sorted, func(a, b *Rejected) int { return cmp.Compare(len(b.hosts), len(a.hosts)) })
	list = []Rejected{}
	for _, rejected := range sorted[:min(len(sorted), maxRejected)] {
		s.addChanged(rejected)
		list = append(list, *rejected)
	}
	return list, len(sorted) - len(list)
}

// add adds the rejection of a client.
func (r *Rejected) add(client *xds.ClientStatus, collection *xds.Collection, rejection xds.Rejection) {
	r.Clients++
	r.hosts[hostOf(client.Peer)] = true
	if start := rejection.UnenforcedSince; !start.IsZero() && (r.UnenforcedNode == "" || start.Before(r.UnenforcedSince)) {
		r.UnenforcedNode, r.UnenforcedSince = ClientName(client.Node.GetId(), client.Peer), start
	}
	if r.Clients == 1 || rejection.Since.Before(r.Since) {
		r.Version, r.Error, r.Since, r.Acked = rejection.Version, rejection.Error, rejection.Since, rejection.Acked
		r.Node, r.Peer, r.Fallback = client.Node.GetId(), client.Peer, rejection.Fallback
		r.collection, r.rejection = collection, rejection
	}
}

// takeTurns puts the first resource of each client before the second one of any. A function tells clients by the peer.
func takeTurns(list []*Rejected, client func(peer string) string) {
	counts, turn := make(map[string]int), make(map[*Rejected]int)
	for _, rejected := range list {
		turn[rejected] = counts[client(rejected.Peer)]
		counts[client(rejected.Peer)]++
	}
	slices.SortStableFunc(list, func(a, b *Rejected) int { return cmp.Compare(turn[a], turn[b]) })
}

// hostOf returns the IP address of a peer.
func hostOf(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

// addChanged sets the changed objects of a resource.
func (s *Server) addChanged(rejected *Rejected) {
	schema, isObject := resource.SchemaByTypeURL(rejected.TypeURL)
	switch {
	case isObject && rejected.Resource == "", !isObject && s.opts.ChangedSince == nil:
		rejected.Incomplete = true
	case isObject:
		namespace, name, namespaced := strings.Cut(rejected.Resource, "/")
		if !namespaced {
			namespace, name = "", rejected.Resource
		}
		rejected.Changed = []conflicts.Ref{{Kind: schema.Kind, Namespace: namespace, Name: name}}
	default:
		keys, complete := s.opts.ChangedSince(rejected.collection, rejected.rejection)
		for _, key := range keys {
			rejected.Changed = append(rejected.Changed, conflicts.Ref(key))
		}
		rejected.Incomplete = !complete || rejected.rejection.Revision == 0
	}
}

// rejectedWith returns the rejected resources that an object may cause.
func (s *Server) rejectedWith(key resource.Key) []Rejected {
	list, _ := s.rejected()
	return slices.DeleteFunc(list, func(rejected Rejected) bool {
		return !slices.Contains(rejected.Changed, conflicts.Ref(key))
	})
}

// What names the resource by its type, such as RouteConfiguration 80.
func (r *Rejected) What() string {
	return strings.TrimSpace(r.TypeURL[strings.LastIndexAny(r.TypeURL, "./")+1:] + " " + r.Resource)
}

// maxCauses limits the objects that one line names.
const maxCauses = 5

// Causes names in one line the fallback of the client and the objects that may be the cause.
func (r *Rejected) Causes() string {
	var names []string
	for _, object := range r.Changed[:min(len(r.Changed), maxCauses)] {
		names = append(names, object.Key().String())
	}
	if len(r.Changed) > maxCauses {
		names = append(names, "others")
	}
	causes := strings.Join(names, ", ")
	switch {
	case r.Acked == "" && causes != "":
		causes = "the client has acknowledged no version of it; it is made of " + causes
	case r.Acked == "":
		causes = "the client has acknowledged no version of it"
	case causes == "" && r.Incomplete:
		causes = "the changes since the client last acknowledged it are unknown"
	case causes == "":
		causes = "no object of it changed since the client last acknowledged it"
	case r.Incomplete:
		causes = "changed since the client last acknowledged it: " + causes + ", and perhaps others earlier"
	default:
		causes = "changed since the client last acknowledged it: " + causes
	}
	switch {
	case r.UnenforcedNode != "":
		start := r.UnenforcedSince.UTC().Format(time.RFC3339)
		return "policies of " + r.UnenforcedNode + " are not in force since " + start + "; " + causes
	case r.Fallback != "":
		return "it has " + r.Fallback + "; " + causes
	}
	return causes
}
