package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVirtualAddresses(t *testing.T) {
	const rest = "configSources: [{address: 'consul://localhost:8500'}]\n"
	for value, want := range map[string]string{
		"": "241.0.0.0/8", "virtualAddresses: 10.9.0.0/16\n": "10.9.0.0/16", "virtualAddresses: off\n": "", "virtualAddresses: 'off'\n": "",
	} {
		c := parsed(t, "t.yaml", value+rest)
		prefix, ok := c.VIPs()
		require.Equal(t, want != "", ok, value)
		if ok {
			require.Equal(t, want, prefix.String())
		}
	}
}
