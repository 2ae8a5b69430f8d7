package xds

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// reconnect begins a stream. Its first requests repeat the names and the version of the last one, as grpc-go's do.
// Types are requested in the order of urls.
func (k *talk) reconnect(versions map[string]string, urls ...string) {
	namesByType := make(map[string]map[string]bool)
	for url, ty := range k.types {
		namesByType[url] = ty.names
	}
	k.connect(false)
	clear(k.lasts)
	for _, url := range urls {
		k.types[url].names = namesByType[url]
		req := k.request(url)
		req.Version = versions[url]
		for name := range namesByType[url] {
			req.Names = append(req.Names, name)
		}
		k.send(req)
	}
}

// versions returns the versions that the client was last sent.
func (k *talk) versions() map[string]string {
	versions := make(map[string]string)
	for url, last := range k.lasts {
		versions[url] = last.version
	}
	return versions
}

var orders = [][]string{
	{RouteURL, ClusterURL, EndpointURL},
	{RouteURL, EndpointURL, ClusterURL},
	{ClusterURL, RouteURL, EndpointURL},
	{ClusterURL, EndpointURL, RouteURL},
	{EndpointURL, ClusterURL, RouteURL},
	{EndpointURL, RouteURL, ClusterURL},
}

// A client whose route moved during the disconnect keeps the old cluster, which the server cannot compare, until the
// client has the new route and requests its cluster.
func TestReconnect_KeepsUnknownClusters(t *testing.T) {
	for _, order := range orders {
		t.Run(fmt.Sprint(short(order[0]), short(order[1]), short(order[2])), func(t *testing.T) {
			k := newTalk(t, false, false)
			k.swap("c1/2")
			k.reconnect(map[string]string{ClusterURL: "x", EndpointURL: "y", RouteURL: "z"}, order...)
			k.hear(RouteURL, "r@c1/2")
			k.ack()
			require.Equal(t, modelAckTimeout, k.waits(), "for the client to ask for the cluster")
			k.ask(ClusterURL, "c0", "c1")
			k.hear(ClusterURL, "c1@1")
			k.ack()
			k.ask(EndpointURL, "c0", "c1")
			k.hear(EndpointURL, "c1@1")
			k.ack()
			k.rest()
		})
	}
}

// It loses a cluster that it goes on asking for when it had time to switch, and is not kept waiting for any other.
func TestReconnect_UnknownClustersEnd(t *testing.T) {
	k := newTalk(t, false, false)
	k.colls[ClusterURL].Apply(Commit{Put: []*Entry{thing(t, "c0", "1", ""), thing(t, "c1", "1", "")}})
	k.rest()
	k.ask(ClusterURL, "c0", "c1")
	k.hear(ClusterURL, "c0@1", "c1@1")
	k.ack()
	k.swap("c1/2")
	k.reconnect(map[string]string{ClusterURL: "x"}, ClusterURL)
	require.Equal(t, modelAckTimeout, k.waits())
	k.pass(modelAckTimeout)
	k.hear(ClusterURL, "c1@1")
	k.ack()
	k.waits() // for the client to ask for the endpoints

	k.types[ClusterURL].names = set([]string{"c0", "c1"})
	k.reconnect(map[string]string{ClusterURL: "x"}, ClusterURL)
	k.ask(ClusterURL, "c1") // it uses c0 no longer
	k.hear(ClusterURL, "c1@1")
	k.ack()
	k.waits() // for the client to ask for the endpoints
}

// A client that comes back with versions that the server had, by name or with everything, is led on from there: it
// keeps the content of the old cluster, and a client by name gets the interim route.
func TestReconnect_WithServedVersion(t *testing.T) {
	for _, order := range orders {
		t.Run(fmt.Sprint(short(order[0]), short(order[1]), short(order[2])), func(t *testing.T) {
			k := newTalk(t, false, false)
			k.swap("c1/2")
			k.reconnect(k.versions(), order...)
			k.hearAny(map[string][]string{ClusterURL: {"c0@1"}, EndpointURL: {}, RouteURL: {"r@c0/1+c1"}})
			k.ask(ClusterURL, "c0", "c1")
			k.hear(ClusterURL, "c0@1", "c1@1")
			k.ack()
			k.ask(EndpointURL, "c0", "c1")
			k.hear(EndpointURL, "c1@1")
			k.ack()
			k.hear(RouteURL, "r@c1/2")
			k.ack()
			require.Positive(t, k.waits())
			k.ask(ClusterURL, "c1")
			k.rest()

			k.swap("c2/3") // the version after a change that kept a cluster is that of the collection
			k.types[EndpointURL].names = set([]string{"c1"})
			k.reconnect(k.versions(), order...)
			k.hearAny(map[string][]string{ClusterURL: {"c1@1"}, EndpointURL: {}, RouteURL: {"r@c1/2+c2"}})
		})
	}
	t.Run("clusters asked for late", func(t *testing.T) {
		k := newTalk(t, false, false)
		k.swap("c1/2")
		versions := k.versions()
		clusters := k.request(ClusterURL)
		clusters.Names, clusters.Version = []string{"c0"}, versions[ClusterURL]
		k.reconnect(versions, RouteURL)
		require.Equal(t, resumptionTime, k.waits(), "for the request")
		k.send(clusters)
		k.types[ClusterURL].names = set(clusters.Names)
		k.hearAny(map[string][]string{ClusterURL: {"c0@1"}, EndpointURL: {}, RouteURL: {"r@c0/1+c1"}})
	})
	t.Run("wildcard", func(t *testing.T) {
		k := newTalk(t, false, true)
		k.swap("c1/2")
		k.reconnect(k.versions(), ClusterURL, EndpointURL, RouteURL)
		k.hear(ClusterURL, "c0@1", "c1@1")
		k.ack()
		k.ask(EndpointURL, "c0", "c1")
		k.hear(EndpointURL, "c1@1")
		k.ack()
		k.hear(RouteURL, "r@c1/2")
		k.ack()
		k.pass(modelAckTimeout)
		k.hear(ClusterURL, "c1@1")
		k.ack()
		k.rest()
	})
}

// hearAny takes one message of each type, in any order, and acknowledges it. A type without content may be silent.
func (k *talk) hearAny(want map[string][]string) {
	k.t.Helper()
	got := map[string][]string{EndpointURL: {}}
	for {
		sent, _ := k.pump()
		if !sent {
			break
		}
		k.last = k.inbox[0]
		k.inbox, k.lasts[k.last.typ] = nil, k.last
		for name, version := range k.last.puts {
			got[k.last.typ] = append(got[k.last.typ], name+"@"+version)
		}
		k.ack()
	}
	require.Equal(k.t, want, got)
}
