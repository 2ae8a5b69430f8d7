package wire_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/wire"
)

func decodeFile(t *testing.T, name string) *wire.Answer {
	body, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	a, err := wire.Decode(body)
	require.NoError(t, err)
	return a
}

// TestSpring has the registration of a Spring Cloud client, as a server of 2023.0.3 lists it.
func TestSpring(t *testing.T) {
	answer := decodeFile(t, "spring-all.json")
	require.Equal(t, &wire.Answer{Instances: []wire.Instance{{
		Key: wire.Key{App: "ORDERS", ID: "192.0.2.2:orders:28080"}, HostName: "192.0.2.2", IP: "192.0.2.2", Status: wire.Up,
		Overridden: wire.Unknown,
		Action:     "ADDED", Port: wire.Port{Number: 28080, Enabled: true}, SecurePort: wire.Port{Number: 443}, VIP: "orders",
		SecureVIP:  "orders",
		Metadata:   map[string]string{"zone": "z1", "management.port": "28080", "version": "v1"},
		Registered: 1795335318458, Updated: 1795335318461, Dirty: 1795335318278,
	}}}, answer)
}

// TestChanges has one set out of service, one that has gone, and one that came, from the same server.
func TestChanges(t *testing.T) {
	a := decodeFile(t, "spring-changes.json")
	require.Len(t, a.Instances, 4)
	for _, i := range a.Instances {
		require.NoError(t, i.Broken)
		switch i.ID {
		case "10.0.0.1:CARTS:80":
			require.Equal(t, []any{wire.OutOfService, wire.OutOfService, "MODIFIED"}, []any{i.Status, i.Overridden, i.Action})
		case "10.0.0.2:CARTS:80":
			require.Equal(t, []any{wire.Up, wire.Deleted, wire.Number(1795335399948)}, []any{i.Status, i.Action, i.Evicted},
				"it keeps the status that it had")
		}
	}
}

// TestOldServers have an object where a list has one element, and texts for numbers and numbers for texts.
func TestOldServers(t *testing.T) {
	answer := decodeFile(t, "old-one-element.json")
	require.Equal(t, []wire.Instance{{
		Key: wire.Key{App: "SAMPLE", ID: "i-0a1b2c3d"}, HostName: "i-0a1b2c3d.example", IP: "10.1.2.3", Status: wire.Up, Overridden: wire.Unknown,
		Action: "ADDED", Port: wire.Port{Number: 7001, Enabled: true}, SecurePort: wire.Port{Number: 7002}, VIP: "sample.example.net:7001",
		SecureVIP: "sample.example.net:7002", DataCenterZone: "us-east-1c", Metadata: map[string]string{},
		Registered: 1400000000001, Updated: 1400000000003, Dirty: 1400000000000,
	}}, answer.Instances)
}

func TestForeignAnswer_Refused(t *testing.T) {
	for _, body := range []string{
		"", "null", "[]", "{}", "<html>", `{"applications":{}}`, `{"applications":null}`, `{"applications":[]}`,
		`{"applications":{"apps__hashcode":""}}`,
		`{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}`, `{"timestamp":"2026","status":404,"error":"Not Found"}`,
		`{"applications":{"versions__delta":"1","apps__hashcode":"","application":"x"}}`,
		`{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}} x`,
	} {
		_, err := wire.Decode([]byte(body))
		require.ErrorContains(t, err, "no answer of a Eureka", body)
	}
	a, err := wire.Decode([]byte(`{"applications":{"versions__delta":"7","apps__hashcode":""}}`))
	require.NoError(t, err)
	require.Equal(t, &wire.Answer{}, a)
}

// answer is one with these instances of an application A.
func answer(instances string) []byte {
	return []byte(`{"applications":{"versions__delta":"1","apps__hashcode":"","application":[{"name":"a","instance":[` + instances + `]}]}}`)
}

// TestMalformedInstance_NamedAlone keeps no others from being read, and is known by its name where that can be.
func TestMalformedInstance_NamedAlone(t *testing.T) {
	for broken, named := range map[string]bool{
		`{"instanceId":"b","port":{"$":99999,"@enabled":"true"}}`: true,
		`{"instanceId":"b","port":{"$":"x"}}`:                     true,
		`{"instanceId":"b","port":[1]}`:                           true,
		`{"instanceId":"b","ipAddr":{"a":1},"status":"UP"}`:       true,
		`{"ipAddr":{"a":1},"instanceId":"b"}`:                     true,
		`{"instanceId":"b","leaseInfo":5}`:                        true,
		`{"instanceId":["b"]}`:                                    false,
		`{}`:                                                      false,
		`5`:                                                       false,
		`[]`:                                                      false,
	} {
		a, err := wire.Decode(answer(`{"instanceId":"a"},` + broken + `,{"instanceId":"c"}`))
		require.NoError(t, err, broken)
		if !named {
			require.Len(t, a.Instances, 2, broken)
			require.Equal(t, 1, a.Nameless, broken)
			require.Error(t, a.Why)
			continue
		}
		require.Len(t, a.Instances, 3, broken)
		require.NoError(t, a.Instances[0].Broken)
		require.Equal(t, wire.Key{App: "A", ID: "b"}, a.Instances[1].Key)
		require.Error(t, a.Instances[1].Broken, broken)
		require.NoError(t, a.Instances[2].Broken)
	}
	a, err := wire.Decode([]byte(`{"applications":{"versions__delta":"1","apps__hashcode":"","application":[5,{"name":"a",` +
		`"instance":{"instanceId":"a"}}]}}`))
	require.NoError(t, err)
	require.Len(t, a.Instances, 1)
	require.Equal(t, 1, a.Nameless)
}

func TestDuplicateInstance_LastCounts(t *testing.T) {
	a, err := wire.Decode(answer(`{"instanceId":"a","status":"UP"},{"instanceId":"a","status":"DOWN"}`))
	require.NoError(t, err)
	require.Len(t, a.Instances, 1)
	require.Equal(t, wire.Down, a.Instances[0].Status)
}

// TestApply shows the effect of a change on two instances that were registered at 10 and 20.
func TestApply(t *testing.T) {
	instance := func(id, status, action string, when wire.Number) wire.Instance {
		result := wire.Instance{
			Key: wire.Key{App: "A", ID: id}, Status: status, Action: action, Registered: when, Updated: when,
		}
		if action == wire.Deleted {
			result.Registered, result.Evicted = 1, when
		}
		return result
	}
	listing := &wire.Answer{Instances: []wire.Instance{instance("a", "UP", "", 10), instance("b", "UP", "", 20)}}
	for name, test := range map[string]struct {
		change wire.Instance
		want   string
	}{
		"an instance came":                   {instance("c", "UP", "ADDED", 30), "a UP b UP c UP "},
		"an instance is down":                {instance("a", "DOWN", "MODIFIED", 30), "a DOWN b UP "},
		"it was down, earlier":               {instance("b", "DOWN", "MODIFIED", 19), "a UP b UP "},
		"it went":                            {instance("b", "UP", wire.Deleted, 30), "a UP "},
		"it went, and came again since then": {instance("b", "UP", wire.Deleted, 19), "a UP b UP "},
		"an unlisted instance went":          {instance("c", "UP", wire.Deleted, 30), "a UP b UP "},
	} {
		text := ""
		for _, after := range listing.Apply(&wire.Answer{Instances: []wire.Instance{test.change}}).Instances {
			text += after.ID + " " + after.Status + " "
		}
		require.Equal(t, test.want, text, name)
	}
	require.Len(t, listing.Instances, 2, "a listing does not change")
}

func TestPorts(t *testing.T) {
	for port, want := range map[string]wire.Port{
		`{"$":80,"@enabled":"true"}`:    {Number: 80, Enabled: true},
		`{"$":"80","@enabled":true}`:    {Number: 80, Enabled: true},
		`{"$":80,"@enabled":"false"}`:   {Number: 80},
		`{"$":80}`:                      {Number: 80, Enabled: true},
		`80`:                            {Number: 80, Enabled: true},
		`"80"`:                          {Number: 80, Enabled: true},
		`{"$":0,"@enabled":"true"}`:     {},
		`{"@enabled":"true"}`:           {},
		`null`:                          {},
		`{"$":-1,"@enabled":"false"}`:   {},
		`{"$":null,"@enabled":"false"}`: {},
	} {
		a, err := wire.Decode(answer(`{"instanceId":"a","port":` + port + `}`))
		require.NoError(t, err)
		require.NoError(t, a.Instances[0].Broken, port)
		require.Equal(t, want, a.Instances[0].Port, port)
	}
}

// TestAddressesOfIPv6 has them as Java writes them: in brackets, with the interface that they are of, or in full.
func TestAddressesOfIPv6(t *testing.T) {
	a, err := wire.Decode(answer(`{"instanceId":"1","ipAddr":"[2001:db8::A]","hostName":"H.Example."},{"instanceId":"2",` +
		`"ipAddr":"2001:db8:0:0:0:0:0:a%eth0","hostName":"[fd00::1%2]"}`))
	require.NoError(t, err)
	require.Len(t, a.Instances, 2)
	require.Equal(t, []string{"2001:db8::a", "h.example"}, []string{a.Instances[0].IP, a.Instances[0].HostName})
	require.Equal(t, []string{"2001:db8::a", "fd00::1"}, []string{a.Instances[1].IP, a.Instances[1].HostName})
}

func TestTooMany(t *testing.T) {
	_, err := wire.Decode(answer(strings.Repeat("5,", wire.MaxInstances) + "5"))
	require.ErrorContains(t, err, "more than 100000 instances")
	_, err = wire.Decode(answer(strings.Repeat(`{"instanceId":"a"},`, wire.MaxInstances) + `{"instanceId":"a"}`))
	require.ErrorContains(t, err, "more than 100000 instances")
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"spring-all.json", "spring-changes.json", "old-one-element.json"} {
		body, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Add(answer(`{"instanceId":"b","port":{"$":99999}},{},5`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := wire.Decode(body)
		if err != nil {
			return
		}
		for n, i := range a.Instances {
			require.NotEmpty(t, i.App)
			require.NotEmpty(t, i.ID)
			require.Contains(t, []string{wire.Up, wire.Down, wire.Starting, wire.OutOfService, wire.Unknown}, i.Status)
			require.True(t, n == 0 || a.Instances[n-1].Compare(i.Key) < 0)
			require.False(t, i.Port.Enabled && (i.Port.Number < 1 || i.Port.Number > 65535))
		}
	})
}
