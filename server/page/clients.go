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

// Type is the state of a client's subscription to a type.
type Type struct {
	xds.TypeStatus

	Name         string // without the common prefix
	Subscription string
	Class, Note  string
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
			well: "has everything", warns: "not up to date", bad: "rejects", idle: "was sent nothing",
		}[row.Class]
		for _, status := range client.Types {
			class, note := typeClass(&status)
			row.Types = append(row.Types, Type{status, shortType(status.TypeURL), subscriptionText(&status), class, note})
		}
		panel.Rows = append(panel.Rows, row)
	}
	return panel
}

func subscriptionText(status *xds.TypeStatus) string {
	switch {
	case status.Wildcard && status.Names > 0:
		return "all, and names"
	case status.Wildcard:
		return "all"
	}
	return words.Count(status.Names, "name", "names")
}

func shortType(url string) string {
	url = strings.TrimPrefix(url, "type.googleapis.com/")
	if index := strings.LastIndexByte(url, '.'); strings.HasPrefix(url, "envoy.") && index > 0 {
		return url[index+1:]
	}
	return url
}
