package xds

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// reconnect begins a stream. Its first requests repeat the names and the version of the last one, as grpc-go's do.
// Types are requested in the order of urls.
func (t *talk) reconnect(versions map[string]string, urls ...string) {
	namesByType := make(map[string]map[string]bool)
	for url, ty := range t.types {
		namesByType[url] = ty.names
	}
	t.connect(false)
	clear(t.lasts)
	for _, url := range urls {
		t.types[url].names = namesByType[url]
		request := t.request(url)
		request.Version = versions[url]
		for name := range namesByType[url] {
			request.Names = append(request.Names, name)
		}
		t.send(request)
	}
}

// versions returns the versions that the client was last sent.
func (t *talk) versions() map[string]string {
	versions := make(map[string]string)
	for url, last := range t.lasts {
		versions[url] = last.version
	}
	return versions
}

// TestReconnect_LateClusters has a client that asks for its clusters after the routes.
func TestReconnect_LateClusters(t *testing.T) {
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
}

// hearAny takes one message of each type, in any order, and acknowledges it. A type without content may be silent.
func (t *talk) hearAny(want map[string][]string) {
	t.t.Helper()
	got := map[string][]string{EndpointURL: {}}
	for {
		sent, _ := t.pump()
		if !sent {
			break
		}
		t.last = t.inbox[0]
		t.inbox, t.lasts[t.last.typ] = nil, t.last
		for name, version := range t.last.puts {
			got[t.last.typ] = append(got[t.last.typ], name+"@"+version)
		}
		t.ack()
	}
	require.Equal(t.t, want, got)
}
