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
		request := k.request(url)
		request.Version = versions[url]
		for name := range namesByType[url] {
			request.Names = append(request.Names, name)
		}
		k.send(request)
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
			talk := newTalk(t, false, false)
			talk.swap("c1/2")
			talk.reconnect(map[string]string{ClusterURL: "x", EndpointURL: "y", RouteURL: "z"}, order...)
			talk.hear(RouteURL, "r@c1/2")
			talk.ack()
			require.Equal(t, modelAckTimeout, talk.waits(), "for the client to ask for the cluster")
			talk.ask(ClusterURL, "c0", "c1")
			talk.hear(ClusterURL, "c1@1")
			talk.ack()
			talk.ask(EndpointURL, "c0", "c1")
			talk.hear(EndpointURL, "c1@1")
			talk.ack()
			talk.rest()
		})
	}
}

// It loses a cluster that it goes on asking for when it had time to switch, and is not kept waiting for any other.
func TestReconnect_UnknownClustersEnd(t *testing.T) {
	talk := newTalk(t, false, false)
	talk.colls[ClusterURL].Apply(Commit{Put: []*Entry{thing(t, "c0", "1", ""), thing(t, "c1", "1", "")}})
	talk.rest()
	talk.ask(ClusterURL, "c0", "c1")
	talk.hear(ClusterURL, "c0@1", "c1@1")
	talk.ack()
	talk.swap("c1/2")
	talk.reconnect(map[string]string{ClusterURL: "x"}, ClusterURL)
	require.Equal(t, modelAckTimeout, talk.waits())
	talk.pass(modelAckTimeout)
	talk.hear(ClusterURL, "c1@1")
	talk.ack()
	talk.waits() // for the client to ask for the endpoints

	talk.types[ClusterURL].names = set([]string{"c0", "c1"})
	talk.reconnect(map[string]string{ClusterURL: "x"}, ClusterURL)
	talk.ask(ClusterURL, "c1") // it uses c0 no longer
	talk.hear(ClusterURL, "c1@1")
	talk.ack()
	talk.waits() // for the client to ask for the endpoints
}

// A client that comes back with versions that the server had, by name or with everything, is led on from there: it
// keeps the content of the old cluster, and a client by name gets the interim route.
func TestReconnect_WithServedVersion(t *testing.T) {
	for _, order := range orders {
		t.Run(fmt.Sprint(short(order[0]), short(order[1]), short(order[2])), func(t *testing.T) {
			talk := newTalk(t, false, false)
			talk.swap("c1/2")
			talk.reconnect(talk.versions(), order...)
			talk.hearAny(map[string][]string{ClusterURL: {"c0@1"}, EndpointURL: {}, RouteURL: {"r@c0/1+c1"}})
			talk.ask(ClusterURL, "c0", "c1")
			talk.hear(ClusterURL, "c0@1", "c1@1")
			talk.ack()
			talk.ask(EndpointURL, "c0", "c1")
			talk.hear(EndpointURL, "c1@1")
			talk.ack()
			talk.hear(RouteURL, "r@c1/2")
			talk.ack()
			require.Positive(t, talk.waits())
			talk.ask(ClusterURL, "c1")
			talk.rest()

			talk.swap("c2/3") // the version after a change that kept a cluster is that of the collection
			talk.types[EndpointURL].names = set([]string{"c1"})
			talk.reconnect(talk.versions(), order...)
			talk.hearAny(map[string][]string{ClusterURL: {"c1@1"}, EndpointURL: {}, RouteURL: {"r@c1/2+c2"}})
		})
	}
	t.Run("clusters asked for late", func(t *testing.T) {
		talk := newTalk(t, false, false)
		talk.swap("c1/2")
		versions := talk.versions()
		clusters := talk.request(ClusterURL)
		clusters.Names, clusters.Version = []string{"c0"}, versions[ClusterURL]
		talk.reconnect(versions, RouteURL)
		require.Equal(t, resumptionTime, talk.waits(), "for the request")
		talk.send(clusters)
		talk.types[ClusterURL].names = set(clusters.Names)
		talk.hearAny(map[string][]string{ClusterURL: {"c0@1"}, EndpointURL: {}, RouteURL: {"r@c0/1+c1"}})
	})
	t.Run("wildcard", func(t *testing.T) {
		talk := newTalk(t, false, true)
		talk.swap("c1/2")
		talk.reconnect(talk.versions(), ClusterURL, EndpointURL, RouteURL)
		talk.hear(ClusterURL, "c0@1", "c1@1")
		talk.ack()
		talk.ask(EndpointURL, "c0", "c1")
		talk.hear(EndpointURL, "c1@1")
		talk.ack()
		talk.hear(RouteURL, "r@c1/2")
		talk.ack()
		talk.pass(modelAckTimeout)
		talk.hear(ClusterURL, "c1@1")
		talk.ack()
		talk.rest()
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
