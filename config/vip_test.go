package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestVirtualAddresses(t *testing.T) {
	const rest = "configSources: [{address: 'consul://localhost:8500'}]\n"
	for value, want := range map[string]string{
		"": "241.0.0.0/8", "virtualAddresses: 10.9.0.0/16\n": "10.9.0.0/16", "virtualAddresses: off\n": "", "virtualAddresses: 'off'\n": "",
	} {
		c, err := config.Parse("t.yaml", []byte(value+rest))
		require.NoError(t, err, value)
		prefix, ok := c.VIPs()
		require.Equal(t, want != "", ok, value)
		if ok {
			require.Equal(t, want, prefix.String())
		}
	}
	for value, message := range map[string]string{
		"ten":         `t.yaml:1:19: virtualAddresses: want a range such as 241.0.0.0/8, or off, got "ten"`,
		"10.0.0.0/30": "t.yaml:1:19: virtualAddresses: 10.0.0.0/30 is too small: at least 256 addresses are needed",
		"240.0.0.0/4": "t.yaml:1:19: virtualAddresses: istiod gives addresses of 240.240.0.0/16 itself",
	} {
		_, err := config.Parse("t.yaml", []byte("virtualAddresses: "+value+"\n"+rest))
		require.EqualError(t, err, message)
	}
}
