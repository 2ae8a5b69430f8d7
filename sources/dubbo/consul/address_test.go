package consul

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSourceAddress(t *testing.T) {
	for address, want := range map[string]string{
		"consul://h:8500?kind=dubbo":                                               "consul://h:8500",
		"consul://h:8500?kind=dubbo&dc=b&consul-watch-timeout=1000&ns=n":           "consul://h:8500?dc=b&ns=n",
		"consul+https:///?kind=dubbo&partition=p&registry-type=service&check=true": "consul+https:///?partition=p",
	} {
		got, err := sourceAddress(address)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := sourceAddress("consul://h:8500?kind=dubbo&token=verysecret")
	require.ErrorContains(t, err, "tokenFile")
	require.NotContains(t, err.Error(), "verysecret")
}
