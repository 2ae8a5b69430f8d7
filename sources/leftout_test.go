package sources

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLeftOut_FoundByObjectNameAndAddress: instances that a source leaves out are found by an object of the group, or
// by a name or an address, until the source publishes others.
func TestLeftOut_FoundByObjectNameAndAddress(t *testing.T) {
	within(t, Options{}, whatIsLeftOut)
}

func whatIsLeftOut(t *testing.T, supervisor *Supervisor) {
	_, sink := handed(t, supervisor)
	weight, scope := LeftOut{What: "10.2.0.3:20880", Of: "g/com.acme.Demo:1.0.0", Why: "weight 0"},
		LeftOut{What: "[fe80::1%eth0]:20880", Of: "com.acme.Demo", Why: "link-local"}
	require.NoError(t, sink.ReplaceAll([]Content{
		{Group: "com.acme.Demo", Resources: objects(newObject("demo", "1", "")), LeftOut: []LeftOut{scope, weight, weight}},
		{Group: "com.acme.Other", LeftOut: []LeftOut{{What: "a provider", Of: "com.acme.Other", Why: `"dubbo://10.2.0.4:99999/x": no port`}}},
	}))
	weight.Source, weight.Group, scope.Source, scope.Group = "a", "com.acme.Demo", "a", "com.acme.Demo"
	require.Equal(t, []LeftOut{scope, weight}, supervisor.LeavingOut("", keyed("demo")))
	require.Equal(t, 3, supervisor.Status()[0].LeftOutCount)
	require.Len(t, supervisor.Status()[0].LeftOut, 3)
	require.Equal(t, 1, supervisor.Status()[0].Groups, "no group is kept for it")
	require.Empty(t, supervisor.LeavingOut("", keyed("x")))
	for query, want := range map[string]int{
		"10.2.0.3": 1, "10.2.0.3:20880": 1, "com.acme.demo": 2, "com.acme.Demo:1.0.0": 0, "fe80:0::1": 1, "[fe80::1]:20880": 1, "10.2.0.30": 0,
		"10.2.0": 0, "10.2.0.4": 1, "10.2.0.4:99999": 1, "10.2.0.9": 0, "acme": 0, "com.acme.Other": 1,
	} {
		assert.Len(t, supervisor.LeavingOut(query), want, query)
	}
	require.Equal(t, "10.2.0.3:20880 of g/com.acme.Demo:1.0.0 (weight 0)", weight.String())

	require.NoError(t, sink.ReplaceAll([]Content{{Group: "com.acme.Demo"}, {Group: "com.acme.Other"}}))
	require.Zero(t, supervisor.Status()[0].LeftOutCount)
	require.Empty(t, supervisor.LeavingOut("com.acme.demo"))
}
