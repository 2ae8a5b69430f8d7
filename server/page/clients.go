package page

import (
	"slices"
	"strings"

	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"

	"tributary/internal/words"
	"tributary/server/debug"
	"tributary/server/xds"
)

// Clients is the panel of connected clients.
type Clients struct {
	Rows   []Client
	Pager  Pager
	Filter string // part of the node ID, address or identity
}

// Client is a row of the clients.
type Client struct {
	xds.ClientStatus

	Kind, Class, Note string
	Types             []Type
}

// Type is the subscription of a client to a type.
type Type struct {
	xds.TypeStatus

	Name         string // the type without its common prefix
	Subscription string // the requested resources: all, or a number of names
	Class, Note  string
}

// typeClass returns the class and a note for the condition of a subscription, which is that of CSDS.
func typeClass(status *xds.TypeStatus) (class, note string) {
	if debug.IsIstioctl(status.TypeURL) {
		return classOK, "asks about others"
	}
	switch debug.Condition(status) {
	case statusv3.ConfigStatus_ERROR:
		return classBad, "rejected"
	case statusv3.ConfigStatus_SYNCED:
		return classOK, "acknowledged"
	case statusv3.ConfigStatus_NOT_SENT:
		return classIdle, "nothing sent"
	}
	return classWarning, "sent, no answer yet"
}

// clientsPanel returns a page of the clients. Those in trouble come first; equal ones are in order of arrival.
func clientsPanel(clients []xds.ClientStatus, query pageQuery) Clients {
	clients = slices.DeleteFunc(slices.Clone(clients), func(client xds.ClientStatus) bool {
		text := strings.Join([]string{client.Node.GetId(), client.Node.GetCluster(), client.Peer, client.Identity}, "\n")
		return !contains(text, strings.ToLower(query.client))
	})
	slices.SortStableFunc(clients, func(first, second xds.ClientStatus) int {
		return severity(clientClass(&first)) - severity(clientClass(&second))
	})
	panel := Clients{Filter: query.client, Pager: newPager(query, "clients", len(clients))}
	for _, client := range clients[panel.Pager.from:panel.Pager.to] {
		row := Client{ClientStatus: client, Kind: clientKind(&client), Class: clientClass(&client)}
		row.Note = map[string]string{
			classOK: "has everything", classWarning: "not up to date", classBad: "rejects", classIdle: "was sent nothing",
		}[row.Class]
		for _, status := range client.Types {
			class, note := typeClass(&status)
			row.Types = append(row.Types, Type{status, shortType(status.TypeURL), subscriptionText(&status), class, note})
		}
		panel.Rows = append(panel.Rows, row)
	}
	return panel
}

// subscriptionText describes the requested resources.
func subscriptionText(status *xds.TypeStatus) string {
	switch {
	case status.Wildcard && status.Names > 0:
		return "all, and names"
	case status.Wildcard:
		return "all"
	}
	return words.Count(status.Names, "name", "names")
}

// shortType returns the kind of Envoy's resources, and the type URL of others.
func shortType(url string) string {
	url = strings.TrimPrefix(url, "type.googleapis.com/")
	if index := strings.LastIndexByte(url, '.'); strings.HasPrefix(url, "envoy.") && index > 0 {
		return url[index+1:]
	}
	return url
}
