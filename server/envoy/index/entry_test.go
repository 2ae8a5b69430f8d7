package index

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

var encodedEntry = func() []byte {
	labels := map[string]string{"version": "v1"}
	b, _ := proto.Marshal(&networking.ServiceEntry{
		Hosts: []string{"a.example"}, Ports: []*networking.ServicePort{{Number: 80, Name: "http", Protocol: "HTTP"}}, ExportTo: []string{"."},
		Endpoints: []*networking.WorkloadEntry{
			{Address: "10.0.0.1", Labels: labels},
			{Address: "10.0.0.2", Labels: labels},
			{Address: "10.0.0.3", Labels: labels, Weight: 3, Locality: "eu/a/1"},
			{Labels: labels},
			{},
			{Address: "unix:///run/s"},
		},
	})
	return b
}()

// FuzzDecodeEntry holds that a ServiceEntry is the same when its endpoints are decoded apart.
func FuzzDecodeEntry(f *testing.F) {
	f.Add(encodedEntry)
	f.Add([]byte{0x32, 0x00})
	f.Add([]byte{0x32, 0x06, 0x0a, 0x01, 'a', 0x0a, 0x01, 'b'}) // an endpoint with two addresses
	f.Fuzz(func(t *testing.T, body []byte) {
		decoded := new(networking.ServiceEntry)
		if proto.Unmarshal(body, decoded) != nil {
			return
		}
		spec, endpoints, err := decodeEntry(resource.FromBody(resource.Meta{}, body))
		require.NoError(t, err)
		for _, e := range endpoints {
			w := proto.CloneOf(e.spec)
			w.Address = e.address
			spec.Endpoints = append(spec.Endpoints, w)
		}
		require.True(t, proto.Equal(decoded, spec), "%v\n%v", decoded, spec)
	})
}

func TestDecodeEntry_RefusesInvalidBodies(t *testing.T) {
	for _, body := range [][]byte{
		{0x32}, {0x32, 0x02, 0x0a}, {0x32, 0x03, 0x0a, 0x01, 0xff}, {0x0a, 0x01, 0xff}, {0x32, 0x02, 0x0a, 0x05},
	} {
		_, _, err := decodeEntry(resource.FromBody(resource.Meta{}, body))
		require.Error(t, err, "%x", body)
	}
}
