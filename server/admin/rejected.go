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

// Rejected is a resource that clients reject. Of the fields that are about one client, UnenforcedNode and
// UnenforcedSince have a client of their own; the others are about the client with the oldest rejection.
type Rejected struct {
	TypeURL  string    `json:"type_url"`
	Resource string    `json:"resource,omitempty"` // empty if the client's error does not name it
	Version  string    `json:"version,omitempty"`
	Error    string    `json:"error"`
	Node     string    `json:"node"`
	Peer     string    `json:"peer"`
	Since    time.Time `json:"since"`
	Clients  int       `json:"clients"`            // all clients that reject it
	Fallback string    `json:"fallback,omitempty"` // sent instead; empty if the client keeps its accepted version
	// UnenforcedNode is the client that lacks the current policies for the longest time; UnenforcedSince is the start.
	UnenforcedNode  string    `json:"unenforced_node,omitempty"`
	UnenforcedSince time.Time `json:"unenforced_since,omitzero"`
	Acked           string    `json:"acked,omitempty"` // the version that the client acknowledged on this connection
	// Changed are the objects that the resource is made of and that changed since the acknowledgement. Without an
	// acknowledgement, it has all objects of the resource.
	Changed []conflicts.Ref `json:"changed"`
	// Incomplete is set if Changed may lack objects, since the acknowledgement is too old.
	Incomplete bool `json:"incomplete,omitempty"`

	collection *xds.Collection
	rejection  xds.Rejection
	addresses  map[string]bool // the IP addresses of the clients
}

// maxRejected limits the listed resources.
const maxRejected = 100

// rejected returns the rejected resources, and the number of those beyond the limit. A resource that more addresses
// reject comes first. Among equals, addresses take turns, and the connections of an address, too: so no client hides
// the rejections of others. Each begins with its oldest rejection.
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
						TypeURL: id.typeURL, Resource: id.name, Changed: []conflicts.Ref{}, addresses: make(map[string]bool),
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
	interleave(sorted, func(peer string) string { return peer }) // connections
	interleave(sorted, addressOf)
	slices.SortStableFunc(sorted, func(a, b *Rejected) int { return cmp.Compare(len(b.addresses), len(a.addresses)) })
	list = []Rejected{}
	for _, rejected := range sorted[:min(len(sorted), maxRejected)] {
		s.addChanged(rejected)
		list = append(list, *rejected)
	}
	return list, len(sorted) - len(list)
}

// rejectedList is the answer of /debug/rejected.
func (s *Server) rejectedList() []Rejected {
	list, _ := s.rejected()
	return list
}

// add adds the rejection by a client.
func (r *Rejected) add(client *xds.ClientStatus, collection *xds.Collection, rejection xds.Rejection) {
	r.Clients++
	r.addresses[addressOf(client.Peer)] = true
	if start := rejection.UnenforcedSince; !start.IsZero() && (r.UnenforcedNode == "" || start.Before(r.UnenforcedSince)) {
		r.UnenforcedNode, r.UnenforcedSince = ClientName(client.Node.GetId(), client.Peer), start
	}
	if r.Clients == 1 || rejection.Since.Before(r.Since) {
		r.Node, r.Peer = client.Node.GetId(), client.Peer
		r.Version, r.Acked = rejection.Version, rejection.Acked
		r.Error = rejection.Error
		r.Since = rejection.Since
		r.Fallback = rejection.Fallback
		r.collection, r.rejection = collection, rejection
	}
}

// interleave puts the first resource of each group before the second one of any group. A function returns the group of
// a peer.
func interleave(list []*Rejected, groupOf func(peer string) string) {
	counts := make(map[string]int)
	positions := make(map[*Rejected]int) // within their groups
	for _, rejected := range list {
		group := groupOf(rejected.Peer)
		positions[rejected] = counts[group]
		counts[group]++
	}
	slices.SortStableFunc(list, func(a, b *Rejected) int { return cmp.Compare(positions[a], positions[b]) })
}

// addressOf returns the IP address of a peer.
func addressOf(peer string) string {
	if host, _, err := net.SplitHostPort(peer); err == nil {
		return host
	}
	return peer
}

// addChanged sets the changed objects of a resource. An object of Istio, which an istiod rejects, is its own cause.
func (s *Server) addChanged(rejected *Rejected) {
	schema, isObject := resource.SchemaByTypeURL(rejected.TypeURL)
	switch {
	case isObject && rejected.Resource == "", !isObject && s.opts.ChangedSince == nil: // the objects are unknown
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

// rejectedWith returns the rejected resources that a change of an object may have caused.
func (s *Server) rejectedWith(key resource.Key) []Rejected {
	return slices.DeleteFunc(s.rejectedList(), func(rejected Rejected) bool {
		return !slices.Contains(rejected.Changed, conflicts.Ref(key))
	})
}

// ResourceName returns the short type and the name of the resource, such as RouteConfiguration 80.
func (r *Rejected) ResourceName() string {
	return strings.TrimSpace(r.TypeURL[strings.LastIndexAny(r.TypeURL, "./")+1:] + " " + r.Resource)
}

// maxCauses limits the objects that Causes names.
const maxCauses = 5

// Causes returns one line with the objects that may be the cause, and with the consequence for policies or the
// fallback.
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
