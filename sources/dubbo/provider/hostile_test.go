package provider

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMalformedServices_WarningsBounded has a document of a few bytes for each of thousands of services that are none.
func TestMalformedServices_WarningsBounded(t *testing.T) {
	var services []string
	for n := range 50_000 {
		services = append(services, fmt.Sprintf(`"%d":0`, n))
	}
	_, skipped, err := ParseMetadata([]byte(`{"services":{` + strings.Join(services, ",") + `}}`))
	require.NoError(t, err)
	require.Len(t, skipped, maxUnreadable+1)
	require.Equal(t, "49990 more services cannot be read", skipped[maxUnreadable])
	_, skipped = FromURLs("app", make([]string, 50_000))
	require.Len(t, skipped, maxUnreadable+1)
}

// TestDisabledInstances_ShareParameters has instances that are disabled in the registry, and rules that enable them.
func TestDisabledInstances_ShareParameters(t *testing.T) {
	m := Metadata{Services: []Service{{Name: "a", Protocol: "tri", Params: map[string]string{"weight": "7", "disabled": "false"}}}}
	p := Instance{Host: "10.0.0.1", Port: 1, Off: true}.Providers(m)[0]
	require.Equal(t, reflect.ValueOf(m.Services[0].Params).Pointer(), reflect.ValueOf(p.Params).Pointer(), "one for all instances")
	require.Equal(t, "disabled", p.Off())
	require.Zero(t, p.Weight())
	rule := func(protocol, disabled string) []Configurator {
		return []Configurator{{URL{Protocol: protocol, Host: "0.0.0.0", Path: "a", Params: map[string]string{"disabled": disabled}}}}
	}
	require.EqualValues(t, 7, Configure([]Provider{p}, rule("override", "false"))[0].Weight())
	require.Zero(t, Configure([]Provider{p}, rule("absent", "false"))[0].Weight())

	provider := p
	provider.SwitchedOff, provider.Timestamp, provider.Levels, p.Levels = false, 2, OfInterfaces, OfApplications
	require.EqualValues(t, 7, Merge([]Provider{provider}, []Provider{p})[0].Weight(), "the newer one says so itself")
	provider.Params = map[string]string{"weight": "7"}
	require.Zero(t, Merge([]Provider{provider}, []Provider{p})[0].Weight())
}
