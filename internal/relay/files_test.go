package relay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestFilesOfSources has files of a source's tlsSettings that are not there found.
func TestFilesOfSources(t *testing.T) {
	for _, address := range []string{
		"consul+https://h:1", "consul-kv+https://h:1/x", "xds://h:1", "eureka+https://h:1/eureka", "k8s://h:1",
		"nacos://h:1?kind=services", "nacos://h:1",
	} {
		cfg, err := config.Parse("t.yaml", []byte("configSources: [{name: c, address: '"+address+
			"', tlsSettings: {mode: SIMPLE, caCertificates: nosuch.pem}}]\n"))
		if err != nil { // these are read with the configuration
			require.ErrorContains(t, err, "tlsSettings: caCertificates: ", address)
			continue
		}
		wrong, _ := Files(t.Context(), cfg)
		require.Len(t, wrong, 1, address)
		require.ErrorContains(t, wrong[0], "source c: tlsSettings.caCertificates: ", address)
	}
}
