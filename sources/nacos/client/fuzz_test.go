package client

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// FuzzService sends any text as a service: each instance is usable, or a warning.
func FuzzService(f *testing.F) {
	f.Add([]byte(`{"requestId": "1", "serviceInfo": {"name": "a", "groupName": "g", "hosts": [{"ip": "10.0.0.1", "port": 80, "weight": ` +
		`1.5, "metadata": {"a": "b", "n": 1}}, 5]}}`))
	f.Add([]byte(`{"serviceInfo": {"hosts": [{"ip": "::1", "port": -1}, null, {"ip": "", "port": 70000}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p push
		if json.Unmarshal(text, &p) != nil {
			return
		}
		instances, warnings := p.Service.instances()
		require.Len(t, p.Service.Hosts, len(instances)+len(warnings))
		for _, i := range instances {
			require.NotEmpty(t, i.IP)
			require.True(t, i.Port >= 0 && i.Port <= 65535)
		}
	})
}

func TestInstanceOverLimit_Skipped(t *testing.T) {
	s := serviceInfo{Hosts: []json.RawMessage{
		json.RawMessage(`{"ip": "10.0.0.1", "port": 80}`), json.RawMessage(`{"ip": "` + strings.Repeat("a", maxInstance) + `"}`),
	}}
	instances, warnings := s.instances()
	require.Len(t, instances, 1)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "more than 1048576 are not read")
}

// FuzzConfigs has something in the place of a Nacos list anything as its configuration.
func FuzzConfigs(f *testing.F) {
	f.Add([]byte(`{"totalCount": 1, "pageItems": [{"dataId": "a"}]}`))
	f.Add([]byte(`{"code": 0, "data": {"totalCount": -1, "pageItems": [null, {"dataId": ""}]}}`))
	f.Fuzz(func(t *testing.T, page []byte) {
		testutil.Cost(t, len(page), 1000, func() {
			names, _, err := readConfigs(page)
			require.True(t, err == nil || names == nil)
		})
	})
}
