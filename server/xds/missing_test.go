package xds

import (
	"fmt"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Requests to an Envoy can make it ask for any number of nonexistent hosts, and Envoy never unsubscribes. It gets an
// answer for each, and its stream goes on: with many names, with long ones, and when it resumes with all of them.
func TestMissingNames_Forgotten(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{NamesPerStream: 100}})
	fixture.set(VHostURL, "80/a", "80/z")
	client := fixture.delta()
	client.Subscribe(VHostURL, nil)
	client.Subscribe(VHostURL, []string{"80/a"}, "80/a@1")
	names, versions := []string{"80/a", "80/z"}, map[string]string{"80/a": "1"}
	for i := range 300 {
		name := fmt.Sprintf("80/no-%d", i)
		if i%50 == 0 {
			name += strings.Repeat("x", 128*60)
		}
		names = append(names, name)
		versions[name] = ""
		client.Ask(VHostURL, name)
		answer := client.Next()
		require.Equal(t, []string{name}, answer.Unknown)
		client.Ack(answer)
	}
	eventually(t, func() bool { return fixture.namesCost() <= 51 })
	fixture.set(VHostURL, "80/a@2", "80/no-299") // the last ones are remembered
	client.ExpectAck(VHostURL, nil, "80/a@2", "80/no-299@1")
	fixture.set(VHostURL, "80/no-1")
	client.Silence()
	client.Ask(VHostURL, "80/no-1") // another request for the host
	client.ExpectAck(VHostURL, nil, "80/no-1@1")

	back := fixture.delta()
	back.Send(&discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: VHostURL, ResourceNamesSubscribe: names,
		InitialResourceVersions: versions,
	})
	answer := back.Next()
	require.Equal(t, []string{"80/a@2", "80/no-1@1", "80/no-299@1", "80/z@1"}, answer.Puts)
	back.Ack(answer)
	fixture.set(VHostURL, "80/z@2")
	back.ExpectAck(VHostURL, nil, "80/z@2")
}

func TestMissingNames_RepeatedNameIsNewest(t *testing.T) {
	missing := newMissing(&Limits{NamesPerStream: -1})
	for i := range 50 {
		missing.add(fmt.Sprint(i))
	}
	for i := range 40 {
		missing.remove(fmt.Sprint(i))
		missing.add(fmt.Sprint(i))
	}
	for i := range 50 {
		name := fmt.Sprint((i + 40) % 50)
		require.Equal(t, name, missing.oldest())
		missing.remove(name)
	}
}

// With types without NoWildcard the limit holds.
func TestMissingNames_CountWithWildcardTypes(t *testing.T) {
	fixture := newFixture(t, Options{Limits: Limits{NamesPerStream: 100}})
	fixture.set(EndpointURL, "a")
	var names []string
	for i := range 101 {
		names = append(names, fmt.Sprintf("no-%d", i))
	}
	for _, namesPerRequest := range []int{101, 51} { // at once, and one after the other
		client := fixture.delta()
		client.Ask(EndpointURL, names[:namesPerRequest]...)
		if namesPerRequest < 101 {
			client.Ask(EndpointURL, names[namesPerRequest:]...)
		}
		require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(client.Ended()))
	}
}
