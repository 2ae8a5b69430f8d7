package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"tributary/server/debug"
	"tributary/server/xds"
)

// Clients is the panel of those who are served.
type Clients struct {
	All    []Client
	Pager  Pager
	Of     []Station // by kind
	Filter string    // part of the node ID, address or identity
}

// Client is one of them.
type Client struct {
	Stream    uint64
	Node      string
	Peer      string
	Identity  string // what it has proven to be
	Kind      string
	Cluster   string
	Protocol  string
	Connected time.Time
	Class     string
	Note      string
	Types     []Type
	Nacks     uint64
	Rejects   []Reject
}

// Type is how a client stands with a type.
type Type struct {
	Name      string // without what all have in common
	Wants     string
	Class     string
	Note      string
	Sent      string // version
	SentAt    time.Time
	Acked     string
	AckedAt   time.Time
	Responses uint64
	Nacks     uint64
}

// Reject is what a client says of a type that it rejects, or rejected.
type Reject struct {
	Type   string
	Text   string
	At     time.Time
	Stands bool // it has accepted nothing since
}

// standing is how a client stands with a type, as CSDS has it.
func standing(t *xds.TypeStatus) (class, note string) {
	if debug.IsIstioctl(t.TypeURL) {
		return well, "asks about others"
	}
	switch debug.Condition(t) {
	case statusv3.ConfigStatus_ERROR:
		return bad, "rejected"
	case statusv3.ConfigStatus_SYNCED:
		return well, "acknowledged"
	case statusv3.ConfigStatus_NOT_SENT:
		return idle, "nothing sent"
	}
	return warns, "sent, no answer yet"
}

// clientsOf are the clients of a page, in whose trouble is worst, else in order of arrival.
func clientsOf(all []xds.ClientStatus, q query) Clients {
	all = slices.DeleteFunc(slices.Clone(all), func(c xds.ClientStatus) bool {
		text := strings.ToLower(strings.Join([]string{c.Node.GetId(), c.Node.GetCluster(), c.Peer, c.Identity}, "\n"))
		return !strings.Contains(text, strings.ToLower(q.client))
	})
	slices.SortStableFunc(all, func(a, b xds.ClientStatus) int { return severity(condition(&a)) - severity(condition(&b)) })
	c := Clients{Filter: q.client, Pager: newPager(q, "clients", q.clients, len(all)), Of: stationsOfClients(all)}
	for i := range all[c.Pager.from:c.Pager.to] {
		c.All = append(c.All, clientOf(&all[c.Pager.from+i]))
	}
	return c
}

func clientOf(c *xds.ClientStatus) Client {
	out := Client{
		Stream: c.StreamID, Node: cmp.Or(c.Node.GetId(), "(no node id)"), Peer: c.Peer, Identity: c.Identity, Kind: kindOfClient(c),
		Cluster: c.Node.GetCluster(), Protocol: "state of the world", Connected: c.Connected, Class: condition(c),
	}
	if c.Delta {
		out.Protocol = "delta"
	}
	out.Note = map[string]string{well: "has everything", warns: "not up to date", bad: "rejects", idle: "was sent nothing"}[out.Class]
	for i := range c.Types {
		t := &c.Types[i]
		class, note := standing(t)
		name := shortType(t.TypeURL)
		out.Types = append(out.Types, Type{
			Name: name, Wants: wants(t), Class: class, Note: note, Sent: shortVersion(t.SentVersion), SentAt: t.SentAt,
			Acked: shortVersion(t.AckedVersion), AckedAt: t.AckedAt, Responses: t.Responses, Nacks: t.Nacks,
		})
		out.Nacks += t.Nacks
		if !t.NackAt.IsZero() {
			out.Rejects = append(out.Rejects, Reject{name, t.NackError, t.NackAt, class == bad})
		}
	}
	return out
}

func wants(t *xds.TypeStatus) string {
	switch {
	case t.Wildcard && t.Names > 0:
		return "all, and names"
	case t.Wildcard:
		return "all"
	}
	return count(t.Names, "name", "names")
}

func shortType(url string) string {
	url = strings.TrimPrefix(url, "type.googleapis.com/")
	if i := strings.LastIndexByte(url, '.'); strings.HasPrefix(url, "envoy.") && i > 0 {
		return url[i+1:]
	}
	return url
}

// shortVersion is enough of a version to tell two apart.
func shortVersion(v string) string { return v[:min(len(v), 12)] }
