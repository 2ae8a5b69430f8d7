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

// Clients is the panel of connected clients.
type Clients struct {
	Rows     []Client
	Pager    Pager
	Stations []Station // by kind
	Filter   string    // part of the node ID, address or identity
}

// Client is a row of the clients.
type Client struct {
	Stream    uint64
	Node      string
	Peer      string
	Identity  string // authenticated
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

// Type is the state of a client's subscription to a type.
type Type struct {
	Name         string // without the common prefix
	Subscription string
	Class        string
	Note         string
	Sent         string // version
	SentAt       time.Time
	Acked        string
	AckedAt      time.Time
	Responses    uint64
	Nacks        uint64
}

// Reject is a client's newest NACK of a type.
type Reject struct {
	Type    string
	Text    string
	Time    time.Time
	Current bool // no ACK followed
}

// typeClass classifies the state of a subscription like CSDS.
func typeClass(status *xds.TypeStatus) (class, note string) {
	if debug.IsIstioctl(status.TypeURL) {
		return well, "asks about others"
	}
	switch debug.Condition(status) {
	case statusv3.ConfigStatus_ERROR:
		return bad, "rejected"
	case statusv3.ConfigStatus_SYNCED:
		return well, "acknowledged"
	case statusv3.ConfigStatus_NOT_SENT:
		return idle, "nothing sent"
	}
	return warns, "sent, no answer yet"
}

// clientsPanel shows a page of the clients in order of trouble, and else of arrival.
func clientsPanel(clients []xds.ClientStatus, q pageQuery) Clients {
	clients = slices.DeleteFunc(slices.Clone(clients), func(panel xds.ClientStatus) bool {
		text := strings.ToLower(strings.Join([]string{
			panel.Node.GetId(), panel.Node.GetCluster(), panel.Peer,
			panel.Identity,
		}, "\n"))
		return !strings.Contains(text, strings.ToLower(q.client))
	})
	slices.SortStableFunc(clients, func(first,
		second xds.ClientStatus,
	) int {
		return severity(clientClass(&first)) - severity(clientClass(&second))
	})
	panel := Clients{
		Filter: q.client, Pager: newPager(q, "clients", q.clients, len(clients)),
		Stations: clientStations(clients),
	}
	for i := range clients[panel.Pager.from:panel.Pager.to] {
		panel.Rows = append(panel.Rows, newClient(&clients[panel.Pager.from+i]))
	}
	return panel
}

func newClient(client *xds.ClientStatus) Client {
	row := Client{
		Stream: client.StreamID, Node: cmp.Or(client.Node.GetId(), "(no node id)"), Peer: client.Peer,
		Identity: client.Identity, Kind: clientKind(client),
		Cluster: client.Node.GetCluster(), Protocol: "state of the world", Connected: client.Connected,
		Class: clientClass(client),
	}
	if client.Delta {
		row.Protocol = "delta"
	}
	row.Note = map[string]string{
		well: "has everything", warns: "not up to date", bad: "rejects",
		idle: "was sent nothing",
	}[row.Class]
	for index := range client.Types {
		status := &client.Types[index]
		class, note := typeClass(status)
		name := shortType(status.TypeURL)
		row.Types = append(row.Types, Type{
			Name: name, Subscription: subscriptionText(status), Class: class, Note: note, Sent: shortVersion(status.SentVersion),
			SentAt: status.SentAt,
			Acked:  shortVersion(status.AckedVersion), AckedAt: status.AckedAt, Responses: status.Responses, Nacks: status.Nacks,
		})
		row.Nacks += status.Nacks
		if !status.NackAt.IsZero() {
			row.Rejects = append(row.Rejects, Reject{name, status.NackError, status.NackAt, class == bad})
		}
	}
	return row
}

func subscriptionText(status *xds.TypeStatus) string {
	switch {
	case status.Wildcard && status.Names > 0:
		return "all, and names"
	case status.Wildcard:
		return "all"
	}
	return countText(status.Names, "name", "names")
}

func shortType(url string) string {
	url = strings.TrimPrefix(url, "type.googleapis.com/")
	if index := strings.LastIndexByte(url, '.'); strings.HasPrefix(url, "envoy.") && index > 0 {
		return url[index+1:]
	}
	return url
}

// shortVersion returns a prefix that tells versions apart.
func shortVersion(version string) string { return version[:min(len(version), 12)] }
